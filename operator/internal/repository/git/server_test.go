package git_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gliderlabs/ssh"
	"github.com/stretchr/testify/require"
	cryptossh "golang.org/x/crypto/ssh"

	"nstpl.dev/nstpl/operator/internal/repository/git"
	"nstpl.dev/nstpl/test/gittest"
)

// status returns a handler that always answers with a status.
func status(code int) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
	}
}

// onPost returns a handler for requests of objects, in front of Git's.
func onPost(answer func(w http.ResponseWriter, r *http.Request, git http.Handler)) func(http.Handler) http.Handler {
	return func(git http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				answer(w, r, git)
			} else {
				git.ServeHTTP(w, r)
			}
		})
	}
}

// hang waits until the client goes away.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice
	<-r.Context().Done()
}

// cut sends the first half of an answer and then closes the connection.
func cut(w http.ResponseWriter, r *http.Request, git http.Handler) {
	recorder := httptest.NewRecorder()
	git.ServeHTTP(recorder, r)
	w.Header().Set("Content-Type", recorder.Header().Get("Content-Type"))
	_, _ = w.Write(recorder.Body.Bytes()[:recorder.Body.Len()/2])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func TestServerFails(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		server gittest.HTTPS
		change func(s *served)
		reason git.Reason
		want   string
	}{
		"401 without credentials": {
			gittest.HTTPS{Username: "u", Password: "p"},
			func(s *served) { delete(s.options.Secret, "username"); delete(s.options.Secret, "password") },
			git.AccessDenied, "/policies.git demands credentials (status 401), or does not exist: set secretRef",
		},
		"401 with wrong credentials": {
			gittest.HTTPS{Username: "u", Password: "p"},
			func(s *served) { s.options.Secret["password"] = []byte("hunter2") },
			git.AccessDenied, "/policies.git rejects the credentials of the Secret (status 401): check",
		},
		"401 with a wrong token": {
			gittest.HTTPS{Token: "t"}, func(s *served) { s.options.Secret["bearerToken"] = []byte("hunter2") },
			git.AccessDenied, "rejects the credentials of the Secret (status 401)",
		},
		"403": {gittest.HTTPS{Wrap: status(403)}, nil, git.AccessDenied, "cannot be read with the credentials"},
		"404": {gittest.HTTPS{Wrap: status(404)}, nil, git.NotFound, "does not exist, or its existence is hidden"},
		"no such repository": {
			gittest.HTTPS{}, func(s *served) { s.options.URL += "x" }, git.NotFound, "/policies.gitx does not exist",
		},
		"429": {gittest.HTTPS{Wrap: status(429)}, nil, git.Unreachable, "too many requests (status 429)"},
		"500": {gittest.HTTPS{Wrap: status(500)}, nil, git.Unreachable, "an error of the server (status 500)"},
		"204": {gittest.HTTPS{Wrap: status(204)}, nil, git.Unreachable, "the unexpected status 204"},
		"a page of HTML": {gittest.HTTPS{Wrap: func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") })
		}}, nil, git.Unreachable, "/policies.git does not answer as a Git repository"},
		"not Git's protocol": {gittest.HTTPS{Wrap: func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
				_, _ = io.WriteString(w, "hello world")
			})
		}}, nil, git.Unreachable, "/policies.git does not answer as a Git repository"},
		"an error in Git's protocol": {gittest.HTTPS{Wrap: func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
				_, _ = io.WriteString(w, "0023ERR access \x1b[31mto x is blocked\n")
			})
		}}, nil, git.NotFound, "the server says: access [31mto x is blocked"},
		"the connection is cut": {gittest.HTTPS{Wrap: func(http.Handler) http.Handler {
			return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		}}, nil, git.Unreachable, "the connection to 127.0.0.1 was cut before the answer was complete"},
		"the list of references is cut": {gittest.HTTPS{Wrap: func(git http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { cut(w, r, git) })
		}}, nil, git.Unreachable, "the connection to 127.0.0.1 was cut before the answer was complete"},
		"the server hangs": {
			gittest.HTTPS{Wrap: func(http.Handler) http.Handler { return http.HandlerFunc(hang) }},
			nil, git.Unreachable, "127.0.0.1 did not answer completely in time",
		},
		"the list of references hangs": {gittest.HTTPS{Wrap: func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
				_, _ = io.WriteString(w, "001e# service=git-upload-pack\n")
				_ = http.NewResponseController(w).Flush()
				hang(w, r)
			})
		}}, nil, git.Unreachable, "127.0.0.1 did not answer completely in time"},
		"an expired certificate": {
			gittest.HTTPS{Expired: true}, nil,
			git.UntrustedServer, "the certificate of 127.0.0.1 has expired or is not valid yet: it is valid from 20",
		},
		"an unknown authority": {
			gittest.HTTPS{}, func(s *served) { delete(s.options.Secret, "ca.crt") },
			git.UntrustedServer, "is signed by an unknown authority: put the authority's certificate into ca.crt",
		},
		"a redirect to another server": {gittest.HTTPS{Wrap: func(http.Handler) http.Handler {
			return http.RedirectHandler("https://example.com/x.git/info/refs?service=git-upload-pack",
				http.StatusMovedPermanently)
		}}, nil, git.InvalidConfiguration,
			"/policies.git redirects to another server: change the URL of the repository to https://example.com/x.git,"},
		"a redirect to http": {gittest.HTTPS{Wrap: func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://"+r.Host+r.URL.Path, http.StatusFound)
			})
		}}, nil, git.InvalidConfiguration, "redirects to another server"},
		"a redirect to itself": {gittest.HTTPS{Wrap: func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, r.URL.String(), http.StatusFound)
			})
		}}, nil, git.Unreachable, "redirects more than 5 times"},
		"the objects hang": {
			gittest.HTTPS{Wrap: onPost(func(w http.ResponseWriter, r *http.Request, _ http.Handler) { hang(w, r) })},
			nil, git.Unreachable, "127.0.0.1 did not answer completely in time",
		},
		"the objects are cut": {
			gittest.HTTPS{Wrap: onPost(cut)}, nil,
			git.Unreachable, "the connection to 127.0.0.1 was cut before the answer was complete",
		},
		"no objects": {gittest.HTTPS{Wrap: onPost(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		})}, nil, git.Unreachable, "the connection to 127.0.0.1 was cut before the answer was complete"},
		"objects that are corrupt": {
			gittest.HTTPS{Wrap: onPost(func(w http.ResponseWriter, r *http.Request, git http.Handler) {
				recorder := httptest.NewRecorder()
				git.ServeHTTP(recorder, r)
				w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
				content := recorder.Body.Bytes()
				at := bytes.Index(content, []byte("PACK")) + 20
				content[at] ^= 0xff
				_, _ = w.Write(content)
			})},
			nil, git.Unreachable, "/policies.git ",
		},
		"the request for objects is redirected": {
			gittest.HTTPS{Wrap: onPost(func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				http.Redirect(w, r, r.URL.String()+"?x", http.StatusTemporaryRedirect)
			})},
			nil, git.Unreachable, "redirects a request for objects",
		},
		"500 for the objects": {
			gittest.HTTPS{Wrap: onPost(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
				w.WriteHeader(http.StatusInternalServerError)
			})},
			nil, git.Unreachable, "an error of the server (status 500)",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, test.server)
			if test.change != nil {
				test.change(s)
			}
			s.Commit(t, gittest.Commit{Files: fooCorp()})
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			if strings.Contains(name, "hang") {
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			}
			defer cancel()
			remote := s.remote(t)
			hash, err := remote.Resolve(ctx)
			if err == nil {
				_, err = remote.Fetch(ctx, hash)
			}
			requireError(t, err, test.reason, test.want)
			require.NotContains(t, err.Error(), "hunter2")
			requireEmpty(t, s.options.Dir)
		})
	}
}

