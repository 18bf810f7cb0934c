package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// proxy is an HTTP proxy between one replica and the API server. It forwards requests with the sender's own bearer
// token, and an injector decides what happens to each. Like a network, it forwards a write that has arrived even if its
// sender has ended.
type proxy struct {
	*injector
	server   *httptest.Server
	upstream http.RoundTripper
	target   *url.URL
	// actions perform an action, and return when it is done.
	actions map[action]func()

	// leaseWritten is the time of the last forwarded write of a lease, in nanoseconds.
	leaseWritten atomic.Int64
	// inFlight is the number of writes that have arrived here and are not answered by the API server yet.
	inFlight atomic.Int64
}

// newProxy returns a proxy that serves at 127.0.0.1, and forwards to the API server of a configuration.
func newProxy(config *rest.Config) (*proxy, error) {
	upstream, err := rest.TransportFor(rest.AnonymousClientConfig(config))
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	p := &proxy{injector: newInjector(), upstream: upstream, target: target, actions: map[action]func(){}}
	p.server = httptest.NewUnstartedServer(p)
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.server.Config.ConnState = func(connection net.Conn, state http.ConnState) {
		if f, _ := p.current(); f.cut && state == http.StateNew {
			_ = connection.Close()
		}
	}
	p.server.StartTLS()
	return p, nil
}

// close ends all connections: those that are in use, too, for which httptest waits.
func (p *proxy) close() error {
	defer p.server.Close()
	return p.server.Config.Close()
}

// ServeHTTP handles a request as the injector decides.
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
	_, over := p.current()
	select {
	case <-ctx.Done():
	case <-over:
	}
}

func (p *proxy) do(d action) {
	if do := p.actions[d]; do != nil {
		do()
	}
}

// write forwards a write, even if its sender ends meanwhile.
func (p *proxy) write(w http.ResponseWriter, r *http.Request, parsed request, v decision) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the request did not arrive completely
	}
	p.inFlight.Add(1)
	defer p.inFlight.Add(-1)
	ctx := context.WithoutCancel(r.Context())
	pause(ctx, v.late)
	out := r.Clone(ctx)
	out.Body, out.RequestURI = io.NopCloser(bytes.NewReader(body)), ""
	out.URL.Scheme, out.URL.Host, out.Host = p.target.Scheme, p.target.Host, p.target.Host
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
	_, _ = w.Write(answered) // the client may have ended
}

// answer sends an error to the client.
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
	_ = json.NewEncoder(w).Encode(status) // the client may have ended
}

var reasons = map[int]metav1.StatusReason{
	http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
	http.StatusGone:                metav1.StatusReasonExpired,
}

// read forwards a request that only reads. Events of a watch may be delayed, and a watch may be ended.
func (p *proxy) read(w http.ResponseWriter, r *http.Request, parsed request, v decision) {
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
				f, _ := p.current()
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

// lateBody is a body that delays each of its parts.
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

// newLateBody reads body until ctx is done, and calls delay for each part when it arrives.
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
