package check

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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

// parsed returns the objects of the plugin, and how the API server stores them, with defaults and conditions.
var parsed = sync.OnceValues(func() (c common, err error) {
	c.stored = map[ref]fact[*unstructured.Unstructured]{}
	c.manifests, err = manifests.Objects()
	if err != nil {
		return c, err
	}
	if c.definitions, err = crd.All(); err != nil {
		return c, err
	}
	for _, object := range c.manifests {
		c.stored[refOf(object)] = fact[*unstructured.Unstructured]{value: object.DeepCopy()}
	}
	for _, definition := range c.definitions {
		stored := definition.DeepCopy()
		stored.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
		stored.Spec.Names.ListKind = stored.Spec.Names.Kind + "List"
		stored.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{
			Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue,
		}}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(stored)
		if err != nil {
			return c, err
		}
		c.stored[ref{kind: definitionKind, name: definition.Name}] = fact[*unstructured.Unstructured]{
			value: &unstructured.Unstructured{Object: fields},
		}
	}
	for _, found := range c.stored {
		found.value.SetLabels(map[string]string{partOfLabel: partOf})
	}
	return c, nil
})

// installed returns the facts of a cluster whose stored objects are those of the plugin.
func installed(t *testing.T) common {
	t.Helper()
	shared, err := parsed()
	require.NoError(t, err)
	c := common{
		server: cluster.Server{Version: "v1.36.3", Now: now}, manifests: shared.manifests,
		definitions: shared.definitions, stored: map[ref]fact[*unstructured.Unstructured]{},
		services: map[ref]fact[bool]{},
	}
	for object, found := range shared.stored {
		c.stored[object] = fact[*unstructured.Unstructured]{value: found.value.DeepCopy()}
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
