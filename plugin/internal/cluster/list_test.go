package cluster_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"nstpl.dev/nstpl/plugin/internal/cluster"
)

func TestChunksListsEveryObjectOnce(t *testing.T) {
	failed := errors.New("connection refused")
	expired := apierrors.NewResourceExpired("the continue token is too old")
	tests := map[string]struct {
		size int64
		fail map[int]error // by the number of the request
		want []metav1.ListOptions
		err  error
	}{
		"one request": {size: 9, want: []metav1.ListOptions{{Limit: 9}}},
		"all at once": {size: 0, want: []metav1.ListOptions{{}}},
		"three chunks": {
			size: 2, want: []metav1.ListOptions{{Limit: 2}, {Limit: 2, Continue: "2"}, {Limit: 2, Continue: "4"}},
		},
		"first request": {size: 2, fail: map[int]error{0: failed}, want: []metav1.ListOptions{{Limit: 2}}, err: failed},
		"expired between chunks": {
			size: 2, fail: map[int]error{2: expired},
			want: []metav1.ListOptions{{Limit: 2}, {Limit: 2, Continue: "2"}, {Limit: 2, Continue: "4"}, {}},
		},
		"expired at once": {
			size: 2, fail: map[int]error{0: expired}, want: []metav1.ListOptions{{Limit: 2}}, err: expired,
		},
		"failed after it expired": {
			size: 2, fail: map[int]error{1: expired, 2: failed},
			want: []metav1.ListOptions{{Limit: 2}, {Limit: 2, Continue: "2"}, {}}, err: failed,
		},
	}
	const objects = 5
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var requests []metav1.ListOptions
			var listed []int
			err := cluster.Chunks(t.Context(), test.size, metav1.ListOptions{},
				func(_ context.Context, options metav1.ListOptions) (string, error) {
					requests = append(requests, options)
					if err := test.fail[len(requests)-1]; err != nil {
						return "", err
					}
					begin, _ := strconv.Atoi(options.Continue) // 0 without a token
					for i := begin; i < objects; i++ {
						if options.Limit > 0 && i == begin+int(options.Limit) {
							return strconv.Itoa(i), nil
						}
						listed = append(listed, i)
					}
					return "", nil
				}, func() { listed = nil })
			require.Equal(t, test.err, err)
			require.Equal(t, test.want, requests)
			if test.err == nil {
				require.Equal(t, []int{0, 1, 2, 3, 4}, listed)
			}
		})
	}
}

func TestListReturnsTheErrorOfTheAPIServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,` +
			`"message":"namespaces is forbidden: ask jane"}`))
	}))
	t.Cleanup(server.Close)
	flags := genericclioptions.NewConfigFlags(false)
	flags.APIServer = &server.URL
	c, err := cluster.Connect(flags)
	require.NoError(t, err)
	_, err = c.ListNamespaces(t.Context(), "")
	require.True(t, apierrors.IsForbidden(err))
	require.EqualError(t, err, "namespaces is forbidden: ask jane")
}
