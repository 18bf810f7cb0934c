package patch

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// CountRequests returns a context, and a function that returns how many requests were sent with it. client-go repeats a
// request by itself if the API server, or a proxy, asks for that with status 429 or 5xx.
func CountRequests(ctx context.Context) (counted context.Context, sent func() int32) {
	count := &atomic.Int32{}
	trace := &httptrace.ClientTrace{WroteHeaders: func() { count.Add(1) }}
	return httptrace.WithClientTrace(ctx, trace), count.Load
}

// MayHappen reports whether a write that failed may have been executed, or may be later: it was sent more than once, or
// the API server did not refuse it.
func MayHappen(err error, sent int32) bool {
	if sent == 0 {
		return false
	}
	status, isAnswer := errors.AsType[*apierrors.StatusError](err)
	if !isAnswer || sent > 1 {
		return true
	}
	code := status.Status().Code
	return code < 400 || code >= 500 || code == http.StatusRequestTimeout || code == http.StatusTooManyRequests
}
