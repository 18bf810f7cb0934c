package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// upstream acts as the API server: it records writes, and sends events to watches.
type upstream struct {
	writes chan string
	events chan string
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "true" {
		u.writes <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization")
		w.WriteHeader(http.StatusCreated)
		return
	}
	for {
		select {
		case line := <-u.events:
			fmt.Fprintln(w, line)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// newProxyAndUpstream returns a proxy, the upstream behind it, and a client of the proxy.
func newProxyAndUpstream(t *testing.T) (*proxy, *upstream, *http.Client) {
	t.Helper()
	u := &upstream{writes: make(chan string, 10), events: make(chan string)}
	server := httptest.NewUnstartedServer(u)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	p, err := newProxy(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.close()) })
	return p, u, p.server.Client()
}

const somePath = "/api/v1/namespaces/a/configmaps/b"

// send sends a request and returns the status.
func send(ctx context.Context, p *proxy, client *http.Client, method string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, method, p.server.URL+somePath, strings.NewReader("{}"))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer mine")
	response, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

func TestProxyForwardsWithTheSendersToken(t *testing.T) {
	t.Parallel()
	p, u, client := newProxyAndUpstream(t)
	code, err := send(t.Context(), p, client, http.MethodPatch)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, code)
	require.Equal(t, "PATCH "+somePath+" Bearer mine", <-u.writes)
	writes, _ := p.counted()
	require.Equal(t, 1, writes)
}

func TestProxyAnswersInsteadOfOrAfterForwarding(t *testing.T) {
	t.Parallel()
	p, u, client := newProxyAndUpstream(t)
	for _, test := range []struct {
		answer int
		after  bool
	}{{500, false}, {500, true}, {429, true}, {reset, false}, {reset, true}} {
		p.arm(fault{answer: test.answer, chance: 1, after: test.after}, 1)
		code, err := send(t.Context(), p, client, http.MethodPatch)
		if test.answer == reset {
			require.Error(t, err)
		} else {
			require.NoError(t, err)
			require.Equal(t, test.answer, code)
		}
		if test.after {
			<-u.writes
		}
		require.Empty(t, u.writes)
	}
}

// A write that was sent is forwarded, although its sender has ended.
func TestProxyForwardsLateWritesOfEndedSenders(t *testing.T) {
	t.Parallel()
	p, u, client := newProxyAndUpstream(t)
	p.arm(fault{late: 200 * time.Millisecond}, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := send(ctx, p, client, http.MethodPatch)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, "PATCH "+somePath+" Bearer mine", <-u.writes)
}

func TestProxyKillsBeforeAndAfterForwarding(t *testing.T) {
	t.Parallel()
	p, u, client := newProxyAndUpstream(t)
	killed := 0
	p.actions[kill] = func() { killed++ }
	for _, after := range []bool{false, true} {
		p.arm(fault{do: kill, at: 1, after: after}, 1)
		_, err := send(t.Context(), p, client, http.MethodPatch)
		require.Error(t, err)
		require.Len(t, u.writes, map[bool]int{true: 1}[after])
	}
	require.Equal(t, 2, killed)
}

// Events of a watch are delayed in their order while the fault lasts, and arrive at once when it is over.
func TestProxyDelaysWatches(t *testing.T) {
	t.Parallel()
	p, u, client := newProxyAndUpstream(t)
	lines := watch(t, p, client)
	u.events <- "first"
	require.Equal(t, "first", <-lines)
	const late = 300 * time.Millisecond
	p.arm(fault{lateWatches: late, watchesOf: "configmaps"}, 1)
	told := time.Now()
	u.events <- "second"
	require.Equal(t, "second", <-lines)
	require.GreaterOrEqual(t, time.Since(told), late)
	p.arm(fault{lateWatches: time.Hour, watchesOf: "secrets"}, 1)
	u.events <- "third"
	require.Equal(t, "third", <-lines)
}

func TestProxyCutsWatchesAndTheNetwork(t *testing.T) {
	t.Parallel()
	p, _, client := newProxyAndUpstream(t)
	p.arm(fault{cutWatches: 50 * time.Millisecond}, 1)
	_, open := <-watch(t, p, client)
	require.False(t, open)
	p.arm(fault{}, 1)
	lines := watch(t, p, client)
	p.arm(fault{cut: true}, 1)
	p.server.CloseClientConnections()
	_, open = <-lines
	require.False(t, open)
	_, err := send(t.Context(), p, client, http.MethodGet)
	require.Error(t, err)
	p.disarm()
	code, err := send(t.Context(), p, client, http.MethodPatch)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, code)
}

// watch begins a watch and returns its lines until it ends.
func watch(t *testing.T, p *proxy, client *http.Client) <-chan string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		p.server.URL+"/api/v1/configmaps?watch=true", nil)
	require.NoError(t, err)
	lines := make(chan string)
	go func() {
		defer close(lines)
		response, err := client.Do(r)
		if err != nil {
			return
		}
		defer response.Body.Close()
		for scanner := bufio.NewScanner(response.Body); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return lines
}
