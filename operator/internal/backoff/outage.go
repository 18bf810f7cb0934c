package backoff

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

// askAgain is how often the API server is asked at most whether it is ready.
const askAgain = time.Second

// Outage notices when the API server does not answer, and when it answers again. It is safe for concurrent use.
type Outage struct {
	ctx   context.Context
	ready func(context.Context) error
	over  func()

	mu sync.Mutex
	// asking says that the API server is being asked, and asked when the answer came last.
	asking bool
	asked  time.Time
	// ended is closed when the outage ends; nil if there is none.
	ended chan struct{}
}

// NewOutage returns an Outage that asks until ctx is done. ready returns nil if the API server can be used: it is
// called when a request failed in a way that may be an outage, and then again and again until there is none. Then over
// is called.
func NewOutage(ctx context.Context, ready func(context.Context) error, over func()) *Outage {
	return &Outage{ctx: ctx, ready: ready, over: over}
}

// Transport returns a transport that looks for outages in the answers of another one. During an outage, watches that
// begin wait for its end: those who watch would wait longer and longer between attempts.
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

// hold returns when a watch may begin.
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

// suspect has the API server asked, unless it is or was just now.
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

// await returns when the outage is over.
func (o *Outage) await(err error) {
	log := ctrl.Log.WithName("outage")
	log.Error(err, "the API server does not answer: what fails is tried again when it does")
	ended := make(chan struct{})
	o.mu.Lock()
	o.ended = ended
	o.mu.Unlock()
	tick := time.NewTicker(askAgain)
	defer tick.Stop()
	for err != nil {
		select {
		case <-o.ctx.Done():
			return // so are the requests that wait
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