// A request that is canceled is not reported as a failure of the server.
func TestCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := serve(t, gittest.HTTPS{Wrap: func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			cancel()
			hang(w, r)
		})
	}})
	_, err := s.remote(t).Resolve(ctx)
	require.Equal(t, context.Canceled, err)
}

// No server gets the credentials of another, even if it asks for them.
func TestRedirects(t *testing.T) {
	t.Parallel()
	var leaked atomic.Bool
	thief := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { leaked.Store(true) }))
	defer thief.Close()
	var target atomic.Value
	s := serve(t, gittest.HTTPS{Username: "u", Password: "p", Wrap: func(git http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if rest, old := strings.CutPrefix(r.URL.Path, "/old.git"); old {
				http.Redirect(w, r, target.Load().(string)+rest+"?"+r.URL.RawQuery, http.StatusMovedPermanently)
				return
			}
			git.ServeHTTP(w, r)
		})
	}})
	s.Commit(t, gittest.Commit{Files: fooCorp()})
	s.options.URL = strings.Replace(s.options.URL, "policies.git", "old.git", 1)

	target.Store(thief.URL + "/policies.git")
	_, err := s.remote(t).Resolve(t.Context())
	requireError(t, err, git.InvalidConfiguration, "redirects to another server")
	require.False(t, leaked.Load())

	target.Store("/policies.git") // a repository that was renamed
	require.Equal(t, fooCorp(), contents(t, fetch(t, s.remote(t)), "."))
}

