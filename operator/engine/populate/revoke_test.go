package populate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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

// bindingToRobotOf returns a RoleBinding of the ServiceAccount robot of a namespace to a ClusterRole.
func bindingToRobotOf(namespace string) string {
	return strings.Replace(bindingTo("x"), "[]", "[{kind: ServiceAccount, name: robot, namespace: "+namespace+"}]", 1)
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

// behind are the inputs for a namespace that has not got the newest revision of a template. If isKeeping is set, it
// keeps the grants that the revision takes away.
func behind(newest *v1alpha1.NamespaceTemplate, isKeeping ...bool) Inputs {
	inputs := Inputs{Newest: match.Newest{Templates: []*v1alpha1.NamespaceTemplate{newest}, IsBehind: true}}
	if slices.Contains(isKeeping, true) {
		inputs.Newest.Keeping = []string{newest.Name}
	}
	return inputs
}

// What a namespace keeps because it has it comes to no namespace that does not.
func TestGrantsOfEarlierRevisionsAreKeptOnlyWhereTheyAre(t *testing.T) {
	for name, c := range map[string]struct {
		earlier, newest []string
		isKeeping       bool
		// has is what the namespace has: nothing, if it has entered the template just now.
		has, want []string
		// remains says that what the namespace has is not touched.
		remains bool
	}{
		"kept": {
			earlier: []string{bindingTo("x", "a", "b")}, newest: []string{bindingTo("x", "b")}, isKeeping: true,
			has: []string{bindingTo("x", "a", "b")}, want: []string{bindingTo("x", "a", "b")},
		},
		"kept, and no longer declared": {
			earlier: []string{bindingTo("x", "a")}, isKeeping: true,
			has: []string{bindingTo("x", "a")}, want: []string{bindingTo("x", "a")},
		},
		"entered": {
			earlier: []string{bindingTo("x", "a", "b")}, newest: []string{bindingTo("x", "b")}, isKeeping: true,
			want: []string{bindingTo("x", "b")},
		},
		"entered, and no longer declared": {
			earlier: []string{bindingTo("x", "a")}, isKeeping: true,
		},
		"had the newest revision": {
			earlier: []string{bindingTo("x", "a", "b")}, newest: []string{bindingTo("x", "b", "c")}, isKeeping: true,
			has: []string{bindingTo("x", "b", "c")}, want: []string{bindingTo("x", "b")},
		},
		"has another one, and no longer declared": {
			earlier: []string{bindingTo("x", "a", "b")}, isKeeping: true,
			has: []string{bindingTo("x", "b")}, remains: true,
		},
		"newest cannot be rendered": {
			earlier: []string{bindingTo("x", "a"), roleOf("get")}, newest: []string{bindingTo("y"), roleOf("list"), broken},
			has: []string{bindingTo("x", "a"), roleOf("get")}, want: []string{bindingTo("x", "a"), roleOf("get")},
		},
		"entered, and newest cannot be rendered": {
			earlier: []string{bindingTo("x", "a"), roleOf("get")}, newest: []string{bindingTo("y"), roleOf("list"), broken},
		},
		"ended before newest could no longer be rendered": {
			earlier: []string{bindingTo("x", "a", "b")}, newest: []string{bindingTo("x", "b"), broken},
			has: []string{bindingTo("x", "b")}, remains: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := teamA()
			earlier, newest := templateOf(t, "t", c.earlier...), templateOf(t, "t", c.newest...)
			newest.Generation = 2
			earlier.Status.Kinds = []v1alpha1.GroupKind{
				{Group: rbacv1.GroupName, Kind: "RoleBinding"}, {Group: rbacv1.GroupName, Kind: "Role"},
			}
			var observed Observed
			for _, object := range declare(ns, templateOf(t, "t", c.has...)).Objects {
				observed.Objects = append(observed.Objects, applied(t, object))
			}
			declared := Declare(render.NewCache(), ns, []*v1alpha1.NamespaceTemplate{earlier}, behind(newest, c.isKeeping))
			plan := NewPlan(declared, match.NewIndex(earlier), observed)
			want := declare(ns, templateOf(t, "t", c.want...))
			require.Len(t, plan.Objects, len(want.Objects))
			for i, object := range plan.Objects {
				require.Equal(t, want.Objects[i].Object, object.Object)
			}
			if c.remains {
				require.Len(t, plan.Changes, 1)
				require.Equal(t, LeaveAlone, plan.Changes[0].Action, plan.Changes[0].Reason)
				require.Contains(t, plan.Changes[0].Reason, "remains until the rollout")
			}
		})
	}
}

