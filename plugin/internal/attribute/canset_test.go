package attribute

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

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
		"no value":     {"example.com/env", "", canSet{key: "example.com/env", anyValue: true}, ""},
		"empty value":  {"env=", "annotation", canSet{kind: "annotation", key: "env"}, ""},
		"invalid key":  {"a b=c", "", canSet{}, `"a b" is not a valid label or annotation key`},
		"unknown kind": {"env=prod", "field", canSet{}, `invalid --kind "field": must be label or annotation`},
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
	rules := attributes.NewRules([]v1alpha1.ClusterProtectedAttribute{rule("all"), rule("prod", "prod", "canary"),
		rule("release", "stable", "prod")}, nil)
	boundTo := func(names ...string) cluster.BoundSubjects {
		bound := cluster.BoundSubjects{}
		for _, name := range names {
			bound[role(name)] = []cluster.BoundSubject{{Subject: rbacv1.Subject{
				APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "jane",
			}, Binding: name}}
		}
		return bound
	}
	tests := map[string]struct {
		command canSet
		bound   cluster.BoundSubjects
		want    bool
		reason  string
	}{
		"a value of the rule": {
			canSet{value: "prod"}, boundTo("prod"), true, "ClusterRoleBinding prod grants this role to User jane, " +
				`on objects without it, or with one of the values "canary", "prod"`,
		},
		"a value of two rules": {
			canSet{value: "prod"}, boundTo("prod", "release"), true, `without it, or with one of the values "canary", "prod", "stable"`,
		},
		"a value of a rule for some and of one for every value": {
			canSet{value: "prod"}, boundTo("prod", "all"), true,
			"ClusterRoleBinding all grants this role to User jane",
		},
		"a value that the rule does not list": {
			canSet{value: "test"}, boundTo("prod"), false, `"jane" may not set label env`,
		},
		"a rule for every value": {canSet{value: "test"}, boundTo("all"), true,
			"ClusterRoleBinding all grants this role to User jane"},
		"no role": {canSet{value: "prod"}, boundTo(), false, `"jane" may not set label env`},
		"any value, only some are allowed": {
			canSet{anyValue: true}, boundTo("prod"), false,
			`"jane" may set label env only to these values: "canary", "prod"`,
		},
		"any value, all are allowed": {
			canSet{anyValue: true}, boundTo("prod", "all"), true,
			"ClusterRoleBinding all grants this role to User jane",
		},
		"any value, no role": {canSet{anyValue: true}, boundTo(), false, `"jane" may not set label env`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := test.command.judge(rules, env, "team-a", test.bound, attributes.Requester{Name: "jane"})
			require.Equal(t, test.want, got.allowed)
			require.Contains(t, got.reason, test.reason)
			require.Equal(t, strings.Contains(test.reason, "without it"), strings.Contains(got.reason, "without it"))
		})
	}
}

// Several webhooks judge attributes, and some of them judge more.
func TestDryRunFindsTheDenialOfARule(t *testing.T) {
	const denial = "user \"jane\" may not set label env: ask for a binding (ClusterProtectedAttribute env)\n" +
		"user \"jane\" may not set annotation env: ask for a binding (ClusterProtectedAttribute note)"
	for name, test := range map[string]struct{ webhook, message, want string }{
		"alone":                   {"attributes", denial + " (nstpl:attribute-protected)", denial},
		"of one of many webhooks": {"attributes-2", denial + " (nstpl:attribute-protected)", denial},
		"after another denial": {
			"quota-sequencer", "no room (nstpl:quota-exceeded)\n" + denial + " (nstpl:attribute-protected)", denial,
		},
		"before another denial": {
			"attributes", denial + " (nstpl:attribute-protected)\nno room (nstpl:quota-exceeded)", denial,
		},
		"another denial": {"quota-sequencer", "no room (nstpl:quota-exceeded)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
			objects.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(corev1.Resource("configmaps"), "x",
					fmt.Errorf("admission webhook \"%s.policy.nstpl.dev\" denied the request: %s", test.webhook, test.message))
			})
			got, err := (&canSet{key: "env"}).dryRun(t.Context(), &cluster.Cluster{Dynamic: objects}, "team-a")
			require.Equal(t, test.want == "", err != nil)
			require.Equal(t, answer{reason: test.want}, got)
		})
	}
}

// Admission policies may deny what no rule on attributes protects.
func TestOwnKeysAreUnknown(t *testing.T) {
	allowed := answer{allowed: true, reason: "no rule protects it"}
	for _, key := range []string{
		"policy/namespace-template-opt-out", "authorization.k8s.io/creator", "corp.tree.policy.nstpl.dev/depth",
		"policy.nstpl.dev/of-a-later-version", "rules.policy.nstpl.dev/of-an-operators",
	} {
		got := allowed.withOwnGuards(key)
		require.Regexp(t, "^unknown - nstpl uses "+key+" itself, so .* may decide: try it with kubectl and --dry-run=server$", got.String())
		require.False(t, got.allowed)
		require.Equal(t, "no - denied", answer{reason: "denied"}.withOwnGuards(key).String(), "a rule denies it")
	}
	for _, key := range []string{"env", "example.com/env", "policy/other", "authorization.k8s.io/other"} {
		require.Equal(t, "yes - no rule protects it", allowed.withOwnGuards(key).String())
	}
}
