package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// proxy stands between one replica and the API server. It passes requests on with the sender's own bearer token, and
// has a judge say what becomes of each. A write that has arrived here is passed on even if its sender has died, as the
// network would.
type proxy struct {
	*judge
	address  string // host:port
	server   *http.Server
	ended    chan error
	upstream http.RoundTripper
	target   *url.URL
	// deeds do what a verdict says, and return when it is done.
	deeds map[deed]func()

	// leaseWritten is when a write to a lease was last passed on, in nanoseconds, and writes counts what else was
	// written.
	leaseWritten, writes atomic.Int64
	// underWay is how many writes have arrived here and not at the API server.
	underWay atomic.Int64

	mu          sync.Mutex
	connections map[net.Conn]struct{}
}

// newProxy serves at 127.0.0.1 with a certificate, and passes on to the API server of a configuration.
func newProxy(certificate tls.Certificate, config *rest.Config, j *judge) (*proxy, error) {
	config = rest.AnonymousClientConfig(config)
	upstream, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{
		judge: j, address: listener.Addr().String(), ended: make(chan error, 1), upstream: upstream, target: target,
		deeds: map[deed]func(){}, connections: map[net.Conn]struct{}{},
	}
	p.server = &http.Server{
		Handler: p, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}},
		ConnState: p.track,
	}
	go func() { p.ended <- p.server.ServeTLS(listener, "", "") }()
	return p, nil
}

func (p *proxy) close() error {
	err := p.server.Close()
	if ended := <-p.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// track keeps the connections, and resets those that begin while the network is cut.
func (p *proxy) track(connection net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch state {
	case http.StateNew:
		p.connections[connection] = struct{}{}
		if f, _ := p.now(); f.cut {
			_ = connection.Close()
		}
	case http.StateClosed, http.StateHijacked:
		delete(p.connections, connection)
	default:
	}
}

// cutConnections ends all connections. While the fault says so, new ones end as they begin.
func (p *proxy) cutConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for connection := range p.connections {
		_ = connection.Close()
	}
}

// ServeHTTP does with a request as the judge says.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parsed := parse(r)
	v := p.decide(parsed)
	if v.hang {
		p.hang(r.Context())
		panic(http.ErrAbortHandler)
	}
	if !v.after {
		p.do(v.do)
		if v.do != nothing && v.do != suspend {
			panic(http.ErrAbortHandler)
		}
		if v.answer != 0 {
			answer(w, v.answer)
			return
		}
	}
	if r.Method == http.MethodGet {
		p.read(w, r, parsed, v)
		return
	}
	p.write(w, r, parsed, v)
}

func (p *proxy) hang(ctx context.Context) {
	_, over := p.now()
	select {
	case <-ctx.Done():
	case <-over:
	}
}

func (p *proxy) do(d deed) {
	if do := p.deeds[d]; do != nil {
		do()
	}
}

// write passes a write on, whatever becomes of its sender meanwhile.
func (p *proxy) write(w http.ResponseWriter, r *http.Request, parsed request, v verdict) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // it has not arrived as a whole
	}
	p.underWay.Add(1)
	defer p.underWay.Add(-1)
	ctx := context.WithoutCancel(r.Context())
	pause(ctx, v.late)
	out := r.Clone(ctx)
	out.Body, out.RequestURI = io.NopCloser(bytes.NewReader(body)), ""
	out.URL.Scheme, out.URL.Host, out.Host = p.target.Scheme, p.target.Host, p.target.Host
	if parsed.isWrite() {
		p.writes.Add(1)
	}
	response, err := p.upstream.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if parsed.isLeaseWrite() && response.StatusCode < http.StatusMultipleChoices {
		p.leaseWritten.Store(time.Now().UnixNano())
	}
	defer response.Body.Close()
	answered, err := io.ReadAll(response.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if v.after {
		p.do(v.do)
		answer(w, v.answer)
		return
	}
	pause(r.Context(), v.lateAnswer)
	maps.Copy(w.Header(), response.Header)
	w.WriteHeader(response.StatusCode)
	_, _ = w.Write(answered) // whoever asked may be gone
}

// answer tells the sender of a request that it failed.
func answer(w http.ResponseWriter, code int) {
	if code == reset || code == 0 {
		panic(http.ErrAbortHandler)
	}
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Message: "a fault was injected", Reason: reasons[code],
	}
	w.Header().Set("Content-Type", "application/json")
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status) // whoever asked may be gone
}

var reasons = map[int]metav1.StatusReason{
	http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
	http.StatusGone:                metav1.StatusReasonExpired,
}

// read passes on what only reads. What a watch tells may come late, and a watch may be cut.
func (p *proxy) read(w http.ResponseWriter, r *http.Request, parsed request, v verdict) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if v.ends > 0 {
		timer := time.AfterFunc(v.ends, cancel)
		defer timer.Stop()
	}
	passed := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(p.target) },
		Transport:     p.upstream,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	if parsed.watch {
		passed.ModifyResponse = func(response *http.Response) error {
			response.Body = newLateBody(ctx, response.Body, func() time.Duration {
				f, _ := p.now()
				return f.delays(parsed)
			})
			return nil
		}
	}
	passed.ServeHTTP(w, r.WithContext(ctx))
}

// pause returns after a time, or when ctx is done.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// lateBody is a body of which every part is there some time after it came.
type lateBody struct {
	io.Closer
	ctx   context.Context
	parts <-chan part
	rest  []byte
}

type part struct {
	content []byte
	due     time.Time
	err     error
}

// newLateBody asks for the delay of each part when it comes. It reads on meanwhile, until ctx is done.
func newLateBody(ctx context.Context, body io.ReadCloser, delay func() time.Duration) *lateBody {
	parts := make(chan part, 10000)
	go func() {
		defer close(parts)
		for {
			content := make([]byte, 32<<10)
			n, err := body.Read(content)
			select {
			case parts <- part{content[:n], time.Now().Add(delay()), err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return &lateBody{Closer: body, ctx: ctx, parts: parts}
}

// Read waits until the next part is due.
func (b *lateBody) Read(into []byte) (int, error) {
	for len(b.rest) == 0 {
		select {
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		case next, ok := <-b.parts:
			if !ok {
				return 0, io.EOF
			}
			pause(b.ctx, time.Until(next.due))
			b.rest = next.content
			if len(next.content) == 0 && next.err != nil {
				return 0, next.err
			}
		}
	}
	n := copy(into, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}
