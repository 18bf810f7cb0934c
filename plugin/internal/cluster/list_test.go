package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes/scheme"

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

// Kubernetes' own kinds are listed as protobuf, if the API server has it, and a custom kind as JSON.
func TestListsInProtobufAreTheSameAsInJSON(t *testing.T) {
	namespaces := &corev1.NamespaceList{
		ListMeta: metav1.ListMeta{Continue: "next"},
		Items: []corev1.Namespace{
			{ObjectMeta: metav1.ObjectMeta{
				Name: "a", Labels: map[string]string{"tier": "tenant"}, CreationTimestamp: metav1.Unix(1e9, 0),
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:a":{}}`)}},
			}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}},
			{ObjectMeta: metav1.ObjectMeta{Name: "b"}},
		},
	}
	last := &corev1.NamespaceList{Items: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "c"}}}}
	listed := map[string][]*corev1.Namespace{}
	for _, contentType := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		accepted := map[string]string{}
		c := connect(t, func(w http.ResponseWriter, request *http.Request) {
			accepted[request.URL.Path] = request.Header.Get("Accept")
			w.Header().Set("Content-Type", contentType)
			if request.URL.Path != "/api/v1/namespaces" {
				_, _ = w.Write([]byte(`{"metadata": {}, "items": [{"metadata": {"name": "corp"}}]}`))
				return
			}
			info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), contentType)
			chunk := namespaces
			if request.URL.Query().Get("continue") == "next" {
				chunk = last
			}
			encoder := scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion)
			assert.NoError(t, encoder.Encode(chunk, w))
		})
		var err error
		listed[contentType], err = c.ListNamespaces(t.Context(), "")
		require.NoError(t, err)
		spaces, err := c.PolicySpaces(t.Context())
		require.NoError(t, err)
		require.Equal(t, "corp", spaces[0].Name)
		require.Equal(t, "application/vnd.kubernetes.protobuf,application/json", accepted["/api/v1/namespaces"])
		require.NotContains(t, accepted["/apis/policy.nstpl.dev/v1alpha1/policyspaces"], "protobuf")
	}
	require.Len(t, listed[runtime.ContentTypeJSON], 3)
	require.Equal(t, "tenant", listed[runtime.ContentTypeJSON][0].Labels["tier"])
	require.Equal(t, listed[runtime.ContentTypeJSON], listed[runtime.ContentTypeProtobuf])
}

// Chunks of custom resources are decoded while the next one is requested.
func TestListKeepsTheOrderOfChunks(t *testing.T) {
	const chunks = 4
	broken := -1
	c := connect(t, func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		at, _ := strconv.Atoi(request.URL.Query().Get("continue")) // 0 without a token
		next := ""
		if at < chunks-1 {
			next = strconv.Itoa(at + 1)
		}
		name := strconv.Quote(strconv.Itoa(at))
		if at == broken {
			name = "{}"
		}
		_, _ = fmt.Fprintf(w, `{"items":[{"metadata":{"name":%s}}],"metadata":{"continue":%q}}`, name, next)
	})
	spaces, err := c.PolicySpaces(t.Context())
	require.NoError(t, err)
	require.Len(t, spaces, chunks)
	for i, space := range spaces {
		require.Equal(t, strconv.Itoa(i), space.Name)
	}
	for broken = range chunks {
		_, err = c.PolicySpaces(t.Context())
		require.ErrorContains(t, err, "decode the list of policyspaces.policy.nstpl.dev")
	}
}

func TestListReturnsTheErrorOfTheAPIServer(t *testing.T) {
	c := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,` +
			`"message":"namespaces is forbidden: ask jane"}`))
	})
	_, err := c.ListNamespaces(t.Context(), "")
	require.True(t, apierrors.IsForbidden(err))
	require.EqualError(t, err, "namespaces is forbidden: ask jane")
}

// connect returns a cluster whose requests a function answers.
func connect(t *testing.T, answer http.HandlerFunc) *cluster.Cluster {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	flags := genericclioptions.NewConfigFlags(false)
	flags.APIServer = &server.URL
	c, err := cluster.Connect(flags)
	require.NoError(t, err)
	return c
}
