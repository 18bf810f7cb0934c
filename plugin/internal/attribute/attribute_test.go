package attribute

import (
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

func TestShownRule(t *testing.T) {
	role := v1alpha1.RoleReference{APIGroup: rbacv1.GroupName, Kind: v1alpha1.ClusterRoleKind, Name: "ops"}
	bound := cluster.BoundSubjects{role: {
		{Subject: rbacv1.Subject{Kind: rbacv1.UserKind, Name: "jane"}, Binding: "ops"},
		{Subject: rbacv1.Subject{Kind: rbacv1.UserKind, Name: "joe"}, Namespace: "team-a", Binding: "ops"},
		{Subject: rbacv1.Subject{Kind: rbacv1.UserKind, Name: "jim"}, Namespace: "team-b", Binding: "ops"},
	}}
	enforced := func(generation int64) v1alpha1.ProtectedAttributeStatus {
		return v1alpha1.ProtectedAttributeStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.AttributeEnforced, Status: metav1.ConditionTrue, ObservedGeneration: generation},
		}}
	}
	tests := map[string]struct {
		namespace string
		status    v1alpha1.ProtectedAttributeStatus
		bound     cluster.BoundSubjects
		enforced  string
		subjects  string
	}{
		"in the cluster":      {"", enforced(2), bound, "True", "User jane, User joe in team-a, User jim in team-b"},
		"in a namespace":      {"team-a", enforced(2), bound, "True", "User jane, User joe"},
		"an older generation": {"", enforced(1), cluster.BoundSubjects{}, "Unknown", "<none>"},
		"unknown subjects":    {"", enforced(2), nil, "True", "<unknown>"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			meta := &metav1.ObjectMeta{Name: "r", Namespace: test.namespace, Generation: 2}
			shown := newShownRule("ClusterProtectedAttribute", meta, v1alpha1.AttributeRule{RoleRef: role}, test.status)
			shown.Subjects = subjectsOf(role, test.namespace, test.bound)
			require.Equal(t, test.enforced, shown.Enforced)
			require.Equal(t, test.subjects, shown.subjects(false))
		})
	}
}

func TestSubjectsAreAbbreviated(t *testing.T) {
	rule := shownRule{}
	for _, name := range []string{"a", "b", "c", "d"} {
		rule.Subjects = append(rule.Subjects, shownSubject{Kind: "User", Name: name})
	}
	require.Equal(t, "User a, User b, User c, User d", rule.subjects(false))
	rule.Subjects = append(rule.Subjects, shownSubject{Kind: "User", Name: "e"})
	require.Equal(t, "User a, User b, User c, 2 more", rule.subjects(false))
	require.Equal(t, "User a, User b, User c, User d, User e", rule.subjects(true))
}