func TestSSHServerFails(t *testing.T) {
	t.Parallel()
	other := gittest.NewKey(t, "")
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ecdsaKey, err := cryptossh.NewPublicKey(&curve.PublicKey)
	require.NoError(t, err)
	tests := map[string]struct {
		server gittest.SSH
		change func(s *served)
		reason git.Reason
		want   string
	}{
		"another key of the user": {
			gittest.SSH{}, func(s *served) { s.options.Secret["identity"] = other.Private },
			git.AccessDenied,
			"127.0.0.1 rejects the private key of the Secret for the user git: register its public key",
		},
		"another host key": {
			gittest.SSH{}, func(s *served) {
				host, _, _ := strings.Cut(string(s.options.Secret["known_hosts"]), " ")
				s.options.Secret["known_hosts"] = []byte(host + " " + string(other.Authorized))
			},
			git.UntrustedServer,
			"which is not the one in known_hosts: either the server has a new key, or another server",
		},
		"an unknown host": {
			gittest.SSH{}, func(s *served) {
				s.options.Secret["known_hosts"] = []byte("example.com " + string(other.Authorized))
			},
			git.UntrustedServer, "known_hosts has no key of [127.0.0.1]:",
		},
		"a revoked host key": {
			gittest.SSH{}, func(s *served) {
				known := s.options.Secret["known_hosts"]
				s.options.Secret["known_hosts"] = append([]byte("@revoked "+string(known)), known...)
			},
			git.UntrustedServer, "is revoked in known_hosts",
		},
		"a host key of another type": {
			gittest.SSH{}, func(s *served) {
				host, _, _ := strings.Cut(string(s.options.Secret["known_hosts"]), " ")
				s.options.Secret["known_hosts"] = []byte(host + " " + string(cryptossh.MarshalAuthorizedKey(ecdsaKey)))
			},
			git.UntrustedServer, "127.0.0.1 has no host key of the types in known_hosts",
		},
		"no such repository": {
			gittest.SSH{}, func(s *served) { s.options.URL += "x" },
			git.NotFound, "cannot be read: the server says: fatal: '",
		},
		"a path with quotes": {
			gittest.SSH{}, func(s *served) { s.options.URL += "'%20%21;id" },
			git.NotFound, "policies.git' !;id' does not appear to be a git repository",
		},
		"the server hangs": {
			gittest.SSH{UploadPack: func(session ssh.Session, _ string) { <-session.Context().Done() }}, nil,
			git.Unreachable, "127.0.0.1 did not answer completely in time",
		},
		"the connection is cut": {
			gittest.SSH{UploadPack: func(session ssh.Session, _ string) {
				_, _ = io.WriteString(session, "00a0")
				conn := session.Context().Value(ssh.ContextKeyConn).(io.Closer)
				conn.Close()
			}}, nil,
			git.Unreachable, "the connection to 127.0.0.1 was cut before the answer was complete",
		},
		"a message and nothing else": {
			gittest.SSH{UploadPack: func(session ssh.Session, _ string) {
				_, _ = io.WriteString(session.Stderr(), "remote: \nremote: \x1b[31mThis repository moved.\nremote: x\n")
				_ = session.Exit(1)
			}}, nil,
			git.NotFound, "the server says: [31mThis repository moved.",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveSSH(t, test.server)
			if test.change != nil {
				test.change(s)
			}
			s.Commit(t, gittest.Commit{Files: fooCorp()})
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			if strings.Contains(name, "hang") {
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			}
			defer cancel()
			_, err := s.remote(t).Resolve(ctx)
			requireError(t, err, test.reason, test.want)
			requireEmpty(t, s.options.Dir)
		})
	}
}

// The handshake with a server that accepts connections and says nothing ends, too.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	key := gittest.NewKey(t, "")
	for url, secret := range map[string]map[string][]byte{
		"https://" + listener.Addr().String() + "/x": nil,
		"ssh://git@" + listener.Addr().String() + "/x": {
			"identity": key.Private, "known_hosts": []byte("example.com " + string(key.Authorized)),
		},
	} {
		remote, err := git.New(git.Options{
			URL: url, Secret: secret, Reference: git.Reference{Branch: "main"}, Dir: t.TempDir(),
		})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err = remote.Resolve(ctx)
		cancel()
		requireError(t, err, git.Unreachable, "127.0.0.1 did not answer completely in time")
	}
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	listener.Close()
	for url, want := range map[string]string{
		"https://" + address + "/x":   "the connection to " + address + " was refused",
		"https://nothing.invalid/x.y": "the host name nothing.invalid cannot be resolved",
	} {
		remote, err := git.New(git.Options{URL: url, Reference: git.Reference{Branch: "main"}, Dir: t.TempDir()})
		require.NoError(t, err)
		_, err = remote.Resolve(t.Context())
		requireError(t, err, git.Unreachable, want)
	}
}
