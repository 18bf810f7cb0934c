package why

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/engine/populate"
)

func TestFailuresThatTheOperatorReported(t *testing.T) {
	t.Parallel()
	reported := populate.ReportedFindings(&corev1.NamespaceCondition{
		Status: corev1.ConditionFalse, Reason: "ObjectsFailed", Message: "configmap/a of template t: denied; " +
			"configmap/b: drifted: data.x changed; limitrange/c: forbidden; secret/e: forbidden",
	})
	a := answer{declared: []string{"configmap/a", "configmap/b", "secret/e"}}
	configMap := func(name string) populate.ObjectID {
		return populate.ObjectID{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: name}
	}
	limitRange := populate.ObjectID{GroupKind: schema.GroupKind{Kind: "LimitRange"}, Name: "c"}
	require.Equal(t, "denied", failureOf(reported, configMap("a")).Message)
	require.Equal(t, "forbidden", failureOf(reported, limitRange).Message)
	require.Nil(t, failureOf(reported, configMap("b")), "drift is not a failure")
	require.Nil(t, failureOf(reported, configMap("d")))
	require.Equal(t, "configmap/a", a.replacementFailure(reported, configMap("d")).Object)
	require.Nil(t, a.replacementFailure(reported, limitRange), "it is the failure to delete the object")
	secret := populate.ObjectID{GroupKind: schema.GroupKind{Kind: "Secret"}, Name: "f"}
	require.Equal(t, "secret/e", a.replacementFailure(reported, secret).Object, "its template has failurePolicy Ignore")
	require.Nil(t, failureOf(nil, configMap("a")))
}

func TestObjectsThatDiffer(t *testing.T) {
	t.Parallel()
	condition := &corev1.NamespaceCondition{
		Status: corev1.ConditionTrue, Reason: "Populated", Message: "2 objects of t; " +
			"configmap/a: is not stored as it is declared: data.x; configmap/b: denied; " +
			"configmap/d: is changed again and again by rival, so it is corrected less and less often",
	}
	const altered = "because admission changes it whenever the operator applies it"
	for _, test := range []struct{ name, reason, want string }{
		{"a", "is not stored as it is declared: data.x", altered},
		{"a", "its declaration changed", "and the operator is about to correct it"}, // after the report
		{"b", "its declaration changed", "and the operator could not apply it"},
		{"c", "its declaration changed", "and the operator is about to correct it"},
		{
			"d", "data.x changed by rival", "and the operator corrects it less and less often, because other clients change it " +
				"again and again",
		},
	} {
		a := answer{Subject: "configmap/" + test.name}
		a.addDiffering(condition, &populate.Change{
			Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Name: test.name, Template: "t", Reason: test.reason,
		})
		require.Equal(t, "configmap/"+test.name+" differs from template t, "+test.want, a.Summary)
		require.Equal(t, test.want == altered, slices.Contains(a.Facts, fact{labelRemedy, "Exempt the object, or the user " +
			"system:serviceaccount:nstpl-system:nstpl-operator, from the webhook or policy that changes it, or declare the " +
			"change in the template. The operator tries again after at most five minutes."}))
	}
}

// The operator corrects a copy at once, also while a change of its source waits.
func TestACopyWhoseSourceWaits(t *testing.T) {
	t.Parallel()
	const delay = "changes of the source configmap/a in namespace vault wait until 2026-11-30T12:00:00Z, so that its " +
		"copies do not fill etcd"
	for isDrifted, want := range map[bool]string{false: ", unless the change of its source waits", true: ""} {
		a := answer{Subject: "configmap/a", delay: delay}
		a.addDiffering(nil, &populate.Change{
			Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Name: "a", Template: "t", Reason: "its declaration changed",
			Drifted: isDrifted,
		})
		require.Equal(t, "configmap/a differs from template t, and the operator is about to correct it"+want, a.Summary)
		require.Equal(t, !isDrifted, slices.Contains(a.Facts, fact{labelState, delay}))
	}
}

// The operator has just corrected an object that another client changes again in a moment.
func TestAFightOverAnObjectThatIsAsDeclared(t *testing.T) {
	t.Parallel()
	const fought = "is changed again and again by rival, so it is corrected less and less often"
	condition := &corev1.NamespaceCondition{
		Status: corev1.ConditionTrue, Reason: "Drifted", Message: "2 objects of t; configmap/a: " + fought,
	}
	for name, want := range map[string][]fact{"a": {{labelState, fought}}, "b": nil} {
		a := answer{}
		a.addFought(condition, populate.ObjectID{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: name})
		require.Equal(t, want, a.Facts)
	}
}

func TestObjectsForWhichAConditionHasNoRoom(t *testing.T) {
	t.Parallel()
	a := answer{Subject: "configmap/a"}
	a.addDiffering(&corev1.NamespaceCondition{Status: corev1.ConditionTrue, Message: "configmap/b: denied; …"},
		&populate.Change{
			Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Name: "a", Template: "t", Reason: "data.x changed",
		})
	require.Equal(t, "configmap/a differs from template t, and the operator is about to correct it, unless it could not",
		a.Summary)
}

// An object of another name is deleted, too, if a template is authoritative for the kind.
func TestHowToKeepAnObject(t *testing.T) {
	t.Parallel()
	for isUndeclared, want := range map[bool]string{
		false: "To keep it, declare it in a template again, or create an object of another name.",
		true:  "To keep it, declare it in a template that selects the namespace.",
	} {
		a := answer{}
		a.explainDeleted(nil, &populate.Change{Action: populate.Prune, Undeclared: isUndeclared})
		require.Equal(t, []fact{{labelRemedy, want}}, a.Facts)
	}
}

func TestReaderRole(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ resource, namespace, want string }{
		{"namespacetemplates", "", "the ClusterRole nstpl-viewer"},
		{"templateexemptions", "", "the ClusterRole nstpl-viewer"},
		{"templateexemptions", "team-a", "the ClusterRole view in namespace team-a"},
		{"protectedattributes", "team-a", "the ClusterRole view in namespace team-a"},
		{"protectedattributes", "", "the ClusterRole nstpl-auditor"},
		{"policyrepositories", "", "the ClusterRole nstpl-auditor"},
		{"namespacetemplates/status", "", "the ClusterRole nstpl-auditor"},
	} {
		require.Equal(t, test.want, readerRole(test.resource, test.namespace))
	}
}
