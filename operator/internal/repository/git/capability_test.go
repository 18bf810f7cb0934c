package git_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/internal/repository/git"
	"nstpl.dev/nstpl/test/gittest"
)

// capabilities removes capabilities from the list of references, and reports what is requested.
func capabilities(requested *atomic.Value, removed ...string) func(http.Handler) http.Handler {
	return func(git http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				body, _ := io.ReadAll(r.Body)
				requested.Store(string(body))
				r.Body = io.NopCloser(bytes.NewReader(body))
				git.ServeHTTP(w, r)
				return
			}
			recorder := httptest.NewRecorder()
			git.ServeHTTP(recorder, r)
			w.Header().Set("Content-Type", recorder.Header().Get("Content-Type"))
			answer := recorder.Body.String()
			for _, capability := range removed {
				// A word of the same length that no client knows.
				for _, before := range []string{" ", "\x00"} {
					answer = strings.ReplaceAll(answer, before+capability+" ",
						before+strings.Repeat("x", len(capability))+" ")
				}
			}
			_, _ = io.WriteString(w, answer)
		})
	}
}

// A server without shallow clones sends the history with each commit, which says nothing about the commit.
func TestHistoryThatIsTooLarge(t *testing.T) {
	t.Parallel()
	var requested atomic.Value
	s := serve(t, gittest.HTTPS{Wrap: capabilities(&requested, "shallow")})
	s.Commit(t, gittest.Commit{Files: map[string]string{"a": random(2 << 20)}})
	hash := s.Commit(t, gittest.Commit{Files: map[string]string{"a": "1"}})
	s.maxBytes = 1 << 20
	_, err := s.remote(t).Fetch(t.Context(), hash)
	requireError(t, err, git.LimitExceeded, "has more than 1 MiB in compressed form: keep policies in a repository")
	require.ErrorIs(t, err, git.ErrBesides)
}

func TestCapabilities(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		removed []string
		want    []string
		not     []string
	}{
		"all": {nil, []string{" multi_ack_detailed ", " side-band-64k ", "deepen 1\n"}, []string{"have "}},
		// Azure DevOps rejects requests without one of the two.
		"no multi_ack_detailed": {
			[]string{"multi_ack_detailed"}, []string{" multi_ack "}, []string{"multi_ack_detailed"},
		},
		"no multi_ack":        {[]string{"multi_ack_detailed", "multi_ack"}, nil, []string{"multi_ack"}},
		"no shallow":          {[]string{"shallow"}, nil, []string{"deepen"}},
		"no deltas by offset": {[]string{"ofs-delta"}, nil, []string{"ofs-delta"}},
		"nothing": {
			[]string{"multi_ack_detailed", "multi_ack", "shallow", "ofs-delta", "no-progress"},
			nil, []string{"multi_ack", "deepen", "ofs-delta", "no-progress"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requested atomic.Value
			s := serve(t, gittest.HTTPS{Wrap: capabilities(&requested, test.removed...)})
			text := strings.Repeat("some lines of text that make a delta worth while\n", 100)
			s.Commit(t, gittest.Commit{Files: map[string]string{"a": text}})
			want := map[string]string{"a": text + "1", "b": text + "2", "c": "x" + text}
			s.Commit(t, gittest.Commit{Files: want})
			s.Git(t, "repack", "-adfq")
			require.Equal(t, want, contents(t, fetch(t, s.remote(t)), "."))
			for _, part := range test.want {
				require.Contains(t, requested.Load(), part)
			}
			for _, part := range test.not {
				require.NotContains(t, requested.Load(), part)
			}
		})
	}
}

// A proxy of the environment is used for https, and does not see what is requested.
func TestProxy(t *testing.T) {
	var tunnels atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tunnels.Add(1)
		username, password, _ := proxyAuth(r)
		if r.Method != http.MethodConnect || username != "proxy" || password != "secret" {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		upstream, err := new(net.Dialer).DialContext(r.Context(), "tcp",
			strings.Replace(r.Host, "git.test", "127.0.0.1", 1))
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer upstream.Close()
		client, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer client.Close()
		_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(upstream, client) }()
		_, _ = io.Copy(client, upstream)
	}))
	defer proxy.Close()
	s := serve(t, gittest.HTTPS{})
	s.Commit(t, gittest.Commit{Files: fooCorp()})
	// Proxies are not used for 127.0.0.1 and localhost. The certificate is not for this name.
	s.options.URL = strings.Replace(s.options.URL, "127.0.0.1", "git.test", 1)
	at, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	at.User = url.UserPassword("proxy", "secret")
	t.Setenv("HTTPS_PROXY", at.String())
	t.Setenv("NO_PROXY", "")
	_, err = s.remote(t).Resolve(t.Context())
	requireError(t, err, git.UntrustedServer, "the certificate of git.test is for other names")
	require.Equal(t, int32(1), tunnels.Load())

	at.User = url.UserPassword("proxy", "wrong-secret")
	t.Setenv("HTTPS_PROXY", at.String())
	_, err = s.remote(t).Resolve(t.Context())
	requireError(t, err, git.AccessDenied, "the HTTPS proxy demands other credentials for git.test")
	require.NotContains(t, err.Error(), "wrong-secret")
}

// proxyAuth returns the credentials for the proxy.
func proxyAuth(r *http.Request) (string, string, bool) {
	header := http.Header{"Authorization": r.Header["Proxy-Authorization"]}
	return (&http.Request{Header: header}).BasicAuth()
}
