package survey

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// The worst that is true of a namespace is its state.
func TestStateOf(t *testing.T) {
	t.Parallel()
	type option = func(*corev1.Namespace)
	condition := func(status corev1.ConditionStatus, reason, message string) option {
		return func(ns *corev1.Namespace) {
			ns.Status.Conditions = []corev1.NamespaceCondition{{
				Type: v1alpha1.NamespacePopulated, Status: status, Reason: reason, Message: message,
			}}
		}
	}
	held := func(ns *corev1.Namespace) { ns.Labels = map[string]string{v1alpha1.InitializingLabel: "true"} }
	failed := condition(corev1.ConditionFalse, populate.ConditionObjectsFailed, "quota/x: no")
	retrying := condition(corev1.ConditionFalse, populate.ConditionRetrying, "quota/x: no")
	populated := condition(corev1.ConditionTrue, populate.ConditionPopulated, "")
	drifted := condition(corev1.ConditionTrue, populate.ConditionPopulated, "quota/x: drifted: spec changed by editor")
	undeclared := condition(corev1.ConditionTrue, populate.ConditionPopulated, "role.rbac.authorization.k8s.io/c: no "+
		"template declares it, and template base is authoritative for its kind; authoritativePolicy is Report")
	ignored := populate.Finding{
		Object: populate.ObjectID{GroupKind: schema.GroupKind{Kind: "Secret"}, Name: "x"}, Severity: populate.Warning,
		Reason: populate.FindingFailed, Message: strings.Repeat("no", 99),
	}
	shortened := condition(corev1.ConditionTrue, populate.ConditionPopulated,
		populate.Message(nil, slices.Repeat([]populate.Finding{ignored}, 9), 1000))
	fought := condition(corev1.ConditionTrue, populate.ConditionPopulated, "quota/x: is changed again and again by y")
	warning := condition(corev1.ConditionTrue, populate.ConditionPopulated, "quota/x: declared by templates a, b")
	excluded := condition(corev1.ConditionFalse, populate.ConditionExcluded, "the operator excludes the namespace")
	optOut := func(ns *corev1.Namespace) {
		ns.Annotations = map[string]string{v1alpha1.OptOutAnnotation: "true"}
	}
	terminating := func(ns *corev1.Namespace) { ns.Status.Phase = corev1.NamespaceTerminating }
	for name, test := range map[string]struct {
		options []option
		want    State
	}{
		"no condition": {nil, NotReported}, "held": {[]option{held}, Held}, "failed and held": {[]option{held, failed}, Failed},
		"retrying and held": {[]option{held, retrying}, Retrying}, "populated and held": {[]option{held, populated}, Held},
		"populated": {[]option{populated}, InOrder}, "drifted": {[]option{drifted}, Drifted},
		"without room for drift": {[]option{shortened}, Unknown}, "fought over": {[]option{fought}, Drifted},
		"an added object": {[]option{undeclared}, Drifted}, "another warning": {[]option{warning}, InOrder},
		"opted out": {[]option{failed, optOut}, OptedOut}, "being deleted": {[]option{failed, terminating}, Excluded},
		"excluded by a flag of the operator": {[]option{excluded}, Excluded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			for _, apply := range test.options {
				apply(ns)
			}
			require.Equal(t, test.want, StateOf(ns))
		})
	}
}

// A namespace that a flag of the operator excludes has nothing of the templates that select it.
func TestExcludedNamespacesDeclareNothing(t *testing.T) {
	t.Parallel()
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "base"}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
	index := match.NewIndex(template)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	templates, reason := Matching(index, ns)
	require.Len(t, templates, 1)
	require.Empty(t, reason)
	ns.Status.Conditions = []corev1.NamespaceCondition{{
		Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionFalse,
		Reason: populate.ConditionExcluded, Message: "the operator excludes the namespace",
	}}
	templates, reason = Matching(index, ns)
	require.Empty(t, templates)
	require.Equal(t, "the operator excludes the namespace", reason)
}
