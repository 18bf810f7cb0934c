package constraint

import (
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
)

func TestGrantsUse(t *testing.T) {
	rule := func(verb, group, resource string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{
			Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names,
		}
	}
	tests := map[string]struct {
		rule rbacv1.PolicyRule
		want bool
	}{
		"by name":          {rule("use", "policy.nstpl.dev", "securitycontextconstraints", "privileged"), true},
		"all constraints":  {rule("use", "policy.nstpl.dev", "securitycontextconstraints"), true},
		"everything":       {rule("*", "*", "*"), true},
		"another name":     {rule("use", "policy.nstpl.dev", "securitycontextconstraints", "restricted"), false},
		"another verb":     {rule("get", "policy.nstpl.dev", "securitycontextconstraints"), false},
		"another group":    {rule("use", "security.openshift.io", "securitycontextconstraints"), false},
		"another resource": {rule("use", "policy.nstpl.dev", "namespacetemplates"), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, grantsUse(test.rule, "privileged")) })
	}
}
