package hint

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

// newServer returns a server that knows the tokens of one PolicyRepository, and of another whose Secret is missing.
func newServer(t *testing.T) *Server {
	t.Helper()
	s := &Server{Results: NewResults(prometheus.NewRegistry())}
	s.init()
	t.Cleanup(s.requests.queue.ShutDown)
	s.tokens.set("foo-corp", entry{token: []byte(githubToken)})
	s.tokens.set("bar-corp", entry{problem: "the Secret does not exist"})
	return s
}

// zeros is a body without an end.
type zeros struct{}

func (zeros) Read(part []byte) (int, error) {
	clear(part)
	return len(part), nil
}

func TestHints(t *testing.T) {
	t.Parallel()
	const rejection = "the signature is missing or wrong, or no PolicyRepository of this name takes hints\n"
	signed := map[string]string{"X-Hub-Signature-256": "sha256=" + githubSum}
	for name, test := range map[string]struct {
		method, path string
		headers      map[string]string
		body         io.Reader
		status       int
		text, result string
	}{
		"signed": {
			"", "/hint/foo-corp", signed, nil, 202, "the newest commit will be fetched\n", resultAccepted,
		},
		"unsigned": {"", "/hint/foo-corp", nil, nil, 401, rejection, resultRejected},
		"wrong signature": {
			"", "/hint/foo-corp", map[string]string{"X-Signature": "sha256=00"}, nil, 401, rejection, resultRejected,
		},
		"unknown":           {"", "/hint/unknown", signed, nil, 401, rejection, resultRejected},
		"unknown, unsigned": {"", "/hint/unknown", nil, nil, 401, rejection, resultRejected},
		"no token":          {"", "/hint/bar-corp", signed, nil, 401, rejection, resultRejected},
		"empty token": {"", "/hint/bar-corp", map[string]string{
			"X-Signature":    "sha256=2bbcfa9524f3218c7a34b30e6936f8b1a4516cb097f1a85a1c7d98b5977ec769",
			"X-Gitlab-Token": "",
		}, nil, 401, rejection, resultRejected},
		"escaped name": {"", "/hint/..%2Fhint%2Ffoo-corp", signed, nil, 401, rejection, resultRejected},
		"a large body": {
			"", "/hint/foo-corp", signed, io.LimitReader(zeros{}, maxBody), 401, rejection, resultRejected,
		},
		"too large a body": {
			"", "/hint/foo-corp", signed, zeros{}, 413, "the body has more than 25 MiB\n", resultUnread,
		},
		"too large, unknown": {
			"", "/hint/unknown", signed, zeros{}, 413, "the body has more than 25 MiB\n", resultUnread,
		},
		"another method": {"GET", "/hint/foo-corp", signed, nil, 405, "Method Not Allowed\n", ""},
		"another path":   {"", "/hint/foo-corp/x", signed, nil, 404, "404 page not found\n", ""},
		"no name":        {"", "/hint/", signed, nil, 404, "404 page not found\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			address := start(t, s)
			if test.body == nil {
				test.body = strings.NewReader(githubBody)
			}
			method := test.method
			if method == "" {
				method = http.MethodPost
			}
			request, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+test.path, test.body)
			require.NoError(t, err)
			for name, value := range test.headers {
				request.Header.Set(name, value)
			}
			response, err := http.DefaultClient.Do(request)
			require.NoError(t, err)
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.Equal(t, test.status, response.StatusCode)
			require.Equal(t, test.text, string(text))
			for _, result := range []string{resultAccepted, resultRejected, resultUnread} {
				want := 0.0
				if result == test.result {
					want = 1
				}
				metric := &dto.Metric{}
				require.NoError(t, s.Results.WithLabelValues(result).Write(metric))
				require.InDelta(t, want, metric.GetCounter().GetValue(), 0, result)
			}
			require.Equal(t, test.result == resultAccepted, s.requests.begin("foo-corp"))
		})
	}
}

// start serves without writing to an API server, and returns the address.
func start(t *testing.T, s *Server) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := s.server()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
	return listener.Addr().String()
}

// A client that sends its request slowly, or a large header, is cut off, and a connection serves one request.
func TestClientsAreLimited(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	server := s.server()
	require.Positive(t, server.ReadHeaderTimeout)
	require.Positive(t, server.ReadTimeout)
	require.Positive(t, server.WriteTimeout)
	address := start(t, s)
	send := func(text string) (answer string) {
		t.Helper()
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		defer connection.Close()
		_, err = io.WriteString(connection, text)
		require.NoError(t, err)
		line, err := bufio.NewReader(connection).ReadString('\n')
		require.NoError(t, err)
		rest, err := io.ReadAll(connection) // until the server closes the connection
		require.NoError(t, err)
		require.NotContains(t, string(rest), "HTTP/1.1 ", "there is no second answer")
		return strings.TrimSpace(line)
	}
	request := "POST /hint/unknown HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
	require.Equal(t, "HTTP/1.1 401 Unauthorized", send(request+"\r\n"+request+"\r\n"))
	require.Equal(t, "HTTP/1.1 431 Request Header Fields Too Large",
		send(request+"X-Signature: sha256="+strings.Repeat("0", maxHeader+8<<10)+"\r\n\r\n"))
}

// At most so many clients are served at the same time. The others wait, and serve returns when ctx is done.
func TestConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	counted := &countingListener{Listener: listener, accepted: make(chan struct{}, 2*maxConnections)}
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx, counted) }()
	var connections []net.Conn
	for range maxConnections + 10 {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
		require.NoError(t, err)
		connections = append(connections, connection)
	}
	for range maxConnections {
		<-counted.accepted
	}
	require.Empty(t, counted.accepted)
	require.NoError(t, connections[0].Close())
	<-counted.accepted
	for _, connection := range connections[1:] {
		require.NoError(t, connection.Close())
	}
	stop()
	require.NoError(t, <-ended)
}

// countingListener reports each connection that a server has accepted.
type countingListener struct {
	net.Listener
	accepted chan struct{}
}

func (l *countingListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err == nil {
		l.accepted <- struct{}{}
	}
	return connection, err
}
