package integration_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"nstpl.dev/nstpl/test/operator"
)

// proxy is an HTTP proxy between one operator and the API server.
type proxy struct {
	// name is the user agent that the audit log shows.
	name string
	// kubeconfig is the operator's flag by which it connects to the proxy.
	kubeconfig string

	mu sync.Mutex
	// gates are those of the watches that exist or existed. closed are those that releaseWatches opens.
	gates, closed []*gate
	// disconnected means that no request is answered. lastReady is the time at which the operator was last told that
	// the API server is ready.
	disconnected bool
	lastReady    time.Time
	// heldPath ends the paths of writes that wait until released is closed. arrived is closed when the first waits.
	heldPath          string
	arrived, released chan struct{}
	// writes are the requests that change something, watches those that begin a watch, and reads all others, answered
	// or not.
	writes, watches, reads []proxiedRequest

	server *httptest.Server
}

type proxiedRequest struct {
	at   time.Time
	path string
}

// gate passes or delays the events of a watch.
type gate struct {
	path string

	mu sync.Mutex
	// opened is nil if the gate is open.
	opened chan struct{}
}

// newProxy returns a proxy that forwards all requests until the test ends.
func newProxy(t *testing.T, cluster *testCluster, name string) *proxy {
	t.Helper()
	p := &proxy{name: name}
	upstream, err := url.Parse(cluster.controlPlane.RESTConfig().Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(cluster.controlPlane.RESTConfig()))
	require.NoError(t, err)
	pass := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(upstream)
			r.Out.Header.Set("User-Agent", name)
		},
		ModifyResponse: func(r *http.Response) error {
			if r.Request.URL.Query().Get("watch") == "true" {
				r.Body = p.gatedBody(r.Body, r.Request.URL.Path)
			}
			if r.Request.URL.Path == "/readyz" && r.StatusCode == http.StatusOK {
				p.mu.Lock()
				p.lastReady = time.Now()
				p.mu.Unlock()
			}
			return nil
		},
		// the client sees a broken connection when the proxy does
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
		if p.noteRequest(r) {
			panic(http.ErrAbortHandler)
		}
		p.waitReleased(r)
		pass.ServeHTTP(response, r)
	}))
	p.server = server
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // killed operators break connections
	// Close waits for all requests, also for a watch that an operator which still runs has just begun.
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	server.StartTLS()
	t.Cleanup(func() {
		p.releaseWatches()
		end()
		server.CloseClientConnections()
		server.Close()
	})
	path := filepath.Join(cluster.dir, name+".kubeconfig")
	require.NoError(t, operator.WriteKubeconfig(t.Context(), cluster.controlPlane, path, server))
	p.kubeconfig = "--kubeconfig=" + path
	return p
}

// restartBehindProxy restarts the operator of a borrowed cluster, which connects to the returned proxy from now on.
func restartBehindProxy(t *testing.T, cluster *testCluster) *proxy {
	t.Helper()
	require.NoError(t, cluster.operator.Stop())
	through := newProxy(t, cluster, "late")
	require.NoError(t, cluster.startOperator(t.Context(), through.kubeconfig))
	return through
}

// noteRequest records a request, and reports whether the proxy must not answer it.
func (p *proxy) noteRequest(r *http.Request) (isCut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case r.Method != http.MethodGet:
		p.writes = append(p.writes, proxiedRequest{time.Now(), r.URL.Path})
	case r.URL.Query().Get("watch") == "true":
		p.watches = append(p.watches, proxiedRequest{time.Now(), r.URL.Path})
	default:
		p.reads = append(p.reads, proxiedRequest{time.Now(), r.URL.Path})
	}
	return p.disconnected
}

// holdWrites delays the writes whose paths end with a text, until release is called. arrived is closed once there is
// one.
func (p *proxy) holdWrites(path string) (arrived <-chan struct{}, release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heldPath, p.arrived, p.released = path, make(chan struct{}), make(chan struct{})
	return p.arrived, sync.OnceFunc(func() { close(p.released) })
}

