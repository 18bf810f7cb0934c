package artifact

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"strings"

	"nstpl.dev/nstpl/operator/engine/files"
)

// sums compute digests.
var sums = map[string]func(content []byte) []byte{
	"sha256": func(content []byte) []byte { sum := sha256.Sum256(content); return sum[:] },
	"sha384": func(content []byte) []byte { sum := sha512.Sum384(content); return sum[:] },
	"sha512": func(content []byte) []byte { sum := sha512.Sum512(content); return sum[:] },
}

// parseDigest returns how to compute a digest, and its value in hexadecimal digits. sum is nil if the algorithm is not
// supported.
func parseDigest(digest string) (sum func([]byte) []byte, value string) {
	algorithm, value, _ := strings.Cut(digest, ":")
	return sums[algorithm], value
}

// checkDigest checks that an artifact has a digest that can be compared.
func checkDigest(a *Artifact) error {
	if a.Digest == "" {
		return files.Failf(files.NotVerified,
			"%s has no digest, so its content cannot be verified: update the controller "+
				"that stores it", a)
	}
	sum, value := parseDigest(a.Digest)
	if sum == nil {
		return files.Failf(files.NotVerified,
			"the digest of %s is not sha256, sha384 or sha512: have its controller use "+
				"one of these", a)
	}
	bytes, err := hex.DecodeString(value)
	if err != nil || value != strings.ToLower(value) || len(bytes) != len(sum(nil)) {
		return files.Failf(files.NotVerified,
			"the digest of %s is malformed: it must be the name of the algorithm, a colon, "+
				"and lower-case hexadecimal digits", a)
	}
	return nil
}

// verify compares the digest of a content. The error does not tell the digest that the content has, since the content
// may be a secret that the URL makes nstpl-sync request.
func verify(a *Artifact, content []byte) error {
	sum, value := parseDigest(a.Digest)
	if sum == nil || hex.EncodeToString(sum(content)) != value {
		return files.Failf(files.NotVerified, "the file at %s does not have the digest %s of %s: nothing of it is used",
			files.Printable(a.URL, files.MaxText), a.Digest, a)
	}
	return nil
}
