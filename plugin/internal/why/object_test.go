package why

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/rollout"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// The label of a template does not say that the template still declares the object.
func TestObjectsThatNoTemplateDeclares(t *testing.T) {
	t.Parallel()
	former := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "former"}}
	former.Status.Kinds = []v1alpha1.GroupKind{{Kind: "ConfigMap"}}
	next := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "next", Generation: 2}}
	next.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
	next.Spec.Templates = []runtime.RawExtension{
		{Raw: []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "moved"}}`)},
	}
	index := match.NewIndex(former)
	index.SetLayers(next, rollout.New(next, []v1alpha1.TemplateRevision{
		{
			Name: "next-2", Revision: 2, Generation: 2, State: v1alpha1.RolloutPaused,
			StartTime: metav1.NewTime(time.Unix(9, 0)),
		},
		{Name: "next-1", Revision: 1, Generation: 1, State: v1alpha1.RolloutComplete},
	}, map[string]*v1alpha1.NamespaceTemplateSpec{"next-2": &next.Spec, "next-1": {}}))
	misplaced := []corev1.NamespaceCondition{{
		Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionFalse, Reason: populate.ConditionPolicySpaceNotFound,
		Message: "policyspace x not found",
	}}
	for name, test := range map[string]struct {
		kind, name, template string
		conditions           []corev1.NamespaceCondition
		unreadable           []survey.Unreadable
		want                 string
	}{
		"without a label":                {"ConfigMap", "x", "", misplaced, nil, ""},
		"of a template that was deleted": {"ConfigMap", "x", "gone", nil, nil, "template gone does not exist"},
		"of a kind that the template never had": {
			"Secret", "x", "former", nil, nil, "template former never applied a Secret",
		},
		"of a kind that cannot be read": {
			"ConfigMap", "x", "former", misplaced, []survey.Unreadable{{Kind: schema.GroupKind{Kind: "ConfigMap"}}}, "",
		},
		"of a revision that comes": {
			"ConfigMap", "moved", "former", nil, nil,
			"it remains, because revision 2 of template next declares it, which has not reached the namespace",
		},
		"in a namespace whose place is unknown": {
			"ConfigMap", "x", "former", misplaced, nil, "no template declares it, and the operator deletes nothing until the " +
				"place of the namespace in the hierarchy of policy spaces is known: policyspace x not found",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", CreationTimestamp: metav1.NewTime(time.Unix(5, 0))},
				Status:     corev1.NamespaceStatus{Conditions: test.conditions},
			}
			live := &unstructured.Unstructured{}
			live.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(test.kind))
			live.SetName(test.name)
			if test.template != "" {
				live.SetLabels(map[string]string{v1alpha1.TemplateNameLabel: test.template})
			}
			id := populate.ObjectID{GroupKind: schema.GroupKind{Kind: test.kind}, Name: test.name}
			require.Equal(t, test.name == "moved", coming(index, ns, id) != "")
			got := unplanned(index, ns, live, test.unreadable)
			require.Equal(t, test.want, got)
			a := answer{Subject: "x", leftAlone: got}
			explainByMetadata(&a, live)
			require.Equal(t, test.want == "" && test.template != "", a.Summary == "x is managed by nstpl: template "+
				test.template+" declares it", a.Summary)
		})
	}
}
