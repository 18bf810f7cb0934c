package leadership

import (
	"net/http"
)

// Client returns an HTTP client that shares its connections with another one, and rejects writes while another replica
// may be the leader. A nil Lease, without leader election, rejects nothing.
func (l *Lease) Client(shared *http.Client) *http.Client {
	if l == nil {
		return shared
	}
	client := *shared
	client.Transport = l.Guard(shared.Transport)
	return &client
}

// Guard returns a transport that rejects writes while another replica may be the leader.
func (l *Lease) Guard(next http.RoundTripper) http.RoundTripper {
	return transport{lease: l, next: next}
}

// transport rejects writes unless the lease is held.
type transport struct {
	lease *Lease
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	switch request.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		if err := t.lease.Held(); err != nil {
			if request.Body != nil {
				_ = request.Body.Close() // as the interface demands
			}
			return nil, err
		}
	}
	return t.next.RoundTrip(request)
}
