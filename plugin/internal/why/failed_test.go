package why

import (
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
