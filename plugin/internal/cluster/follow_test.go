package cluster_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// One answer that the user is unknown has client-go read the credentials again. Another one ends the watch.
func TestFollowEndsWhenTheUserStaysUnknown(t *testing.T) {
	for name, test := range map[string]struct {
		refusals int
		ends     bool
	}{"once": {1, false}, "again": {100, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refusals := test.refusals
				informer := cache.NewSharedIndexInformer(&cache.ListWatch{
					ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
						if refusals--; refusals >= 0 {
							return nil, apierrors.NewUnauthorized("the token has expired")
						}
						return &corev1.NamespaceList{
							ListMeta: metav1.ListMeta{ResourceVersion: "1"},
							Items:    []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}}},
						}, nil
					},
					WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
						if o.SendInitialEvents != nil {
							return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind(), "", nil)
						}
						return apiwatch.NewFake(), nil
					},
				}, &corev1.Namespace{}, 0, nil)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				changed, denied := make(chan any, 1), make(chan error, 1)
				cluster.Follow(ctx, informer, func(item any) { changed <- item }, nil, func(err error) { denied <- err })
				select {
				case <-changed:
					require.False(t, test.ends)
				case err := <-denied:
					require.True(t, test.ends)
					require.True(t, apierrors.IsUnauthorized(err))
				case <-time.After(time.Hour):
					require.Fail(t, "neither")
				}
				stop()
				synctest.Wait()
			})
		})
	}
}