// A template does not keep an object that another template has put in place of its own.
func TestAnObjectOfAnotherTemplateIsNotKept(t *testing.T) {
	ns := teamA()
	earlier, newest, other := templateOf(t, "t", bindingTo("x", "a")), templateOf(t, "t"), templateOf(t, "u")
	newest.Generation = 2
	earlier.Status.Kinds = []v1alpha1.GroupKind{{Group: rbacv1.GroupName, Kind: "RoleBinding"}}
	other.Status.Kinds = earlier.Status.Kinds
	inputs := behind(newest, true)
	inputs.Newest.Templates = append(inputs.Newest.Templates, other)
	declared := Declare(render.NewCache(), ns, []*v1alpha1.NamespaceTemplate{earlier, other}, inputs)
	has := applied(t, declare(ns, templateOf(t, "u", bindingTo("x", "b"))).Objects[0])
	plan := NewPlan(declared, match.NewIndex(earlier, other), Observed{Objects: []*metav1.PartialObjectMetadata{has}})
	require.Len(t, plan.Changes, 1)
	require.Equal(t, Prune, plan.Changes[0].Action, plan.Changes[0].Reason)
	require.Empty(t, plan.Objects)
}

// A copy that the newest revision does not make remains, and comes to no other namespace.
func TestCopiesOfEarlierRevisionsAreKeptOnlyWhereTheyAre(t *testing.T) {
	earlier, newest := copying(t), templateOf(t, "t")
	newest.Name, newest.Generation = earlier.Name, earlier.Generation+1
	declare := func(newest *v1alpha1.NamespaceTemplate) Declared {
		inputs := behind(newest)
		inputs.Sources = always(NewSource(pullRef, pullSecret("a2V5")))
		return Declare(render.NewCache(), teamA(), []*v1alpha1.NamespaceTemplate{earlier}, inputs)
	}
	plan := func(newest *v1alpha1.NamespaceTemplate, has ...*metav1.PartialObjectMetadata) []Object {
		return NewPlan(declare(newest), match.NewIndex(earlier), Observed{Objects: has}).Objects
	}
	copies := plan(earlier)
	require.Len(t, copies, 1, "the newest revision makes the copy, too")
	require.Empty(t, plan(newest), "a namespace that enters")
	has := applied(t, copies[0])
	has = new(Reducer).Reduce(has).Metadata(has.TypeMeta) // as the operator holds it
	require.Len(t, plan(newest, has), 1, "a namespace that has it")
	other := copying(t, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Sources[0].Namespace = "other" })
	other.Generation = 2
	require.Empty(t, plan(other), "the newest revision copies another source under the same name")
}

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
		"ServiceAccount of another namespace": {
			[]string{bindingToRobotOf("a")}, []string{bindingToRobotOf("b")},
			nil,
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
				behind(newest))
			existing := map[ObjectID]*metav1.PartialObjectMetadata{}
			for _, object := range declare(ns, templateOf(t, "t", c.earlier...)).Objects {
				existing[object.ID()] = applied(t, object)
			}
			declared.keep(existing)
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
	cache := render.NewCache()
	existing := applied(t, declare(teamA(), before).Objects[0])
	declared := Declare(cache, teamA(), []*v1alpha1.NamespaceTemplate{before}, behind(after))
	plan := NewPlan(declared, match.NewIndex(before), Observed{
		Objects: []*metav1.PartialObjectMetadata{existing}}).Keeping(cache, []*v1alpha1.NamespaceTemplate{after})
	require.Len(t, plan.Changes, 1)
	require.Equal(t, Prune, plan.Changes[0].Action)
	require.Contains(t, plan.Changes[0].Reason, "takes it away")
}

// A grant that another template declares next is not deleted before. One that only has its hash is deleted.
func TestOnlyAnUnchangedGrantIsKeptForAComingTemplate(t *testing.T) {
	binding := bindingTo("x", "a")
	before, after := templateOf(t, "before"), templateOf(t, "after", binding)
	before.Status.Kinds = []v1alpha1.GroupKind{{Group: rbacv1.GroupName, Kind: "RoleBinding"}}
	before.Spec.Authoritative = []v1alpha1.GroupKind{{Group: rbacv1.GroupName, Kind: "RoleBinding"}}
	cache := render.NewCache()
	for name, test := range map[string]struct {
		change func(existing *metav1.PartialObjectMetadata)
		isKept bool
	}{
		"unchanged": {func(*metav1.PartialObjectMetadata) {}, true},
		"with other subjects": {func(o *metav1.PartialObjectMetadata) {
			o.ManagedFields[0].FieldsV1.SetRawString(strings.Replace(o.ManagedFields[0].FieldsV1.GetRawString(),
				`"f:subjects":{}`, `"f:others":{}`, 1))
		}, false},
		"without managedFields": {func(o *metav1.PartialObjectMetadata) { o.ManagedFields = nil }, false},
		"of another hash": {func(o *metav1.PartialObjectMetadata) {
			o.Annotations[v1alpha1.HashAnnotation] = "another"
		}, false},
		"of a user, with the hash of the coming one": {func(o *metav1.PartialObjectMetadata) {
			content := after.DeepCopy()
			content.Name = "" // as without the label
			o.Annotations[v1alpha1.HashAnnotation] = declare(teamA(), content).Objects[0].Hash
			o.Labels, o.ManagedFields = nil, nil
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			existing := applied(t, declare(teamA(), templateOf(t, "before", binding)).Objects[0])
			require.Contains(t, existing.ManagedFields[0].FieldsV1.GetRawString(), `"f:subjects":{}`)
			test.change(existing)
			observed := Observed{Objects: []*metav1.PartialObjectMetadata{existing}}
			if labelOf(existing) == "" {
				observed = Observed{Others: observed.Objects}
			}
			plan := NewPlan(declare(teamA(), before), match.NewIndex(before, after), observed)
			require.Len(t, plan.Changes, 1)
			require.Equal(t, Prune, plan.Changes[0].Action)
			kept := plan.Keeping(cache, []*v1alpha1.NamespaceTemplate{after})
			require.Equal(t, test.isKept, len(kept.Changes) == 0)
		})
	}
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
			Resources: some("pods", "pods/scale", "x/scale", "*/scale", "*"),
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
			require.Equal(t, role(before).Object["rules"], content["rules"], "%d: %v covers all", i, after)
		}
		for range 20 {
			request := randomRequest(random)
			want := covers(before, request) && covers(after, request)
			require.Equal(t, want, covers(narrowed.Rules, request), "%d: %v and %v: %v", i, before, after, request)
		}
	}
}