// waitArrived waits for the first of the writes that holdWrites delays.
func waitArrived(t *testing.T, arrived <-chan struct{}) {
	t.Helper()
	select {
	case <-arrived:
	case <-time.After(time.Minute):
		require.FailNow(t, "no write has arrived at the proxy")
	}
}

// waitReleased returns when a request may go on.
func (p *proxy) waitReleased(r *http.Request) {
	p.mu.Lock()
	released := p.released
	isHeld := p.heldPath != "" && r.Method != http.MethodGet && strings.HasSuffix(r.URL.Path, p.heldPath)
	if isHeld {
		select {
		case <-p.arrived:
		default:
			close(p.arrived)
		}
	}
	p.mu.Unlock()
	if isHeld {
		select {
		case <-released:
		case <-r.Context().Done():
		}
	}
}

// disconnect stops answering new requests. Existing watches continue.
func (p *proxy) disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disconnected = true
}

func (p *proxy) reconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disconnected, p.lastReady = false, time.Time{}
}

// writesAfter returns the requests after a time that change something in a namespace, or in any if the namespace is
// empty.
func (p *proxy) writesAfter(namespace string, after time.Time) []proxiedRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return requestsAfter(p.writes, "/namespaces/"+namespace, after)
}

// readsAfter returns the reads after a time whose path contains a text.
func (p *proxy) readsAfter(path string, after time.Time) []proxiedRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return requestsAfter(p.reads, path, after)
}

func requestsAfter(requests []proxiedRequest, path string, after time.Time) []proxiedRequest {
	var found []proxiedRequest
	for _, request := range requests {
		if request.at.After(after) && strings.Contains(request.path, path) {
			found = append(found, request)
		}
	}
	return found
}

// watchesAfter returns the watches that began after a time.
func (p *proxy) watchesAfter(after time.Time) []proxiedRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := slices.IndexFunc(p.watches, func(watch proxiedRequest) bool { return watch.at.After(after) })
	if first < 0 {
		return nil
	}
	return slices.Clone(p.watches[first:])
}

// lastReadyAnswer returns the time at which the operator was last told that the API server is ready, or the zero time
// if that was not since reconnect.
func (p *proxy) lastReadyAnswer() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastReady
}

// holdWatches delays the events of the watches that exist and whose paths end with a text. It waits until there is one.
// Watches that begin later are not delayed.
func (p *proxy) holdWatches(t *testing.T, path string) {
	t.Helper()
	require.Eventually(t, func() bool { return p.closeGates(path) > 0 }, time.Minute, pollInterval)
}

// closeGates closes the gates of the watches whose paths end with a text, and returns how many these are.
func (p *proxy) closeGates(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.closed)
	p.gates = slices.DeleteFunc(p.gates, func(g *gate) bool {
		isHeld := strings.HasSuffix(g.path, path)
		if isHeld {
			g.mu.Lock()
			g.opened = make(chan struct{})
			g.mu.Unlock()
			p.closed = append(p.closed, g)
		}
		return isHeld
	})
	return len(p.closed) - before
}

func (p *proxy) releaseWatches() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.closed {
		close(g.opened)
	}
	p.closed = nil
}

func (p *proxy) gatedBody(answer io.ReadCloser, path string) gatedBody {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := &gate{path: path}
	p.gates = append(p.gates, own)
	return gatedBody{ReadCloser: answer, gate: own}
}

// gatedBody is the body of a watch's response, whose events pass a gate.
type gatedBody struct {
	io.ReadCloser
	gate *gate
}

func (w gatedBody) Read(buffer []byte) (int, error) {
	n, err := w.ReadCloser.Read(buffer)
	w.gate.mu.Lock()
	opened := w.gate.opened
	w.gate.mu.Unlock()
	if opened != nil {
		<-opened
	}
	return n, err
}

// sentBy reports whether a request was sent by the operator that connects to the proxy.
func (p *proxy) sentBy(r request) bool { return r.UserAgent == p.name }
