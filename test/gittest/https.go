package gittest

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/controlplane"
)

// HTTPS describes a server of repositories over HTTPS.
type HTTPS struct {
	// Username and Password are what basic authentication demands, and Token what bearer authentication demands. All
	// empty means that the server demands no credentials.
	Username, Password, Token string
	// Wrap returns a handler in front of Git's, or is nil.
	Wrap func(git http.Handler) http.Handler
	// Expired makes the server present a certificate that has expired.
	Expired bool
	// Address is the host:port of the server. Empty means a free port of 127.0.0.1.
	Address string
}

// HTTPSServer is a running server.
type HTTPSServer struct {
	// URL is the address of the directory, without a slash at the end.
	URL string
	// CA is the certificate of the authority that signed the server's, in PEM format.
	CA []byte

	server *httptest.Server
}

// ServeHTTPS serves the bare repositories in a directory by git http-backend until the test ends.
func ServeHTTPS(t testing.TB, root string, o HTTPS) *HTTPSServer {
	t.Helper()
	server, err := StartHTTPS(t.Context(), root, o)
	require.NoError(t, err)
	t.Cleanup(server.Close)
	return server
}

// StartHTTPS serves the bare repositories in a directory by git http-backend until the server is closed. ctx limits the
// start only.
func StartHTTPS(ctx context.Context, root string, o HTTPS) (*HTTPSServer, error) {
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, err
	}
	var handler http.Handler = &cgi.Handler{
		Path: git, Args: []string{"http-backend"}, Dir: root,
		Env:    append([]string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"}, environment...),
		Stderr: io.Discard, Logger: log.New(io.Discard, "", 0),
	}
	if o.Wrap != nil {
		handler = o.Wrap(handler)
	}
	listener, err := listen(ctx, o.Address)
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(24 * time.Hour)
	if o.Expired {
		until = time.Now().Add(-time.Minute)
	}
	address := listener.Addr().(*net.TCPAddr).IP.String()
	certificate, ca, err := controlplane.ServingCertificate(until, address, "localhost", ExampleHost)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	server := httptest.NewUnstartedServer(o.authenticate(handler))
	server.Listener.Close()
	server.Listener = listener
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	return &HTTPSServer{URL: server.URL, CA: ca, server: server}, nil
}

// Close ends all connections and stops the server.
func (s *HTTPSServer) Close() {
	s.server.CloseClientConnections()
	s.server.Close()
}

// listen listens at a host:port, or at a free port of 127.0.0.1.
func listen(ctx context.Context, address string) (net.Listener, error) {
	if address == "" {
		address = "127.0.0.1:0"
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", address)
}

// authenticate answers 401 to requests without the credentials.
func (o HTTPS) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		username, password, _ := r.BasicAuth()
		if username != o.Username || password != o.Password ||
			o.Token != "" && r.Header.Get("Authorization") != "Bearer "+o.Token {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ExampleHost is a name of the server, which the certificate contains. It cannot be resolved, so that only a proxy
// reaches the server by it.
const ExampleHost = "git.example.com"
