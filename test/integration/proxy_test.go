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
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// proxy stands between one operator and the API server.
type proxy struct {
	// name is the user agent that the API server writes down.
	name string
	// kubeconfig has the operator connect to the proxy. It is the operator's flag.
	kubeconfig string

	mu sync.Mutex
	// held is closed when watches go on; nil if they are not held back.
	held chan struct{}
}

// newProxy returns a proxy that passes everything on until the test ends.
func newProxy(t *testing.T, w *world, name string) *proxy {
	t.Helper()
	p := &proxy{name: name}
	upstream, err := url.Parse(w.cluster.RESTConfig().Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(w.cluster.RESTConfig()))
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(upstream)
			r.Out.Header.Set("User-Agent", name)
		},
		ModifyResponse: func(r *http.Response) error {
			if r.Request.URL.Query().Get("watch") == "true" {
				r.Body = watched{ReadCloser: r.Body, proxy: p}
			}
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // the client sees what the proxy sees
	})
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // operators that are killed break connections
	server.StartTLS()
	t.Cleanup(func() {
		p.letWatchesGoOn()
		server.CloseClientConnections()
		server.Close()
	})
	config, err := clientcmd.LoadFromFile(w.operatorKubeconfig)
	require.NoError(t, err)
	for _, cluster := range config.Clusters {
		cluster.Server = server.URL
		cluster.CertificateAuthority = ""
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	}
	path := filepath.Join(w.dir, name+".kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	p.kubeconfig = "--kubeconfig=" + path
	return p
}

// holdWatches keeps back what watches tell from now on.
func (p *proxy) holdWatches() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = make(chan struct{})
}

func (p *proxy) letWatchesGoOn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

func (p *proxy) wait() {
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	if held != nil {
		<-held
	}
}

// watched is the answer to a watch.
type watched struct {
	io.ReadCloser
	proxy *proxy
}

func (w watched) Read(buffer []byte) (int, error) {
	n, err := w.ReadCloser.Read(buffer)
	w.proxy.wait()
	return n, err
}

// sentBy tells the requests of the operator that connects to the proxy from all others.
func (p *proxy) sentBy(r request) bool { return r.UserAgent == p.name }
