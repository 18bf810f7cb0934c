package git

import (
	"bytes"
	"crypto"
	"errors"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// parsePGP reads all blocks of public keys in a text.
func (t *trusted) parsePGP(name string, data []byte) error {
	invalid := failf(InvalidConfiguration,
		"%s in the Secret with trusted keys is not a PGP public key in ASCII armor: "+
			"set it to the output of gpg --armor --export", name)
	var found openpgp.EntityList
	for text := range bytes.SplitAfterSeq(data, []byte("-----END PGP PUBLIC KEY BLOCK-----")) {
		if len(found) > 0 && !bytes.Contains(text, []byte("-----BEGIN ")) {
			continue
		}
		block, err := armor.Decode(bytes.NewReader(text))
		if err != nil {
			return invalid.Because(err)
		}
		if block.Type != openpgp.PublicKeyType {
			return invalid
		}
		keys, err := openpgp.ReadKeyRing(block.Body)
		if err != nil {
			return invalid.Because(err)
		}
		found = append(found, keys...)
	}
	t.pgp = append(t.pgp, found)
	return nil
}

// verifyPGP verifies a detached PGP signature.
func (t *trusted) verifyPGP(commit string, payload, signature []byte) error {
	unknown := failf(NotVerified, "the commit %s is signed by a PGP key that is not trusted: "+
		"add its public key to the Secret, or sign with a trusted key", commit)
	var failure error = unknown
	for _, keys := range t.pgp {
		block, err := armor.Decode(bytes.NewReader(signature))
		if err != nil {
			return explainPGP(commit, err)
		}
		found, _, err := openpgp.VerifyDetachedSignature(keys, bytes.NewReader(payload), block.Body,
			&packet.Config{Time: time.Now})
		switch {
		case err == nil && !signsBytes(found):
			failure = failf(NotVerified, "the commit %s has a PGP signature that uses an insecure hash, "+
				"or is one of text: sign the commit with a current version of gpg", commit)
		case err == nil:
			return nil
		case !errors.Is(err, pgperrors.ErrUnknownIssuer):
			failure = explainPGP(commit, err)
		}
	}
	return failure
}

// signsBytes reports whether a signature covers the exact bytes. One of text ignores how lines end.
func signsBytes(s *packet.Signature) bool {
	switch s.Hash {
	case crypto.SHA256, crypto.SHA384, crypto.SHA512, crypto.SHA3_256, crypto.SHA3_512:
		return s.SigType == packet.SigTypeBinary
	default:
		return false
	}
}

func explainPGP(commit string, err error) error {
	switch {
	case errors.Is(err, pgperrors.ErrKeyRevoked):
		return failf(NotVerified, "the commit %s is signed by a PGP key that was revoked: sign with another key",
			commit)
	case errors.Is(err, pgperrors.ErrKeyExpired):
		return failf(NotVerified, "the commit %s is signed by a PGP key that has expired: "+
			"extend the key and update its public key in the Secret, or sign with another key", commit)
	case errors.Is(err, pgperrors.ErrSignatureExpired):
		return failf(NotVerified, "the PGP signature of the commit %s has expired: sign the commit again", commit)
	}
	return failf(NotVerified, "the PGP signature does not match the commit %s: sign the commit again",
		commit).Because(err)
}
