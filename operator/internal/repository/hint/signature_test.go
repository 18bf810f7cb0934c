package hint

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The values are those of the manuals of GitHub and of standardwebhooks.com.
const (
	githubToken, githubBody = "It's a Secret to Every" + "body", "Hello, World!"
	githubSum               = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"

	standardToken = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	standardBody  = `{"test": 2432232314}`
	standardSum   = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

// standardHeader returns the headers of a request with a signature.
func standardHeader(sums string) map[string]string {
	return map[string]string{
		standardID: "msg_p5jXN8AQM9LWM0D4loKWxJek", standardTimestamp: "1614265330", standardSignature: sums,
	}
}

func TestSignature(t *testing.T) {
	t.Parallel()
	hashed := sha256.Sum256([]byte(githubToken))
	sha512 := strings.Repeat("00", 64)
	without := func(headers map[string]string, name string) map[string]string {
		delete(headers, name)
		return headers
	}
	for name, test := range map[string]struct {
		headers     map[string]string
		token, body string
		want        bool
	}{
		"GitHub": {
			map[string]string{"X-Hub-Signature-256": "sha256=" + githubSum}, githubToken, githubBody, true,
		},
		"Bitbucket": {
			map[string]string{"X-Hub-Signature": "sha256=" + githubSum}, githubToken, githubBody, true,
		},
		"generic": {
			map[string]string{"X-Signature": "sha256=" + githubSum}, githubToken, githubBody, true,
		},
		"upper case": {
			map[string]string{"X-Signature": "sha256=" + strings.ToUpper(githubSum)}, githubToken, githubBody, true,
		},
		"another body": {
			map[string]string{"X-Signature": "sha256=" + githubSum}, githubToken, githubBody + "!", false,
		},
		"no body": {map[string]string{"X-Signature": "sha256=" + githubSum}, githubToken, "", false},
		"another token": {
			map[string]string{"X-Signature": "sha256=" + githubSum}, githubToken + "!", githubBody, false,
		},
		"no prefix":       {map[string]string{"X-Signature": githubSum}, githubToken, githubBody, false},
		"only the prefix": {map[string]string{"X-Signature": "sha256="}, githubToken, githubBody, false},
		"another prefix": {
			map[string]string{"X-Signature": "sha1=" + githubSum}, githubToken, githubBody, false,
		},
		"a part": {
			map[string]string{"X-Signature": "sha256=" + githubSum[:32]}, githubToken, githubBody, false,
		},
		"longer": {
			map[string]string{"X-Signature": "sha256=" + githubSum + "00"}, githubToken, githubBody, false,
		},
		"no digits": {
			map[string]string{"X-Signature": "sha256=" + strings.Repeat("z", 64)}, githubToken, githubBody, false,
		},
		"another hash": {
			map[string]string{"X-Signature": "sha512=" + sha512}, githubToken, githubBody, false,
		},
		"SHA-1 beside SHA-256": {map[string]string{
			"X-Hub-Signature": "sha1=00", "X-Hub-Signature-256": "sha256=" + githubSum,
		}, githubToken, githubBody, true},
		"GitLab's token": {map[string]string{"X-Gitlab-Token": githubToken}, githubToken, githubBody, true},
		"a part of the token": {
			map[string]string{"X-Gitlab-Token": githubToken[:5]}, githubToken, githubBody, false,
		},
		"the token's hash": {
			map[string]string{"X-Gitlab-Token": string(hashed[:])}, githubToken, githubBody, false,
		},
		"no headers": {nil, githubToken, githubBody, false},
		"empty headers": {
			map[string]string{"X-Gitlab-Token": "", "X-Signature": ""}, githubToken, githubBody, false,
		},
		"standard":          {standardHeader(standardSum), standardToken, standardBody, true},
		"standard, several": {standardHeader("v2,AAAA v1,AAAA " + standardSum), standardToken, standardBody, true},
		"standard, none":    {standardHeader("v1, v1 v2,"), standardToken, standardBody, false},
		"standard, version": {standardHeader("v2" + standardSum[2:]), standardToken, standardBody, false},
		"standard, body":    {standardHeader(standardSum), standardToken, standardBody + " ", false},
		"standard, id": {
			without(standardHeader(standardSum), standardID), standardToken, standardBody, false,
		},
		"standard, timestamp": {
			without(standardHeader(standardSum), standardTimestamp), standardToken, standardBody, false,
		},
		"standard, token as key": {standardHeader(standardSum), standardToken[len("whsec_"):], standardBody, false},
		"new and old GitLab token": {func() map[string]string {
			headers := standardHeader("v1,AAAA")
			headers["X-Gitlab-Token"] = githubToken
			return headers
		}(), githubToken, githubBody, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, isValid(t, test.headers, test.token, test.body))
		})
	}
}

// isValid reports whether a request proves that its sender knows the token.
func isValid(t *testing.T, headers map[string]string, token, body string) bool {
	t.Helper()
	header := http.Header{}
	for name, value := range headers {
		header.Set(name, value)
	}
	signature := newSignature(header, []byte(token))
	n, err := io.Copy(signature, strings.NewReader(body))
	require.NoError(t, err)
	require.Equal(t, int64(len(body)), n)
	return signature.isValid()
}

// A sender who does not know the token can write anything, and is not believed.
func FuzzSignature(f *testing.F) {
	f.Add("sha256="+githubSum, githubToken, standardSum, githubBody)
	f.Add("sha256=", "", "v1,", "")
	f.Fuzz(func(t *testing.T, sum, token, standard, body string) {
		secret := []byte("the fuzzer does not know this token")
		header := http.Header{}
		for name, value := range map[string]string{
			"X-Hub-Signature-256": sum, gitlabToken: token, standardSignature: standard,
		} {
			header.Set(name, value)
		}
		signature := newSignature(header, secret)
		_, err := io.WriteString(signature, body)
		require.NoError(t, err)
		require.False(t, signature.isValid())

		mac := hmac.New(sha256.New, secret)
		_, _ = mac.Write([]byte(body))
		header.Set("X-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
		signature = newSignature(header, secret)
		_, err = io.WriteString(signature, body)
		require.NoError(t, err)
		require.True(t, signature.isValid(), "other headers do not invalidate a signature")
	})
}

func TestStandardKey(t *testing.T) {
	t.Parallel()
	for token, want := range map[string]string{
		"whsec_" + base64.StdEncoding.EncodeToString([]byte("key")): "key",
		"key": "key", "whsec_": "whsec_", "whsec_!": "whsec_!",
	} {
		require.Equal(t, want, string(standardKey([]byte(token))), token)
	}
}
