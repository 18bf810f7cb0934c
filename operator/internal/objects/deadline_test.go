package objects

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// At a start, a kind that counts as unavailable changes the status of every template that declares it.
func TestAListFromWhichObjectsArriveDoesNotTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		k := newKind(&meta.RESTMapping{
			GroupVersionKind: configMap, Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			Scope: meta.RESTScopeNamespace,
		}, options{changed: func(string) {}})
		k.startDeadline(ctx)
		for range 10 {
			time.Sleep(listTimeout - time.Second)
			require.ErrorIs(t, k.listed(), ErrPending)
			k.extendDeadline()
		}
		time.Sleep(listTimeout + time.Second)
		require.NotErrorIs(t, k.listed(), ErrPending)
		require.ErrorContains(t, k.listed(), "the list of configmaps is incomplete")
	})
}

// The namespaces of other templates do not wait until a list of which nothing arrives times out.
func TestWaitDoesNotWaitForAListOfWhichNothingArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		k := newKind(
			&meta.RESTMapping{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}}, options{})
		start := time.Now()
		k.startDeadline(ctx)
		go func() {
			time.Sleep(patience / 2)
			k.extendDeadline()
		}()
		require.NoError(t, k.wait(ctx))
		require.Equal(t, patience*3/2, time.Since(start))
		require.ErrorIs(t, k.listed(), ErrPending)
	})
}
