package populate

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/component-helpers/auth/rbac/validation"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
)

// bindingTo returns a RoleBinding "b" to a ClusterRole.
func bindingTo(role string, users ...string) string {
	subjects := ""
	for _, user := range users {
		subjects += "{apiGroup: rbac.authorization.k8s.io, kind: User, name: " + user + "},"
	}
	return "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b}, roleRef: " +
		"{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: " + role + "}, subjects: [" + subjects + "]}"
}

// renamed returns a RoleBinding with another name.
func renamed(binding string) string { return strings.Replace(binding, "{name: b}", "{name: other}", 1) }

// roleOf returns a Role "r" with one rule about Secrets.
func roleOf(verbs string) string {
	return "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r}, " +
		"rules: [{apiGroups: [''], resources: [secrets], verbs: [" + verbs + "]}]}"
}

// broken is an object because of which a template cannot be rendered.
const broken = "{kind: broken}"

func TestNamespacesBehindKeepOnlyGrantsOfTheNewestRevision(t *testing.T) {
	config := "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {key: old}}"
	for name, c := range map[string]struct {
		earlier, newest, want []string
	}{
		"unchanged": {
			[]string{bindingTo("x", "a")}, []string{bindingTo("x", "a")},
			[]string{bindingTo("x", "a")},
		},
		"no longer declared": {
			[]string{config, bindingTo("x", "a")}, nil,
			[]string{config},
		},
		"added": {
			nil, []string{bindingTo("x", "a")},
			nil,
		},
		"subject removed and added": {
			[]string{bindingTo("x", "a", "b")}, []string{bindingTo("x", "b", "c")},
			[]string{bindingTo("x", "b")},
		},
		"all subjects replaced": {
			[]string{bindingTo("x", "a")}, []string{bindingTo("x", "b")},
			nil,
		},
		"another role": {
			[]string{bindingTo("x", "a")}, []string{bindingTo("y", "a")},
			nil,
		},
		"another name": {
			[]string{bindingTo("x", "a", "b")}, []string{renamed(bindingTo("x", "b", "c"))},
			[]string{bindingTo("x", "b")},
		},
		"divided into two": {
			[]string{bindingTo("x", "a", "b")}, []string{bindingTo("x", "a"), renamed(bindingTo("x", "b"))},
			[]string{bindingTo("x", "a", "b")},
		},
		"another name and another role": {
			[]string{bindingTo("x", "a")}, []string{renamed(bindingTo("y", "a"))},
			nil,
		},
		"subject added": {
			[]string{bindingTo("x", "a")}, []string{bindingTo("x", "a", "b")},
			[]string{bindingTo("x", "a")},
		},
		"verbs removed": {
			[]string{roleOf("get, list")}, []string{roleOf("list, watch")},
			[]string{roleOf("list")},
		},
		"all verbs reduced": {
			[]string{roleOf("'*'")}, []string{roleOf("get")},
			[]string{roleOf("get")},
		},
		"all verbs allowed": {
			[]string{roleOf("get")}, []string{roleOf("'*'")},
			[]string{roleOf("get")},
		},
		"other objects are kept": {
			[]string{config}, nil,
			[]string{config},
		},
		"newest cannot be rendered": {
			[]string{bindingTo("x", "a")}, []string{bindingTo("y", "b"), broken},
			[]string{bindingTo("x", "a")},
		},
		"newest cannot be rendered, and may declare the name": {
			[]string{bindingTo("x", "a")},
			[]string{strings.Replace(bindingTo("y"), "{name: b}", "{name: $(CREATOR)}", 1), broken},
			[]string{bindingTo("x", "a")},
		},
		"newest cannot be rendered, and declares another name": {
			[]string{config, bindingTo("x", "a"), roleOf("get")}, []string{renamed(bindingTo("x", "a")), broken},
			[]string{config},
		},
		"creator not known, and new": {
			nil, []string{bindingTo("x", "$(CREATOR)")},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := teamA()
			newest := templateOf(t, "t", c.newest...)
			newest.Generation = 2
			declared := Declare(render.NewCache(), ns, []*v1alpha1.NamespaceTemplate{templateOf(t, "t", c.earlier...)},
				Inputs{Newest: []*v1alpha1.NamespaceTemplate{newest}, IsBehind: true})
			want := declare(ns, templateOf(t, "t", c.want...))
			require.Len(t, declared.Objects, len(want.Objects))
			for i, object := range declared.Objects {
				require.Equal(t, want.Objects[i].Object, object.Object)
				require.Equal(t, want.Objects[i].Hash, object.Hash)
			}
		})
	}
}

