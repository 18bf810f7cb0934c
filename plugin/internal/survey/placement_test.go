package survey

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// What the operator deletes depends on the place that a namespace would have, and not on the one that it was reported
// to have.
func TestDeletionsDependOnTheNewPolicySpace(t *testing.T) {
	t.Parallel()
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "root"}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{
		MatchLabels: map[string]string{hierarchy.DepthLabel("root"): "1"},
	}
	template.Spec.Authoritative = []v1alpha1.GroupKind{{Kind: "ConfigMap"}}
	own := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "own", Namespace: "team-a"}}
	own.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	notAdopted := &hierarchy.NotAdoptedError{Namespace: "team-a", Tree: "root"}
	for name, test := range map[string]struct {
		reported  string
		misplaced error
		deletes   bool
		reason    string
		skipped   string
	}{
		"still in its place":       {populate.ConditionPopulated, nil, true, "Populated", ""},
		"adopted":                  {populate.ConditionNotAdopted, nil, true, "", ""},
		"to a space that exists":   {populate.ConditionPolicySpaceNotFound, nil, true, "", ""},
		"to a space that does not": {populate.ConditionPopulated, errors.New("missing"), false, "PolicySpaceNotFound", ""},
		"to a tree":                {populate.ConditionPopulated, notAdopted, false, "NotAdopted", ""},
		"excluded by a flag":       {populate.ConditionExcluded, nil, false, "Excluded", "a flag"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "team-a", UID: "u", Labels: template.Spec.Namespaces.LabelSelector.MatchLabels,
			}}
			ns.Status.Conditions = []corev1.NamespaceCondition{{
				Type: v1alpha1.NamespacePopulated, Reason: test.reported, Message: "a flag",
			}}
			placed := WithPlacement(ns, test.misplaced)
			require.Equal(t, test.reported, populate.PopulatedCondition(ns).Reason)
			reason := ""
			if condition := populate.PopulatedCondition(placed); condition != nil {
				reason = condition.Reason
			}
			require.Equal(t, test.reason, reason)
			c, _ := clusterOfConfigMaps(t, own)
			compared, err := Compare(t.Context(), c, match.NewIndex(template), []*corev1.Namespace{placed}, Scope{})
			require.NoError(t, err)
			planned := slices.Collect(compared.Namespaces(t.Context()))[0]
			require.Equal(t, test.skipped, planned.Skipped)
			require.Equal(t, test.deletes, slices.ContainsFunc(planned.Changes, populate.Change.Deletes))
		})
	}
}
