package leadership

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// fakeLock answers each write with an error, or nil, after a time.
type fakeLock struct {
	resourcelock.Interface
	answer func() error
}

func (fakeLock) Identity() string { return "this" }
func (f fakeLock) Create(context.Context, resourcelock.LeaderElectionRecord) error {
	return f.answer()
}
func (f fakeLock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	return f.answer()
}

func TestHeld(t *testing.T) {
	type step struct {
		// monotonic and wall are by how much the clocks go on before.
		monotonic, wall time.Duration
		// holder is written in the lease, unless it is empty: "none" stands for a lease that is released.
		holder string
		fails  bool
		// delay is how long the answer takes.
		delay time.Duration
		held  bool
	}
	both := func(d time.Duration) step { return step{monotonic: d, wall: d} }
	after := func(d time.Duration, held bool) step {
		s := both(d)
		s.held = held
		return s
	}
	acquired := step{holder: "this", held: true}
	for name, steps := range map[string][]step{
		"never acquired":           {{}},
		"acquired by another":      {{holder: "other"}},
		"failed to acquire":        {{holder: "this", fails: true}},
		"held until patience ends": {acquired, after(patience, true), after(time.Millisecond, false)},
		"renewed": {
			acquired, after(patience, true), {holder: "this", held: true}, after(patience, true),
		},
		"renewed before it is due": {
			acquired, after(renewInterval-time.Millisecond, true), {holder: "this", held: true},
			after(patience-renewInterval+time.Millisecond, true), after(time.Millisecond, false),
		},
		"not renewed": {
			acquired, after(patience, true), {holder: "this", fails: true, held: true}, after(time.Millisecond, false),
		},
		"the answer was late": {
			{holder: "this", delay: 5 * time.Second, held: true}, after(patience-5*time.Second, true),
			after(time.Millisecond, false),
		},
		"released":                        {acquired, {holder: "none"}},
		"the answer to a release is lost": {acquired, {holder: "none", fails: true}},
		"the monotonic clock stopped":     {acquired, {wall: patience + time.Second}},
		"the wall clock was set back":     {acquired, {wall: -time.Hour, monotonic: patience + time.Second}},
		"the wall clock was set forth": {
			acquired, {wall: time.Hour, monotonic: time.Second}, {holder: "this", held: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := instant{wall: time.Unix(1_000_000, 0)}
			pass := func(monotonic, wall time.Duration) {
				now.monotonic += monotonic
				now.wall = now.wall.Add(wall)
			}
			lease := &Lease{now: func() instant { return now }}
			for i, s := range steps {
				pass(s.monotonic, s.wall)
				lease.Interface = fakeLock{answer: func() error {
					pass(s.delay, s.delay)
					if s.fails {
						return errors.New("no answer")
					}
					return nil
				}}
				record := resourcelock.LeaderElectionRecord{HolderIdentity: strings.TrimPrefix(s.holder, "none")}
				if s.holder != "" {
					write := lease.Update
					if i == 0 {
						write = lease.Create
					}
					require.Equal(t, s.fails, write(t.Context(), record) != nil)
				}
				require.Equal(t, s.held, lease.Held() == nil, "step %d: %v", i, lease.Held())
			}
		})
	}
}

func TestNewLeaseKeepsTheConfigurationAsItIs(t *testing.T) {
	config := &rest.Config{Host: "https://127.0.0.1:1", UserAgent: "operator"}
	before := rest.CopyConfig(config)
	lease, err := NewLease(config, "it", map[string]string{"version": "1"})
	require.NoError(t, err)
	require.Equal(t, before, config)
	require.Equal(t, v1alpha1.OperatorNamespace+"/it", lease.Describe())
	require.NotEmpty(t, lease.Identity())
	require.ErrorContains(t, lease.Held(), "this replica is not the leader")
}

// The elector renews every retryPeriod. Each renewal that is not due is one write less.
func TestRenewalsThatAreNotDueAreNotSent(t *testing.T) {
	sent := 0
	var now instant
	lease := &Lease{now: func() instant { return now }, Interface: fakeLock{answer: func() error { sent++; return nil }}}
	renew := func() {
		require.NoError(t, lease.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "this"}))
	}
	for range 60 * time.Second / retryPeriod {
		renew()
		require.NoError(t, lease.Held())
		now.monotonic += retryPeriod
	}
	require.Equal(t, 40, sent)
	require.NoError(t, lease.Update(t.Context(), resourcelock.LeaderElectionRecord{}))
	require.Equal(t, 41, sent, "a release is always sent")
	require.Error(t, lease.Held())
	renew()
	require.Equal(t, 42, sent, "and so is what acquires it again")
}

// A lease that is being released is not held any more when the request is under way.
func TestALeaseIsNotHeldWhileItIsReleased(t *testing.T) {
	lease := &Lease{now: clock(), Interface: fakeLock{answer: func() error { return nil }}}
	require.NoError(t, lease.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "this"}))
	require.NoError(t, lease.Held())
	lease.Interface = fakeLock{answer: func() error {
		require.Error(t, lease.Held())
		return nil
	}}
	require.NoError(t, lease.Update(t.Context(), resourcelock.LeaderElectionRecord{}))
}

func TestClientRefusesWritesOfALeaseThatRanOut(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method)
	}))
	defer server.Close()
	var now instant
	lease := &Lease{now: func() instant { return now }, Interface: fakeLock{answer: func() error { return nil }}}
	require.NoError(t, lease.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "this"}))
	send := func(method string) error {
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL,
			io.NopCloser(strings.NewReader("x")))
		require.NoError(t, err)
		response, err := lease.Client(server.Client()).Do(request)
		if err == nil {
			require.NoError(t, response.Body.Close())
		}
		return err
	}
	writes := []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	for _, method := range writes {
		require.NoError(t, send(method))
	}
	require.Equal(t, writes, asked)
	now.monotonic = 8 * time.Second
	for _, method := range writes {
		require.ErrorContains(t, send(method),
			"write rejected: the lease of this replica was last renewed 8 s ago, so another replica may be the leader")
	}
	require.Equal(t, writes, asked, "nothing was sent")
	require.NoError(t, send(http.MethodGet))

	var none *Lease
	require.Same(t, server.Client(), none.Client(server.Client()), "without an election nothing is refused")
}
