package integration_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
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

// A namespace that was filled before nstpl protected it can be emptied, and is written in other ways.
// The test is not parallel, since rules about protected attributes, which others create, deny so many labels.
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
