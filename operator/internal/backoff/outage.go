package backoff

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

// askAgain is the shortest time between two questions whether the API server is ready.
const askAgain = time.Second

// Outage detects when the API server does not answer, and when it answers again. It is safe for concurrent use.
type Outage struct {
	ctx   context.Context
	ready func(context.Context) error
	over  func()

	mu sync.Mutex
	// asking reports whether a question is on its way, and asked is the time of the last answer.
	asking bool
	asked  time.Time
	// ended is closed when the outage ends. It is nil if there is no outage.
	ended chan struct{}
}

// NewOutage returns an Outage that works until ctx is done. ready returns nil if the API server can be used. It is
// called after a request failed in a way that may mean an outage, and then repeatedly until the outage is over. over is
// called at the end of an outage.
func NewOutage(ctx context.Context, ready func(context.Context) error, over func()) *Outage {
	return &Outage{ctx: ctx, ready: ready, over: over}
}

// Transport returns a transport that detects outages from the answers of another one. During an outage it delays new
// watches until the end: otherwise reflectors would wait longer and longer between their attempts.
func (o *Outage) Transport(next http.RoundTripper) http.RoundTripper {
	return transport{outage: o, next: next}
}

type transport struct {
	outage *Outage
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := t.outage.hold(request); err != nil {
		return nil, err
	}
	response, err := t.next.RoundTrip(request)
	switch {
	case err != nil:
		if request.Context().Err() == nil {
			t.outage.suspect()
		}
	case mayBeOutage(response.StatusCode):
		t.outage.suspect()
	}
	return response, err
}

func mayBeOutage(status int) bool {
	switch status {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return true
	}
	return false
}

// hold waits until the outage is over if a request begins a watch.
func (o *Outage) hold(request *http.Request) error {
	o.mu.Lock()
	ended := o.ended
	o.mu.Unlock()
	if ended == nil || request.Method != http.MethodGet || !strings.Contains(request.URL.RawQuery, "watch=") {
		return nil
	}
	select {
	case <-ended:
		return nil
	case <-request.Context().Done():
		return request.Context().Err()
	}
}

// suspect asks the API server whether it is ready, unless a question is on its way or was answered just now.
func (o *Outage) suspect() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.asking || time.Since(o.asked) < askAgain {
		return
	}
	o.asking = true
	go o.ask()
}

func (o *Outage) ask() {
	err := o.ready(o.ctx)
	if err != nil && o.ctx.Err() == nil {
		o.await(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asking, o.asked = false, time.Now()
}

// await waits until the outage is over.
func (o *Outage) await(err error) {
	log := ctrl.Log.WithName("outage")
	log.Error(err, "the API server does not answer: failed requests are retried when it does")
	ended := make(chan struct{})
	o.mu.Lock()
	o.ended = ended
	o.mu.Unlock()
	tick := time.NewTicker(askAgain)
	defer tick.Stop()
	for err != nil {
		select {
		case <-o.ctx.Done():
			return // the requests that wait end, too
		case <-tick.C:
			err = o.ready(o.ctx)
		}
	}
	log.Info("the API server answers again")
	o.mu.Lock()
	o.ended = nil
	o.mu.Unlock()
	close(ended)
	o.over()
}
