package integration_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/test/marks"
)

// pairs returns that many labels or annotations with short names.
func pairs(number int) map[string]string {
	all := map[string]string{}
	for i := range number {
		all[fmt.Sprintf("n%05d", i)] = "x"
	}
	return all
}

// metadataPatch returns a patch that sets a field of the metadata.
func metadataPatch(t testing.TB, field string, value any) client.Patch {
	t.Helper()
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{field: value}})
	require.NoError(t, err)
	return client.RawPatch(types.MergePatchType, body)
}

// Loops of CEL take the API server a time that grows with the square of what they loop over. The policies do not loop
// over all that a user writes: such a request takes a few times as long as that for a ConfigMap, not a hundred times.
// The test is not parallel, since rules about protected attributes, which others create, deny so many labels.
func TestLargeWritesOfNamespacesCostTheAPIServerLittle(t *testing.T) {
	marks.OnEveryVersion(t)
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("large")
	s.waitInitialized(ns)
	owner := s.newUserWithRules("owner", policyRule("*", "", "namespaces"), policyRule("*", "", "namespaces/status"),
		policyRule("*", "", "configmaps"), policyRule("create", v1alpha1.GroupVersion.Group, "namespacetemplates"))
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "large", Namespace: ns.Name}}
	require.NoError(t, owner.Create(t.Context(), config))
	const number = 10_000
	create := func(object client.Object, name string) func() error {
		return func() error {
			object := object.DeepCopyObject().(client.Object)
			object.SetResourceVersion("")
			object.SetUID("")
			object.SetName(s.name(name))
			object.SetLabels(pairs(number))
			return owner.Create(t.Context(), object, client.DryRunAll)
		}
	}
	patch := func(object client.Object, patch client.Patch) func() error {
		return func() error {
			return owner.Patch(t.Context(), object.DeepCopyObject().(client.Object), patch, client.DryRunAll)
		}
	}
	annotations := metadataPatch(t, "annotations", pairs(number))
	labels := metadataPatch(t, "labels", pairs(number))
	for _, request := range []struct {
		name                 string
		namespace, configMap func() error
	}{
		{"annotations", patch(ns, annotations), patch(config, annotations)},
		{"labels", patch(ns, labels), patch(config, labels)},
		{"creation", create(&corev1.Namespace{}, "new"), create(config, "new")},
	} {
		var of, than time.Duration
		for range 5 { // the fastest of each, in turn
			of = fastest(of, func() { require.Error(t, request.namespace()) })
			than = fastest(than, func() { require.NoError(t, request.configMap()) })
		}
		t.Logf("%s: %s, and %s for a ConfigMap", request.name, of, than)
		require.Less(t, of, 10*than, request.name)
	}
}

// fastest returns how long an action takes, or the duration so far if that is less and not zero.
func fastest(soFar time.Duration, action func()) time.Duration {
	start := time.Now()
	action()
	if took := time.Since(start); soFar == 0 || took < soFar {
		return took
	}
	return soFar
}

// A namespace that was filled before nstpl protected it can be emptied, and is written in other ways.
// The test is not parallel for the same reason.
func TestFilledNamespacesCanBeEmptied(t *testing.T) {
	marks.OnEveryVersion(t)
	s := newScope(t, sharedCluster)
	s.createSpace("a", "")
	ns := s.createNamespace("filled", s.inSpace("a"))
	s.waitInitialized(ns)
	s.waitInSpace(ns.Name, "a")
	owner := s.newUserWithRules("owner", policyRule("*", "", "namespaces"), policyRule("*", "", "namespaces/status"),
		policyRule("create use", v1alpha1.GroupVersion.Group, "namespacetemplates"))
	// The policies judge no labels and annotations that the operator writes.
	operator, err := s.newUserClient(v1alpha1.OperatorUser)
	require.NoError(t, err)
	const message = "may have at most 256 labels, 1000 annotations, and 64 finalizers and owners"
	depth := hierarchy.DepthLabel(s.name("a"))
	require.NoError(t, operator.Patch(t.Context(), ns.DeepCopy(), metadataPatch(t, "labels", pairs(600))))
	require.NoError(t, operator.Patch(t.Context(), ns.DeepCopy(), metadataPatch(t, "annotations", pairs(2500))))
	try := func(field string, value any) error {
		return owner.Patch(t.Context(), ns.DeepCopy(), metadataPatch(t, field, value), client.DryRunAll)
	}
	remove := func(from, to int) map[string]any {
		removed := map[string]any{}
		for name := range pairs(to) {
			removed[name] = nil
		}
		for name := range pairs(from) {
			delete(removed, name)
		}
		return removed
	}
	require.NoError(t, try("finalizers", []string{"example.com/a"}))

	require.NoError(t, try("annotations", remove(0, 1)), "one is removed")
	require.NoError(t, try("annotations", remove(0, 1600)))
	require.NoError(t, try("annotations", map[string]any{"n00000": "y"}), "what does not grow is allowed")
	require.ErrorContains(t, try("annotations", map[string]any{"other": "x"}), message)
	fewer := remove(0, 600)
	fewer["other"] = "x"
	require.ErrorContains(t, try("annotations", fewer), message, "below twice the limit, others are not added")
	record := map[string]any{v1alpha1.UIDRangeAnnotation: "1/1"}
	maps.Copy(record, remove(0, 600))
	require.ErrorContains(t, try("annotations", record), "are managed by the operator")

	require.ErrorContains(t, try("labels", remove(0, 1)), message, "the rest is still more than any user may set")
	require.NoError(t, try("labels", remove(0, 200)))
	other := remove(0, 200)
	other["other"] = "x"
	require.ErrorContains(t, try("labels", other), message)
	all := remove(0, 600)
	require.NoError(t, try("labels", all))
	all[depth] = nil
	require.ErrorContains(t, try("labels", all), "are managed by the operator")
	all[hierarchy.DepthLabel(s.name("b"))] = "0"
	require.ErrorContains(t, try("labels", all), "are managed by the operator")
	all = remove(0, 600)
	all[depth] = "7"
	require.ErrorContains(t, try("labels", all), "are managed by the operator")
}
