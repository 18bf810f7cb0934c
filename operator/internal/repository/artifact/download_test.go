package artifact

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/engine/files"
)

// digestOf returns the digest of a content.
func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func noWait(context.Context) error { return nil }

// serve returns an artifact on a server.
func serve(t *testing.T, digest string, handler http.HandlerFunc) *Artifact {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return &Artifact{
		Source: "Bucket flux-system/policies", URL: server.URL + "/a.tar.gz", Digest: digest, Revision: "v1",
	}
}

func sends(content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) }
}

func TestDownload(t *testing.T) {
	t.Parallel()
	archive := pack(t, entry{name: "foo-corp/a.yaml", content: "a"})
	sum384, sum512 := sha512.Sum384(archive), sha512.Sum512(archive)
	for _, digest := range []string{
		digestOf(archive), "sha384:" + hex.EncodeToString(sum384[:]), "sha512:" + hex.EncodeToString(sum512[:]),
	} {
		from, err := NewClient().Download(t.Context(), serve(t, digest, sends(archive)), "foo-corp", noWait)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a.yaml": "a"}, contents(t, from))
	}
}

// Nothing of a file with another digest is used, and the error does not tell its digest.
func TestAnotherDigest(t *testing.T) {
	t.Parallel()
	archive := pack(t, entry{name: "foo-corp/a.yaml", content: "a"})
	for _, content := range [][]byte{
		nil, []byte("a secret"), archive[:len(archive)-1], append(slices.Clip(archive), 0),
	} {
		a := serve(t, digestOf(archive), sends(content))
		_, err := NewClient().Download(t.Context(), a, "foo-corp", noWait)
		require.EqualError(t, err, fmt.Sprintf("the file at %s does not have the digest %s of the artifact v1 of "+
			"Bucket flux-system/policies: nothing of it is used", a.URL, a.Digest))
	}
}

// raw answers with bytes, and ends the connection.
func raw(t *testing.T, answer string) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		out := bufio.NewWriter(conn)
		_, _ = io.WriteString(out, answer)
		_ = out.Flush()
	}
}

func TestServersThatFail(t *testing.T) {
	t.Parallel()
	small := defaultLimits()
	small.download = 1000
	endless := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(bytes.Repeat([]byte("x"), 4096)); err != nil {
				return
			}
		}
	}
	hangs := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	hangsLater := func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("x"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		reason  files.Reason
		err     string
	}{
		"not found": {http.NotFound, files.Unreachable, "(status 404): wait for its controller to store it again"},
		"an error": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
		}, files.Unreachable, "(status 500)"},
		"no content": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(204)
		}, files.Unreachable, "(status 204)"},
		"endless":     {endless, files.LimitExceeded, "has more than 1000 bytes in compressed form"},
		"hangs":       {hangs, files.Unreachable, "was not downloaded in time from"},
		"hangs later": {hangsLater, files.Unreachable, "was not downloaded in time from"},
		"announces much": {
			raw(t, "HTTP/1.1 200 OK\r\nContent-Length: 9000000000000000000\r\n\r\nx"), files.LimitExceeded,
			"has more than 1000 bytes",
		},
		"sends less than announced": {
			raw(t, "HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\nx"), files.Unreachable,
			"ended the connection before the end",
		},
		"sends nothing": {raw(t, ""), files.Unreachable, "ended the connection before the end"},
		"is not HTTP":   {raw(t, "SSH-2.0-x\r\n"), files.Unreachable, "cannot be reached"},
		"redirects": {
			func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
			},
			files.InvalidConfiguration, "redirects from",
		},
		"redirects to itself": {
			func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/b", http.StatusMovedPermanently) },
			files.InvalidConfiguration, "redirects from",
		},
		"sends endless headers": {
			func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("A", strings.Repeat("x", 2<<20)) },
			files.Unreachable, "cannot be reached",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := NewClient()
			c.limits = small
			if strings.HasPrefix(name, "hangs") { // a busy machine may be slow to answer where a server answers
				c.limits.time = 300 * time.Millisecond
			}
			_, err := c.Download(t.Context(), serve(t, someDigest, test.handler), "foo-corp", noWait)
			require.ErrorContains(t, err, test.err)
			failed, ok := errors.AsType[*files.Error](err)
			require.True(t, ok, "%T", err)
			require.Equal(t, test.reason, failed.Reason)
		})
	}
}

// A certificate that is not trusted is not accepted, although the digest would protect the content.
func TestUntrustedServer(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	_, err := NewClient().Download(t.Context(), &Artifact{URL: server.URL, Digest: someDigest}, ".", noWait)
	failed, ok := errors.AsType[*files.Error](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, files.UntrustedServer, failed.Reason)
}

func TestDownloadStops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	a := serve(t, someDigest, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	_, err := NewClient().Download(ctx, a, ".", noWait)
	require.ErrorIs(t, err, context.Canceled)
}

// To unpack an artifact needs memory, so that waits, unlike the download.
func TestUnpackingWaits(t *testing.T) {
	t.Parallel()
	content := []byte("unpacked")
	over := errors.New("the process ends")
	for _, digest := range []string{digestOf(content), someDigest} {
		waits := 0
		_, err := NewClient().Download(t.Context(), serve(t, digest, sends(content)), ".", func(context.Context) error {
			waits++
			return over
		})
		require.Equal(t, digest != someDigest, errors.Is(err, over), "%v", err)
		require.Equal(t, digest != someDigest, waits == 1)
	}
}

func TestPathOutsideOfTheArtifact(t *testing.T) {
	t.Parallel()
	_, err := NewClient().Download(t.Context(), &Artifact{}, "../foo-corp", noWait)
	require.ErrorContains(t, err, `the path "../foo-corp" contains .. or a control character`)
}
