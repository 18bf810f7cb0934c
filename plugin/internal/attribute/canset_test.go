package attribute

import (
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

func TestParse(t *testing.T) {
	tests := map[string]struct {
		text, kind string
		want       canSet
		err        string
	}{
		"a value":      {"env=prod", "label", canSet{kind: "label", key: "env", value: "prod"}, ""},
		"no value":     {"example.com/env", "", canSet{key: "example.com/env", any: true}, ""},
		"empty value":  {"env=", "annotation", canSet{kind: "annotation", key: "env"}, ""},
		"not a name":   {"a b=c", "", canSet{}, `"a b" can't be the name of a label or annotation`},
		"unknown kind": {"env=prod", "field", canSet{}, `--kind is "field": it can be label or annotation`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := &canSet{kind: test.kind}
			err := o.parse(test.text)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, *o)
		})
	}
}

func TestJudge(t *testing.T) {
	role := func(name string) v1alpha1.RoleReference {
		return v1alpha1.RoleReference{APIGroup: rbacv1.GroupName, Kind: v1alpha1.ClusterRoleKind, Name: name}
	}
	rule := func(name string, values ...string) v1alpha1.ClusterProtectedAttribute {
		return v1alpha1.ClusterProtectedAttribute{ObjectMeta: metav1.ObjectMeta{Name: name},
			AttributeRule: v1alpha1.AttributeRule{
				AttributeKind: v1alpha1.LabelAttribute, AttributeName: "env", ProtectedValues: values,
				RoleRef: role(name),
			}}
	}
	env := attributes.Attribute{Kind: v1alpha1.LabelAttribute, Name: "env"}
	rules := attributes.NewRules([]v1alpha1.ClusterProtectedAttribute{rule("all"), rule("prod", "prod", "canary")}, nil)
	holds := func(names ...string) cluster.Holdings {
		holdings := cluster.Holdings{}
		for _, name := range names {
			holdings[role(name)] = []cluster.Holding{{Subject: rbacv1.Subject{
				APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "jane",
			}, Binding: name}}
		}
		return holdings
	}
	tests := map[string]struct {
		question canSet
		holdings cluster.Holdings
		want     bool
		reason   string
	}{
		"a value that the rule has": {
			canSet{value: "prod"}, holds("prod"), true, "which ClusterRoleBinding prod gives to User jane",
		},
		"a value that the rule has not": {canSet{value: "test"}, holds("prod"), false, `"jane" may not set label env`},
		"a rule for every value": {canSet{value: "test"}, holds("all"), true,
			"which ClusterRoleBinding all gives to User jane"},
		"no role": {canSet{value: "prod"}, holds(), false, `"jane" may not set label env`},
		"any value, some opened": {
			canSet{any: true}, holds("prod"), false, `"jane" may set label env to these values only: "canary", "prod"`,
		},
		"any value, all opened": {
			canSet{any: true}, holds("prod", "all"), true, "which ClusterRoleBinding all gives to User jane",
		},
		"any value, no role": {canSet{any: true}, holds(), false, `"jane" may not set label env`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := test.question.judge(rules, env, "team-a", test.holdings, attributes.Requester{Name: "jane"})
			require.Equal(t, test.want, got.allowed)
			require.Contains(t, got.reason, test.reason)
		})
	}
}
