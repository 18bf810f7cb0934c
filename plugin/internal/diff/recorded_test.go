package diff

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// Without the right to read templates, the same objects are differences as with it.
func TestDifferencesThatTheOperatorRecorded(t *testing.T) {
	t.Parallel()
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "x", Namespace: "team-a", Labels: map[string]string{v1alpha1.TemplateNameLabel: "t"},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: v1alpha1.FieldManager, Operation: metav1.ManagedFieldsOperationApply,
		}},
	}}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	for name, test := range map[string]struct {
		finding     string
		isMissing   bool
		unlisted    []string
		isNamespace bool
		action      action
		isDifferent bool
		fails       string
	}{
		"drift":          {finding: "drifted: data.a changed", action: actionLeaveAlone, isDifferent: true},
		"left out":       {finding: "left out: the creator is unknown", action: actionLeaveAlone},
		"declared twice": {finding: "declared by templates t and u: u wins", action: actionLeaveAlone},
		"a grant stays":  {finding: "stays, although no template declares it: a reason", action: actionLeaveAlone},
		"not created, with failurePolicy Ignore": {
			finding: "forbidden", isMissing: true, action: actionCreate, isDifferent: true, fails: "forbidden",
		},
		"not applied, of a kind that the user may not list": {
			finding: "forbidden", isMissing: true, unlisted: []string{"configmaps"}, action: actionUnknown, isDifferent: true,
			fails: "forbidden",
		},
		"a label of the namespace": {
			finding: "forbidden", isMissing: true, isNamespace: true, action: actionUnknown, isDifferent: true,
			fails: "forbidden",
		},
		"not applied with failurePolicy Ignore, or not deleted": {
			finding: "forbidden", action: actionUnknown, isDifferent: true, fails: "forbidden",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			named := "configmap/x"
			if test.isNamespace {
				named = "namespace/team-a"
			}
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}
			ns.Status.Conditions = []corev1.NamespaceCondition{{
				Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionTrue,
				Message: "1 object of t; " + named + ": " + test.finding,
			}}
			populated := survey.Populated{Unlisted: test.unlisted}
			if !test.isMissing {
				populated.Objects = append(populated.Objects, object)
			}
			items := recordedItems(ns, populated)
			require.Len(t, items, 1)
			require.Equal(t, test.action, items[0].Action)
			require.Equal(t, test.isDifferent, items[0].Different)
			require.Equal(t, test.fails, items[0].Fails)
		})
	}
}

// What the operator recorded is complete without the kinds that the user may not list, but not without a namespace.
func TestNamespacesThatTheUserMayNotRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		readErrs   []error
		isComplete bool
	}{
		"none":        {nil, true},
		"a namespace": {[]error{errors.New(`namespaces "other" is forbidden`)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			session := cli.NewSession(genericiooptions.NewTestIOStreamsDiscard())
			r, err := (&diff{}).recorded(t.Context(), nil, nil, test.readErrs)
			require.NoError(t, err)
			require.NotEmpty(t, r.Unknown)
			require.Equal(t, test.isComplete, r.isComplete())
			all := merge([]cli.Reply[*report]{{Source: cli.Source{Session: session, Context: "test"}, Value: r}})
			require.Equal(t, test.isComplete, all.isComplete())
		})
	}
}

func TestNamespacesOfWhichTheRecordLacksDifferences(t *testing.T) {
	t.Parallel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}
	require.Contains(t, unrecorded(ns), "the operator has not reported on namespace/team-a")
	for message, want := range map[string]string{
		"1 object of t":                             "",
		"1 object of t; configmap/x: drifted: a":    "",
		"1 object of t; configmap/x: drifted: a; …": "the Populated condition of namespace/team-a has no room for all findings",
	} {
		ns.Status.Conditions = []corev1.NamespaceCondition{{Type: v1alpha1.NamespacePopulated, Message: message}}
		require.Equal(t, want, unrecorded(ns))
	}
}