// randomRequest returns the rule that allows one request, also one that only wildcards allow.
func randomRequest(random *rand.Rand) rbacv1.PolicyRule {
	one := func(from ...string) []string { return []string{from[random.IntN(len(from))]} }
	rule := rbacv1.PolicyRule{
		APIGroups: one("", "apps", "batch"), Verbs: one("get", "list", "watch"),
		Resources: one("pods", "pods/scale", "x", "x/scale", "y/scale", "scale"),
	}
	if random.IntN(2) == 0 {
		rule.ResourceNames = one("a", "b", "c", "d")
	}
	return rule
}

func covers(rules []rbacv1.PolicyRule, request rbacv1.PolicyRule) bool {
	covered, _ := validation.Covers(rules, []rbacv1.PolicyRule{request})
	return covered
}

// Users read the rules of Roles, so narrowing repeats none, and changes none that stays.
func TestNarrowedRolesHaveEachRuleOnce(t *testing.T) {
	// Each rule is "resources verbs names".
	rules := func(texts ...string) (all []rbacv1.PolicyRule) {
		for _, text := range texts {
			rule := rbacv1.PolicyRule{APIGroups: []string{""}}
			for i, list := range strings.Fields(text) {
				*[]*[]string{&rule.Resources, &rule.Verbs, &rule.ResourceNames}[i] = strings.Split(list, ",")
			}
			all = append(all, rule)
		}
		return all
	}
	for name, test := range map[string]struct {
		earlier      string
		newest, want []string
	}{
		"all of it":                   {"*/scale get", []string{"*/scale,pods/scale get,*"}, []string{"*/scale get"}},
		"wildcards of both":           {"pods *", []string{"* get"}, []string{"pods get"}},
		"a subresource of all":        {"*/scale get", []string{"pods,x/scale get"}, []string{"x/scale get"}},
		"names":                       {"pods get a,*", []string{"pods get a,b"}, []string{"pods get a"}},
		"the same from two":           {"pods get,list", []string{"pods get", "* get"}, []string{"pods get"}},
		"some from one, all from two": {"pods get,list", []string{"pods get", "* *"}, []string{"pods get,list"}},
		"nothing":                     {"pods get", []string{"pods list"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, rules(test.want...), commonRules(rules(test.earlier)[0], rules(test.newest...)))
		})
	}
	paths := []rbacv1.PolicyRule{{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}}}
	require.Empty(t, commonRules(rules("pods get")[0], paths), "which the API server rejects in a Role")
	require.Empty(t, commonRules(paths[0], rules("pods get")))
}

// Each rule of one Role may have something in common with each of the other: with 700 rules each, half a million rules.
// Such a Role is taken away until the rollout arrives.
func TestANarrowedRoleIsNotMuchLargerThanItsParts(t *testing.T) {
	t.Parallel()
	role := func(rule func(i int) rbacv1.PolicyRule) *unstructured.Unstructured {
		of := &rbacv1.Role{}
		for i := range 700 {
			of.Rules = append(of.Rules, rule(i))
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(of)
		require.NoError(t, err)
		return &unstructured.Unstructured{Object: content}
	}
	named := role(func(i int) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"},
			ResourceNames: []string{fmt.Sprint("a", i)},
		}
	})
	verbs := role(func(i int) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{fmt.Sprint("v", i)},
		}
	})
	content, err := narrowRole(named, verbs)
	require.NoError(t, err)
	require.Nil(t, content)
	content, err = narrowRole(named, named)
	require.NoError(t, err)
	require.Len(t, content["rules"], 700)
}