func TestRevokedBindingsArePrunedAlthoughAnotherRevisionIsComing(t *testing.T) {
	before, after := templateOf(t, "t", bindingTo("x", "a")), templateOf(t, "t", bindingTo("y", "a"))
	after.Generation = 2
	before.Status.Kinds = []v1alpha1.GroupKind{{Group: rbacv1.GroupName, Kind: "RoleBinding"}}
	newest := []*v1alpha1.NamespaceTemplate{after}
	cache := render.NewCache()
	existing := applied(t, declare(teamA(), before).Objects[0])
	declared := Declare(cache, teamA(), []*v1alpha1.NamespaceTemplate{before}, Inputs{Newest: newest, IsBehind: true})
	plan := NewPlan(declared, match.NewIndex(before), Observed{
		Objects: []*metav1.PartialObjectMetadata{existing}}).Keeping(cache, newest)
	require.Len(t, plan.Changes, 1)
	require.Equal(t, Prune, plan.Changes[0].Action)
	require.Contains(t, plan.Changes[0].Reason, "takes it away")
}

// randomRules returns rules of few names, so that they often have something in common.
func randomRules(random *rand.Rand) []rbacv1.PolicyRule {
	some := func(from ...string) []string {
		picked := []string{}
		for range 1 + random.IntN(2) {
			picked = append(picked, from[random.IntN(len(from))])
		}
		return picked
	}
	var rules []rbacv1.PolicyRule
	for range random.IntN(4) {
		rule := rbacv1.PolicyRule{
			APIGroups: some("", "apps", "*"), Verbs: some("get", "list", "*"),
			Resources: some("pods", "pods/log", "x/log", "*/log", "*"),
		}
		if random.IntN(2) == 0 {
			rule.ResourceNames = some("a", "b", "c")
		}
		rules = append(rules, rule)
	}
	return rules
}

func TestNarrowedRolesGrantNothingThatEitherRevisionDoesNot(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	role := func(rules []rbacv1.PolicyRule) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{"kind": "Role"}}
		list := []any{}
		for _, rule := range rules {
			fields := map[string]any{}
			for field, items := range map[string][]string{
				"apiGroups": rule.APIGroups, "resources": rule.Resources, "verbs": rule.Verbs,
				"resourceNames": rule.ResourceNames,
			} {
				var values []any
				for _, item := range items {
					values = append(values, item)
				}
				if len(values) > 0 {
					fields[field] = values
				}
			}
			list = append(list, fields)
		}
		object.Object["rules"] = list
		return object
	}
	for i := range 20000 {
		before, after := randomRules(random), randomRules(random)
		content, err := narrowRole(role(before), role(after))
		require.NoError(t, err)
		var narrowed rbacv1.Role
		require.NoError(t, readAs(&unstructured.Unstructured{Object: content}, &narrowed))
		for name, rules := range map[string][]rbacv1.PolicyRule{"earlier": before, "newest": after} {
			covered, beyond := validation.Covers(rules, narrowed.Rules)
			require.True(t, covered, fmt.Sprintf("%d: grants more than the %s revision: %v", i, name, beyond))
		}
		if covered, _ := validation.Covers(after, before); covered && len(after) == 1 {
			same, _ := validation.Covers(narrowed.Rules, before)
			require.True(t, same, "%d: %v and %v: %v", i, before, after, narrowed.Rules)
		}
	}
}
