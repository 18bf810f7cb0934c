package integration_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// The copy of a StatefulSet in a ControllerRevision is protected like the StatefulSet.
func TestAttributesOfControllerRevisionsAreProtected(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	ns := s.createNamespace("a").Name
	rule := s.attributeRule(v1alpha1.LabelAttribute, "tier", v1alpha1.ClusterRoleKind, "nobody-holds-it")
	rule.AttributeName = "tier"
	s.protectAttribute("", "tier", rule)
	jane := s.newAllVerbsClient("jane")
	for spec, allowed := range map[string]bool{
		`{"template": {"metadata": {"labels": {"tier": "x"}}}}`:                                                         false,
		`{"volumeClaimTemplates": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b", "labels": {"tier": "x"}}}]}`: false,
		`{"Template": {"metadata": {"Labels": {"tier": "x"}}}}`:                                                         false,
		`{"volumeClaimTemplates": [{"metadata": {"name": "a", "labels": {"other": "x"}}}]}`:                             true,
	} {
		revision := &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web-1"}, Revision: 1,
			Data: runtime.RawExtension{Raw: []byte(`{"spec": ` + spec + `}`)},
		}
		err := jane.Create(t.Context(), revision, client.DryRunAll)
		require.Equal(t, allowed, err == nil, "%s: %v", spec, err)
		require.Equal(t, !allowed, apierrors.IsForbidden(err), "%s: %v", spec, err)
	}
}
