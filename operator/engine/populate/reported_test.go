package populate

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestReportedFindingsAreThoseOfTheCondition(t *testing.T) {
	t.Parallel()
	settings := ObjectID{schema.GroupKind{Kind: "ConfigMap"}, "settings"}
	binding := ObjectID{schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}, "team:viewers"}
	findings := []Finding{
		{
			Object: settings, Template: "defaults", Severity: Error,
			Message: "configmaps \"settings\" is forbidden: quota; exceeded",
		},
		{Template: "broken", Severity: Error, Message: "template broken: it has no name"},
		{
			Object: binding, Severity: Warning,
			Message: "drifted: subjects changed by kubectl-edit; driftPolicy is Report",
		},
	}
	parts := []string{"2 objects of defaults, more"}
	for _, finding := range findings {
		parts = append(parts, finding.String())
	}
	require.Equal(t, []Reported{
		{
			Object: "configmap/settings", Template: "defaults",
			Message: "configmaps \"settings\" is forbidden: quota; exceeded; template broken: it has no name",
		},
		{
			Object:  "rolebinding.rbac.authorization.k8s.io/team:viewers",
			Message: "drifted: subjects changed by kubectl-edit; driftPolicy is Report",
		},
	}, ReportedFindings(&corev1.NamespaceCondition{Message: strings.Join(parts, "; ")}))
	require.Equal(t, []Reported{{Object: "configmap/settings", Message: "drifted: data.a changed"}},
		ReportedFindings(&corev1.NamespaceCondition{Message: "configmap/settings: drifted: data.a changed"}))
	require.Empty(t, ReportedFindings(&corev1.NamespaceCondition{Message: "2 objects of defaults, more"}))
	require.Empty(t, ReportedFindings(nil))
}
