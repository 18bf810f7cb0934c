package git

import (
	"bytes"
	"errors"
	"strings"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// sshNamespace is what git writes into its SSH signatures.
const sshNamespace = "git"

// parseSSH reads lines of authorized_keys or allowed_signers.
func (t *trusted) parseSSH(name string, data []byte) error {
	for number, line := range bytes.Split(data, []byte("\n")) {
		text := strings.TrimSpace(string(line))
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		key, err := parseSSHLine(text)
		if err != nil {
			return failf(InvalidConfiguration, "%s in the Secret with trusted keys, line %d: %s", name, number+1, err)
		}
		t.ssh = append(t.ssh, key)
	}
	return nil
}

var (
	errSSHLine = errors.New("it is neither a PGP nor an SSH public key: write KEYTYPE KEY COMMENT, " +
		"or EMAIL KEYTYPE KEY as in allowed_signers")
	errSSHOption = errors.New("it has options, which are not supported: remove the options or the line")
	errSSHType   = errors.New("it is a certificate or an unknown type of key: use the key itself")
)

// parseSSHLine returns the key of a line. It rejects options that restrict a key, because they would be ignored. The
// option namespaces="git" of allowed_signers is what applies to commits anyway.
func parseSSHLine(line string) (ssh.PublicKey, error) {
	fields := strings.Fields(line)
	at := 0
	if len(fields) > 0 && !isKeyType(fields[0]) {
		// In allowed_signers, the first field has email addresses or patterns of them.
		if strings.ContainsAny(fields[0], `="`) {
			return nil, errSSHOption
		}
		if !strings.ContainsAny(fields[0], "@*") {
			return nil, errSSHLine
		}
		if at = 1; len(fields) > 1 && !isKeyType(fields[1]) {
			if fields[1] != `namespaces="git"` {
				return nil, errSSHOption
			}
			at = 2
		}
	}
	if len(fields) < at+2 || !isKeyType(fields[at]) {
		return nil, errSSHLine
	}
	key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(strings.Join(fields[at:at+2], " ")))
	switch {
	case err != nil || len(options) > 0 || key.Type() != fields[at]:
		return nil, errSSHLine
	case isCertificate(key):
		return nil, errSSHType
	}
	return key, nil
}

func isKeyType(field string) bool {
	return strings.HasPrefix(field, "ssh-") || strings.HasPrefix(field, "ecdsa-sha2-") ||
		strings.HasPrefix(field, "sk-")
}

func isCertificate(key ssh.PublicKey) bool {
	_, is := key.(*ssh.Certificate)
	return is
}

// verifySSH verifies a signature in the format of OpenSSH. sshsig rejects RSA signatures with SHA-1.
func (t *trusted) verifySSH(commit string, payload, signature []byte) error {
	mismatch := failf(NotVerified, "the SSH signature does not match the commit %s: sign the commit again", commit)
	parsed, err := sshsig.Unarmor(signature)
	if err != nil {
		return mismatch.Because(err)
	}
	fingerprint := ssh.FingerprintSHA256(parsed.PublicKey)
	for _, key := range t.ssh {
		if !bytes.Equal(key.Marshal(), parsed.PublicKey.Marshal()) {
			continue
		}
		if err := sshsig.Verify(bytes.NewReader(payload), parsed, key, parsed.HashAlgorithm, sshNamespace); err != nil {
			return mismatch.Because(err)
		}
		return nil
	}
	return failf(NotVerified, "the commit %s is signed by the SSH key %s, which is not trusted: "+
		"add its public key to the Secret, or sign with a trusted key", commit, fingerprint)
}
