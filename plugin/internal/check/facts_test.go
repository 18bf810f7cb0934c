package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/manifests"
	"nstpl.dev/nstpl/manifests/crd"
	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

var (
	errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", nil)
	errNotFound  = apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, "thing")
)

// installed returns the facts of a cluster whose stored objects are those of the plugin.
func installed(t *testing.T) common {
	t.Helper()
	c := common{
		server: cluster.Server{Version: "v1.36.3", Now: now}, stored: map[ref]fact[*unstructured.Unstructured]{},
		services: map[ref]fact[bool]{},
	}
	var err error
	c.manifests, err = manifests.Objects()
	require.NoError(t, err)
	c.definitions, err = crd.All()
	require.NoError(t, err)
	for _, object := range c.manifests {
		stored := object.DeepCopy()
		stored.SetLabels(map[string]string{partOfLabel: partOf})
		c.stored[refOf(object)] = fact[*unstructured.Unstructured]{value: stored}
	}
	for _, definition := range c.definitions {
		stored := toUnstructured(t, definition)
		require.NoError(t, unstructured.SetNestedSlice(stored.Object,
			[]any{map[string]any{"type": "Established", "status": "True"}}, "status", "conditions"))
		require.NoError(t, unstructured.SetNestedField(stored.Object, "None", "spec", "conversion", "strategy"))
		require.NoError(t, unstructured.SetNestedField(stored.Object, definition.Spec.Names.Kind+"List", "spec", "names",
			"listKind"))
		stored.SetLabels(map[string]string{partOfLabel: partOf})
		c.stored[ref{kind: definitionKind, name: definition.Name}] = fact[*unstructured.Unstructured]{value: stored}
	}
	return c
}

// empty returns the facts of a cluster without nstpl.
func empty(t *testing.T) common {
	t.Helper()
	c := installed(t)
	for object := range c.stored {
		c.stored[object] = fact[*unstructured.Unstructured]{err: errNotFound}
	}
	return c
}

func toUnstructured(t *testing.T, object any) *unstructured.Unstructured {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	return &unstructured.Unstructured{Object: fields}
}

// leaseOf returns a lease that was renewed some time ago.
func leaseOf(version string, renewed time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.VersionLabel: version}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("pod-1_7c2e"), LeaseDurationSeconds: new(int32(15)),
			RenewTime: &metav1.MicroTime{Time: now.Add(-renewed)},
		},
	}
}

// requireResult requires that the only result has a status, a message and a remedy that contain the texts. A result
// without a problem has no remedy, and any other has one.
func requireResult(t *testing.T, results []Result, status Status, message, remedy string) {
	t.Helper()
	require.Len(t, results, 1)
	require.Equal(t, status, results[0].Status, results[0].Message)
	require.Contains(t, results[0].Message, message)
	require.Contains(t, results[0].Remedy, remedy)
	require.Equal(t, status == OK, results[0].Remedy == "")
	require.NotEmpty(t, results[0].Check)
}
