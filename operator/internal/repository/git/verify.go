package git

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"golang.org/x/crypto/ssh"
)

// Verify returns an error unless a commit is signed by a trusted key. keys is the data of a Secret: each value has PGP
// public keys in ASCII armor, or SSH public keys as lines of authorized_keys or of allowed_signers. Verify rejects keys
// that are expired or revoked now, even if the signature is older.
//
// The signature must be the commit's own, and it must cover every byte of the commit object. The signature of an
// annotated tag does not count, because a tag can be replaced without a trace in the commit.
func Verify(commit *Commit, keys map[string][]byte) error {
	trusted, err := parseTrusted(keys)
	if err != nil {
		return err
	}
	payload, signature, err := splitSignature(commit.raw)
	if err != nil {
		return failf(NotVerified, "the signature of the commit %s is malformed: sign the commit again",
			commit.Hash).Because(err)
	}
	switch {
	case len(signature) == 0:
		return failf(NotVerified, "the commit %s is not signed: sign it with git commit -S", commit.Hash)
	case bytes.HasPrefix(signature, []byte("-----BEGIN SSH SIGNATURE-----")):
		return trusted.verifySSH(commit.Hash, payload, signature)
	case bytes.HasPrefix(signature, []byte("-----BEGIN PGP SIGNATURE-----")):
		return trusted.verifyPGP(commit.Hash, payload, signature)
	}
	return failf(NotVerified, "the commit %s is signed in a format that is not supported: "+
		"sign it with a PGP or SSH key", commit.Hash)
}

// trusted holds the keys that may sign commits.
type trusted struct {
	pgp []openpgp.EntityList // each of one value of the Secret
	ssh []ssh.PublicKey
}

// parseTrusted parses the data of a Secret.
func parseTrusted(keys map[string][]byte) (*trusted, error) {
	t := &trusted{}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		if err := t.parse(printable(name, 100), keys[name]); err != nil {
			return nil, err
		}
	}
	if len(t.pgp)+len(t.ssh) == 0 {
		return nil, failf(InvalidConfiguration,
			"the Secret with trusted keys has none: add PGP public keys in ASCII armor, or SSH public keys")
	}
	return t, nil
}

func (t *trusted) parse(name string, data []byte) error {
	if bytes.Contains(data, []byte("-----BEGIN PGP ")) {
		return t.parsePGP(name, data)
	}
	if bytes.Contains(data, []byte("PRIVATE KEY-----")) {
		return failf(InvalidConfiguration, "%s in the Secret with trusted keys is a private key: "+
			"replace it with the public key", name)
	}
	return t.parseSSH(name, data)
}

const signatureHeader = "gpgsig"

// splitSignature returns a commit object without its signature, which is what was signed, and the signature, or nil if
// there is none.
func splitSignature(raw []byte) (payload, signature []byte, err error) {
	headers, message, found := bytes.Cut(raw, []byte("\n\n"))
	if !found {
		headers, message = raw, nil
	}
	signatures, inside := 0, false
	for line := range bytes.Lines(headers) {
		text := strings.TrimSuffix(string(line), "\n")
		key, value, _ := strings.Cut(text, " ")
		switch {
		case inside && strings.HasPrefix(text, " "):
			signature = append(append(signature, text[1:]...), '\n')
			continue
		case key == signatureHeader:
			inside, signatures = true, signatures+1
			signature = append([]byte(value), '\n')
			continue
		case strings.HasPrefix(key, signatureHeader):
			return nil, nil, fmt.Errorf("a signature of the kind %q is not supported", key)
		}
		inside = false
		payload = append(payload, line...)
	}
	if signatures > 1 {
		return nil, nil, errors.New("there are several signatures")
	}
	if found {
		// The last header lost its line feed, unless it belonged to the signature.
		if !bytes.HasSuffix(payload, []byte("\n")) {
			payload = append(payload, '\n')
		}
		payload = append(append(payload, '\n'), message...)
	}
	return payload, signature, nil
}
