package backoff

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// server answers requests, and whether it is ready.
type server struct {
	answer  atomic.Int32 // 0: no answer
	isReady atomic.Bool

	asked, over atomic.Int32
}

func (s *server) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	status := int(s.answer.Load())
	if status == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: status, Body: http.NoBody}, nil
}

func newServer(answer int, isReady bool) *server {
	s := &server{}
	s.become(answer, isReady)
	return s
}

func (s *server) become(answer int, isReady bool) {
	s.answer.Store(int32(answer))
	s.isReady.Store(isReady)
}

// try has a server used, and returns what an Outage makes of that. It ends when ctx does.
func try(ctx context.Context, s *server) (send func(ctx context.Context, path string) (int, error)) {
	outage := NewOutage(ctx, func(context.Context) error {
		s.asked.Add(1)
		if !s.isReady.Load() {
			return errors.New("not ready")
		}
		return nil
	}, func() { s.over.Add(1) })
	through := outage.Transport(s)
	return func(ctx context.Context, path string) (int, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://localhost"+path, nil)
		if err != nil {
			return 0, err
		}
		response, err := through.RoundTrip(request)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
}

func TestOneBrokenKindIsNoOutage(t *testing.T) {
	for _, answer := range []int{0, 500, 502, 503, 504} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			s := newServer(answer, true)
			send := try(ctx, s)
			for range 1000 {
				_, _ = send(ctx, "/api/v1/limitranges?watch=true") // the answer is not what this is about
				time.Sleep(10 * time.Millisecond)
			}
			synctest.Wait()
			require.Zero(t, s.over.Load())
			require.InDelta(t, 10, s.asked.Load(), 1, "it is asked once a second")
		})
	}
}

func TestOtherAnswersAreNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s := newServer(0, false)
		send := try(ctx, s)
		for _, answer := range []int{200, 201, 400, 401, 403, 404, 409, 410, 422, 429} {
			s.become(answer, false)
			status, err := send(ctx, "/")
			require.NoError(t, err)
			require.Equal(t, answer, status)
		}
		s.become(0, false)
		given, cancel := context.WithCancel(ctx)
		cancel()
		_, err := send(given, "/")
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		require.Zero(t, s.asked.Load())
	})
}

func TestOutage(t *testing.T) {
	for _, answer := range []int{0, 503} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			s := newServer(answer, false)
			send := try(ctx, s)
			_, _ = send(ctx, "/api/v1/namespaces") // the answer is not what this is about
			synctest.Wait()
			var watches atomic.Int32
			for range 3 {
				go func() {
					if status, err := send(ctx, "/api/v1/namespaces?allowWatchBookmarks=true&watch=true"); err == nil &&
						status == 200 {
						watches.Add(1)
					}
				}()
			}
			given, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			_, err := send(given, "/api/v1/pods?watch=true")
			require.ErrorIs(t, err, context.DeadlineExceeded, "it waited")
			status, err := send(ctx, "/api/v1/namespaces")
			require.Equal(t, answer, status)
			require.Equal(t, answer == 0, err != nil, "requests other than watches are sent")
			time.Sleep(20 * time.Second)
			require.Zero(t, watches.Load())
			require.Zero(t, s.over.Load())

			s.become(200, true)
			time.Sleep(askAgain)
			synctest.Wait()
			require.EqualValues(t, 1, s.over.Load())
			require.EqualValues(t, 3, watches.Load())

			time.Sleep(time.Minute)
			s.become(answer, false)
			_, _ = send(ctx, "/") // as above
			time.Sleep(time.Minute)
			s.become(200, true)
			time.Sleep(askAgain)
			synctest.Wait()
			require.EqualValues(t, 2, s.over.Load(), "the next one is noticed, too")
		})
	}
}

// An outage that lasts until the operator ends wakes no queue.
func TestOutageUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newServer(0, false)
		send := try(ctx, s)
		_, err := send(ctx, "/")
		require.Error(t, err)
		time.Sleep(time.Minute)
		cancel()
		synctest.Wait()
		require.Zero(t, s.over.Load())
	})
}
