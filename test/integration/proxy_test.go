package integration_test

import (
	"encoding/pem"
	"io"
	"log"
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
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"nstpl.dev/nstpl/test/operator"
)

// proxy stands between one operator and the API server.
type proxy struct {
	// name is the user agent that the API server writes down.
	name string
	// kubeconfig has the operator connect to the proxy. It is the operator's flag.
	kubeconfig string

	mu sync.Mutex
	// gate is what watches that begin now pass.
	gate *gate
	// closed are gates that are to be opened.
	closed []*gate
	// isCut says that nothing is answered, and isReady when the operator was last told that the API server is ready.
	disconnected bool
	lastReady    time.Time
	// writes are the requests that change something, and watches those that watch, whether they were answered or not.
	writes, watches []proxiedRequest

	server *httptest.Server
}

type proxiedRequest struct {
	at   time.Time
	path string
}

// gate lets watches pass or holds them back.
type gate struct {
	mu sync.Mutex
	// opened is nil if the gate is open.
	opened chan struct{}
}

// newProxy returns a proxy that passes everything on until the test ends.
func newProxy(t *testing.T, cluster *testCluster, name string) *proxy {
	t.Helper()
	p := &proxy{name: name, gate: &gate{}}
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
				r.Body = p.gatedBody(r.Body)
			}
			if r.Request.URL.Path == "/readyz" && r.StatusCode == http.StatusOK {
				p.mu.Lock()
				p.lastReady = time.Now()
				p.mu.Unlock()
			}
			return nil
		},
		// the client sees what the proxy sees
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
		if p.noteRequest(r) {
			panic(http.ErrAbortHandler)
		}
		pass.ServeHTTP(response, r)
	}))
	p.server = server
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // operators that are killed break connections
	server.StartTLS()
	t.Cleanup(func() {
		p.releaseWatches()
		server.CloseClientConnections()
		server.Close()
	})
	path := filepath.Join(cluster.dir, name+".kubeconfig")
	require.NoError(t,
		operator.WriteKubeconfig(t.Context(), cluster.controlPlane, path, func(cluster *clientcmdapi.Cluster) {
			cluster.Server = server.URL
			cluster.CertificateAuthority = ""
			cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{
				Type: "CERTIFICATE", Bytes: server.Certificate().Raw,
			})
		}))
	p.kubeconfig = "--kubeconfig=" + path
	return p
}

// noteRequest notes a request, and reports whether it is not to be answered.
func (p *proxy) noteRequest(r *http.Request) (isCut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case r.Method != http.MethodGet:
		p.writes = append(p.writes, proxiedRequest{time.Now(), r.URL.Path})
	case r.URL.Query().Get("watch") == "true":
		p.watches = append(p.watches, proxiedRequest{time.Now(), r.URL.Path})
	}
	return p.disconnected
}

// disconnect has no request answered from now on. The watches that there are go on.
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

// writesAfter returns the requests that change something in a namespace and came after a time; all if the namespace is
// empty.
func (p *proxy) writesAfter(namespace string, after time.Time) []proxiedRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []proxiedRequest
	for _, write := range p.writes {
		if write.at.After(after) && strings.Contains(write.path, "/namespaces/"+namespace) {
			found = append(found, write)
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

// lastReadyAnswer returns when the operator was last told that the API server is ready, since it was cut off; the zero
// time if it was not.
func (p *proxy) lastReadyAnswer() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastReady
}

// holdWatches keeps back what the watches tell that there are. Those that begin later pass.
func (p *proxy) holdWatches() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate.mu.Lock()
	p.gate.opened = make(chan struct{})
	p.gate.mu.Unlock()
	p.closed = append(p.closed, p.gate)
	p.gate = &gate{}
}

func (p *proxy) releaseWatches() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.closed {
		close(g.opened)
	}
	p.closed = nil
}

func (p *proxy) gatedBody(answer io.ReadCloser) gatedBody {
	p.mu.Lock()
	defer p.mu.Unlock()
	return gatedBody{ReadCloser: answer, gate: p.gate}
}

// gatedBody is the answer to a watch.
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

// sentBy tells the requests of the operator that connects to the proxy from all others.
func (p *proxy) sentBy(r request) bool { return r.UserAgent == p.name }
