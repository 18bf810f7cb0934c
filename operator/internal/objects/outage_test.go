package objects

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A list or a watch that is refused for long makes the objects of a kind unknown, and they are known again when one
// succeeds.
func TestObjectsAreUnknownWhileTheAPIServerRefusesToListThem(t *testing.T) {
	configMaps := schema.GroupResource{Resource: "configmaps"}
	forbidden := apierrors.NewForbidden(configMaps, "", errors.New("no rule"))
	for name, c := range map[string]struct {
		events  func(k *kind)
		turned  int32
		unknown string
	}{
		"refused for long": {func(k *kind) {
			k.recordError(forbidden)
			time.Sleep(unknownAfter + time.Second)
		}, 1, "configmaps can no longer be listed: configmaps is forbidden"},
		"refused again and again": {func(k *kind) {
			k.recordError(forbidden)
			time.Sleep(unknownAfter - time.Second)
			k.recordError(apierrors.NewServiceUnavailable("down"))
			time.Sleep(2 * time.Second)
		}, 1, "configmaps can no longer be listed: down"},
		"the kind does not exist": {func(k *kind) {
			k.recordError(&meta.NoKindMatchError{GroupKind: configMap.GroupKind()})
			time.Sleep(unknownAfter + time.Second)
		}, 1, `no matches for kind "ConfigMap"`},
		"refused for a moment": {func(k *kind) {
			k.recordError(forbidden)
			time.Sleep(unknownAfter - time.Second)
		}, 0, ""},
		"refused, and then listed": {func(k *kind) {
			k.recordError(forbidden)
			time.Sleep(unknownAfter - time.Second)
			k.answered()
			time.Sleep(unknownAfter)
		}, 0, ""},
		"listed after long": {func(k *kind) {
			k.recordError(forbidden)
			time.Sleep(unknownAfter + time.Second)
			require.NoError(t, k.Replace(nil, "7"))
		}, 2, ""},
		"the API server does not answer": {func(k *kind) {
			k.recordError(errors.New("connection refused"))
			time.Sleep(time.Hour)
		}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var turned atomic.Int32
				k := newKind(&meta.RESTMapping{
					GroupVersionKind: configMap, Resource: configMaps.WithVersion("v1"),
				}, options{turned: func() { turned.Add(1) }})
				require.NoError(t, k.Replace(nil, "1"))
				c.events(k)
				synctest.Wait()
				require.Equal(t, c.turned, turned.Load())
				if c.unknown == "" {
					require.NoError(t, k.listed())
				} else {
					require.ErrorContains(t, k.listed(), c.unknown)
				}
			})
		})
	}
}
