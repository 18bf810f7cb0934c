package population

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/objects"
	"nstpl.dev/nstpl/operator/internal/queue"
)

// permitting is an API server that serves a kind, and allows everything.
type permitting struct{ forbidden }

func (*permitting) Create(
	_ context.Context, review *authorizationv1.SelfSubjectAccessReview, _ metav1.CreateOptions,
) (*authorizationv1.SelfSubjectAccessReview, error) {
	review.Status.Allowed = true
	return review, nil
}

// The objects in a new namespace that were there before the first pass may be those of an earlier namespace, or of
// users who were quicker than the watch of namespaces.
func TestObjectsThatArriveBeforeTheirNamespaceAreObservedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind := v1alpha1.GroupKind{Group: "example.org", Kind: "Wheel"}
		object := &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "example.org/v1", Kind: "Wheel"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "undeclared", UID: "w"},
		}
		scheme := metadatafake.NewTestScheme()
		require.NoError(t, metav1.AddMetaToScheme(scheme))
		api := &permitting{}
		r := &Namespaces{
			Objects: objects.New(t.Context(), objects.Options{
				Client: metadatafake.NewSimpleMetadataClient(scheme, object), Mapper: api, Reviews: api,
				Changed: func(string) {}, Turned: func(schema.GroupKind) {},
			}),
			Results: NewResults(func(string, bool) {}), Queue: queue.New(&backoff.Queues{}),
		}
		defer r.Queue.ShutDown()
		_ = r.Objects.WatchOthers(t.Context(), schema.GroupKind(kind))
		require.NoError(t, r.Objects.Wait(t.Context()))
		template := &v1alpha1.NamespaceTemplate{}
		template.Spec.Authoritative = []v1alpha1.GroupKind{kind}
		observe := func(uid types.UID) populate.Observed {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid}}
			return r.observe(populate.Declared{Namespace: ns, Templates: []*v1alpha1.NamespaceTemplate{template}})
		}
		isQueued := func() bool {
			time.Sleep(requeueSoon) // of the clock of synctest, which needs no time
			synctest.Wait()
			if r.Queue.Len() == 0 {
				return false
			}
			item, _ := r.Queue.Get()
			r.Queue.Done(item)
			return true
		}
		r.Results.Created("a", "1", time.Now())
		require.Empty(t, observe("1").Others)
		require.True(t, isQueued())
		r.Results.Record("a", "1", nil, true)
		require.Len(t, observe("1").Others, 1)
		require.False(t, isQueued())

		require.Empty(t, observe("2").Others, "the watch has not reported the next namespace of the name")
		require.True(t, isQueued())
	})
}
