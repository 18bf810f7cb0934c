package hint

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"net/http"
	"strings"
)

// The headers of the supported forms.
const (
	// gitlabToken is GitLab's secret token, which is the token itself.
	gitlabToken = "X-Gitlab-Token"
	// standardSignature is the header of standardwebhooks.com, and of GitLab's signing token: "v1," and the HMAC in
	// base64, several of them separated by spaces. The HMAC is that of the id, the timestamp and the body.
	standardSignature, standardID, standardTimestamp = "Webhook-Signature", "Webhook-Id", "Webhook-Timestamp"
)

// hexHeaders are the headers that hold "sha256=" and the HMAC of the body in hexadecimal digits: those of GitHub, Gitea
// and Forgejo, of Bitbucket, and of Flux's generic-hmac.
var hexHeaders = []string{"X-Hub-Signature-256", "X-Hub-Signature", "X-Signature"}

// standardPrefix begins a token whose rest is the key of standardSignature in base64.
const standardPrefix = "whsec_"

// signature verifies what a request proves about a token, while the body is written to it.
type signature struct {
	// known is true if the request contains the token itself.
	known bool
	// body is the HMAC of the body, and sums are the hashes of which one must be equal to it.
	body hash.Hash
	sums [][]byte
	// standard is the HMAC of standardSignature, and standardSums are the hashes of which one must be equal to it.
	standard     hash.Hash
	standardSums [][]byte
}

// isSigned reports whether a request has a header of one of the supported forms.
func isSigned(header http.Header) bool {
	for _, name := range append([]string{gitlabToken, standardSignature}, hexHeaders...) {
		if header.Get(name) != "" {
			return true
		}
	}
	return false
}

// newSignature returns the signature of a request with these headers. How long that takes, and how long the
// verification takes, does not depend on the token. One valid header is enough: GitLab sends two while a user replaces
// a secret token by a signing token.
func newSignature(header http.Header, token []byte) *signature {
	s := &signature{body: hmac.New(sha256.New, token), standard: hmac.New(sha256.New, standardKey(token))}
	// The hashes have the same length, whatever the lengths of the values.
	given, want := sha256.Sum256([]byte(header.Get(gitlabToken))), sha256.Sum256(token)
	s.known = hmac.Equal(given[:], want[:])
	for _, name := range hexHeaders {
		if text, ok := strings.CutPrefix(header.Get(name), "sha256="); ok {
			if sum, err := hex.DecodeString(text); err == nil {
				s.sums = append(s.sums, sum)
			}
		}
	}
	for text := range strings.FieldsSeq(header.Get(standardSignature)) {
		if text, ok := strings.CutPrefix(text, "v1,"); ok {
			if sum, err := base64.StdEncoding.DecodeString(text); err == nil {
				s.standardSums = append(s.standardSums, sum)
			}
		}
	}
	// Every client that sees a hint can repeat it, which causes one more fetch. So neither the id nor the timestamp is
	// compared with anything, and hints do not depend on clocks.
	for _, name := range []string{standardID, standardTimestamp} {
		_, _ = s.standard.Write([]byte(header.Get(name) + ".")) // a hash returns no error
	}
	return s
}

// standardKey returns the key of standardSignature.
func standardKey(token []byte) []byte {
	if text, ok := strings.CutPrefix(string(token), standardPrefix); ok {
		if key, err := base64.StdEncoding.DecodeString(text); err == nil && len(key) > 0 {
			return key
		}
	}
	return token
}

// Write adds a part of the body. It returns no error.
func (s *signature) Write(part []byte) (int, error) {
	_, _ = s.body.Write(part)
	if len(s.standardSums) == 0 {
		return len(part), nil
	}
	return s.standard.Write(part)
}

// isValid reports whether the sender of the request, whose body has been written, knows the token.
func (s *signature) isValid() bool {
	valid := s.known
	for _, sum := range s.sums {
		valid = hmac.Equal(sum, s.body.Sum(nil)) || valid
	}
	for _, sum := range s.standardSums {
		valid = hmac.Equal(sum, s.standard.Sum(nil)) || valid
	}
	return valid
}
