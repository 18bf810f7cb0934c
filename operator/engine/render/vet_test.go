package render

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// manyKeys are keys without values, of 200 characters each.
func manyKeys(count int) string {
	var keys strings.Builder
	for i := range count {
		fmt.Fprintf(&keys, "k%0199d: '', ", i)
	}
	return keys.String()
}

func TestVet(t *testing.T) {
	long := strings.Repeat("a", 200)
	tests := map[string]struct {
		objects  []string
		overlays string
		// want are parts of the problems, one each.
		want []string
	}{
		"nothing wrong": {objects: []string{configMap, roleBinding, deployment, networkPolicy}},
		"what Compile refuses": {
			objects: []string{"{kind: a}"}, want: []string{"spec.templates[0]: apiVersion is missing"},
		},
		"every mistake at once": {objects: []string{
			"{kind: a}", configMap, configMap, "{apiVersion: v1, kind: ConfigMap, metadata: {name: A}}",
		}, want: []string{
			"spec.templates[0]: apiVersion", "spec.templates[2]: ConfigMap settings is there twice",
			"spec.templates[3]: ConfigMap A: metadata.name",
		}},
		"a token in apiVersion": {
			objects: []string{"{apiVersion: $(CREATOR)/v1, kind: A, metadata: {name: a}}"},
			want:    []string{`a token stands in "$(CREATOR)/v1"`},
		},
		"a token in kind": {
			objects: []string{"{apiVersion: v1, kind: $(CREATOR), metadata: {name: a}}"},
			want:    []string{"a token stands in"},
		},
		"an escape in kind": {
			objects: []string{"{apiVersion: v1, kind: $$(CREATOR), metadata: {name: a}}"},
			want:    []string{"a token stands in"},
		},
		"a cluster-scoped kind that is newer than kustomize": {
			objects: []string{
				"{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: a}}",
			}, want: []string{"is not namespace-scoped"}},
		"a name that is too long in some namespaces": {
			objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: $(NAMESPACE)-" + long + "}}"},
			want:    []string{"(where the namespace's name has 63 characters)"},
		},
		"a Service's name, which is shorter": {
			objects: []string{"{apiVersion: v1, kind: Service, metadata: {name: $(NAMESPACE)-a}}"},
			want:    []string{"metadata.name (where"},
		},
		"a Role's name, which is nearly free": {
			objects: []string{"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: 'A:b_c'}}"},
		},
		"a Role's name with a slash": {
			objects: []string{"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a/b}}"},
			want:    []string{"may not contain '/'"},
		},
		"another group's name, which may be free": {
			objects: []string{
				"{apiVersion: authorization.openshift.io/v1, kind: RoleBinding, metadata: {name: 'system:x'}}",
			},
		},
		"a label that is too long somewhere": {
			objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {a: x-$(NAMESPACE)}}}"},
			want:    []string{"metadata.labels"},
		},
		"a label of just the namespace": {
			objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {a: $(NAMESPACE)}}}"},
		},
		"a malformed label": {
			objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {'a b': c}}}"},
			want:    []string{"metadata.labels"},
		},
		"a malformed annotation": {
			objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {'a b': c}}}"},
			want:    []string{"metadata.annotations"},
		},
		"annotations that are too large": {
			objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {a: " +
				strings.Repeat("x", 256*1024) + "}}}"},
			want: []string{"metadata.annotations: Too long"},
		},
		"annotations without room for the operator's": {objects: []string{
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {a: " + strings.Repeat("x", 250_000) +
				"}}}",
		}, want: []string{"the operator adds its own"}},
		"annotations that a long namespace fills": {
			objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {a: " +
				strings.Repeat("$(NAMESPACE)", 4000) + "}}}"},
			want: []string{"the operator adds its own"},
		},
		"an object that is too large with what the operator adds": {
			objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {" + manyKeys(4000) + "}}"},
			want:    []string{"with the operator's own metadata"}},
		"a Role that a long namespace makes too large": {
			objects: []string{
				"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a}, rules: [{apiGroups: ['a'], resources: [a], verbs: [a], resourceNames: [" + strings.Repeat("$(NAMESPACE), ", 20_000) + "a]}]}",
			},
			want: []string{"with the operator's own metadata"}},
		"the usage quota's name": {
			objects: []string{"{apiVersion: v1, kind: ResourceQuota, metadata: {name: nstpl-policyspace}}"},
			want:    []string{"is reserved"},
		},
		"a name that may become the usage quota's": {
			objects: []string{"{apiVersion: v1, kind: ResourceQuota, metadata: {name: nstpl-$(NAMESPACE)}}"},
			want:    []string{"is reserved"},
		},
		"a creator who may become the usage quota": {
			objects: []string{"{apiVersion: v1, kind: ResourceQuota, metadata: {name: $(CREATOR)}}"},
			want:    []string{"is reserved"},
		},
		"the usage quota's name of another kind": {
			objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: nstpl-policyspace}}"},
		},
		"a quota of the namespace's name": {
			objects: []string{"{apiVersion: v1, kind: ResourceQuota, metadata: {name: $(NAMESPACE)-quota}}"},
		},
		"RBAC of a version that is gone": {
			objects: []string{"{apiVersion: rbac.authorization.k8s.io/v1beta1, kind: Role, metadata: {name: a}}"},
			want:    []string{"write rbac.authorization.k8s.io/v1"},
		},
		"RBAC of a version that never was": {
			objects: []string{"{apiVersion: rbac.authorization.k8s.io/v7, kind: Role, metadata: {name: a}}"},
			want:    []string{"write rbac.authorization.k8s.io/v1"},
		},
		"a core kind of a version that is not": {
			objects: []string{"{apiVersion: v2, kind: ConfigMap, metadata: {name: a}}"}, want: []string{"write v1"},
		},
		"a kind of a version that is gone": {
			objects: []string{"{apiVersion: policy/v1beta1, kind: PodDisruptionBudget, metadata: {name: a}}"},
			want:    []string{"write policy/v1"},
		},
		"a version that may come": {
			objects: []string{"{apiVersion: batch/v2, kind: Job, metadata: {name: a}}"},
		},
		"an overlay's malformed label": {
			objects: []string{configMap}, overlays: "[{name: o, labels: {a: 'b c'}}]",
			want: []string{"overlay o: ConfigMap settings: metadata.labels"},
		},
		"an overlay twice": {
			objects: []string{configMap}, overlays: "[{name: o}, {name: o}]",
			want: []string{"overlay o is there twice"},
		},
		"two overlays that don't build": {
			objects:  []string{configMap},
			overlays: "[{name: o, replicas: [{name: a, count: 1}]}, {name: p, replicas: [{name: b, count: 1}]}]",
			want:     []string{"overlay o:", "overlay p:"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			template := templateOf(t, test.objects...)
			if test.overlays != "" {
				template = withOverlays(t, template, test.overlays)
			}
			problems := Vet(t.Context(), template)
			require.Len(t, problems, len(test.want), "%v", problems)
			for i, want := range test.want {
				require.ErrorContains(t, problems[i], want)
			}
		})
	}
}

// What was stored before the name was reserved is left out where it would be the operator's.
func TestStampLeavesOutWhatIsReserved(t *testing.T) {
	compiled, err := Compile(t.Context(),
		templateOf(t, configMap, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: nstpl-$(NAMESPACE)}}"), nil)
	require.NoError(t, err)
	for namespace, left := range map[string]int{"policyspace": 1, "team-a": 0} {
		objects, omitted, err := compiled.Stamp(Values{Namespace: namespace})
		require.NoError(t, err)
		require.Len(t, omitted, left, namespace)
		require.Len(t, objects, 2-left, namespace)
	}
}

func TestVetBoundsWhatKustomizeDoes(t *testing.T) {
	objects := func(count int) *v1alpha1.NamespaceTemplate {
		var all []string
		for i := range count {
			all = append(all, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: a%d}}", i))
		}
		return templateOf(t, all...)
	}
	overlays := func(template *v1alpha1.NamespaceTemplate, count int) *v1alpha1.NamespaceTemplate {
		var all []string
		for i := range count {
			all = append(all, fmt.Sprintf("{name: o%d, labels: {a: b}}", i))
		}
		return withOverlays(t, template, "["+strings.Join(all, ", ")+"]")
	}
	require.NoError(t, CheckBudget(objects(512)))
	require.NoError(t, CheckBudget(overlays(objects(250), 32)))
	require.Error(t, CheckBudget(overlays(objects(512), 32)))
	problems := Vet(t.Context(), overlays(objects(4000), 6))
	require.Len(t, problems, 1)
	require.ErrorContains(t, problems[0], "too many objects and overlays together, 4000 and 6")

	require.NoError(t, CheckCombinations(overlays(objects(60), 6)))
	require.NoError(t, CheckCombinations(objects(512)))
	for _, template := range []*v1alpha1.NamespaceTemplate{overlays(objects(512), 1), overlays(objects(1), 7)} {
		_, err := Variants(t.Context(), template)
		require.ErrorIs(t, err, ErrCombinations)
	}
}

func TestDeclarationsAreReadAsTheyArePopulated(t *testing.T) {
	template := templateOf(t, "{apiVersion: v1, kind: ConfigMap, Kind: Secret, metadata: {name: a, Name: b}}",
		"{kind: [a]}", roleBinding,
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b}, roleRef: {kind: Role, name: r}}")
	var found []string
	for _, declaration := range Declarations(template) {
		found = append(found,
			strings.Join([]string{declaration.GroupKind().String(), declaration.Name, declaration.Binds}, " "))
	}
	require.Equal(t,
		[]string{
			"ConfigMap a ", "RoleBinding.rbac.authorization.k8s.io creator ",
			"RoleBinding.rbac.authorization.k8s.io b r",
		}, found)
}

func TestWarnings(t *testing.T) {
	template := templateOf(t,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: $(CREATOR), labels: {by: $(CREATOR)}}}", roleBinding)
	require.Empty(t, Vet(t.Context(), template))
	warnings := Warnings(template)
	require.Len(t, warnings, 2)
	require.Contains(t, warnings[0], "can't stand in metadata.name")
	require.Contains(t, warnings[1], "metadata.labels[by]")
}

func TestWarningsOfNamesThatMayBeTheSame(t *testing.T) {
	named := func(kind, name string) string {
		return "{apiVersion: v1, kind: " + kind + ", metadata: {name: " + name + "}}"
	}
	for _, other := range []string{named("ConfigMap", "$(NAMESPACE)"), named("ConfigMap", "set$(NAMESPACE)")} {
		template := templateOf(t, configMap, other)
		require.Empty(t, Vet(t.Context(), template))
		warnings := Warnings(template)
		require.Len(t, warnings, 1, "%s", other)
		require.Contains(t, warnings[0], "are the same object in some namespace")
	}
	require.Empty(t,
		Warnings(templateOf(t, configMap, named("ConfigMap", "a-$(NAMESPACE)"), named("Secret", "$(NAMESPACE)"))))
}

func TestVariantsCombineOverlays(t *testing.T) {
	template := withOverlays(t, templateOf(t, configMap), `
- {name: a, labels: {mark: "yes"}}
- {name: b, patches: [{patch: '[{"op": "replace", "path": "/data/color", "value": "red"}]', target: {labelSelector: mark=yes}}]}
- {name: c, patches: [{patch: '{$patch: delete, apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}'}]}
- {name: d, patches: [{patch: '{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: b}}'}]}`)
	variants, err := Variants(t.Context(), template)
	require.NoError(t, err)
	colors := map[string]string{}
	for _, variant := range variants {
		for _, object := range variant.Objects() {
			colors[strings.Join(variant.Overlays, "")] = object.Object["data"].(map[string]any)["color"].(string)
		}
	}
	require.Equal(t,
		map[string]string{
			"": "blue", "a": "blue", "b": "blue", "d": "blue", "ab": "red", "ad": "blue", "bd": "blue", "abd": "red",
		}, colors)
}

func TestMayCoincide(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"x-$(NAMESPACE)", "shared", false}, {"s$(NAMESPACE)", "shared", true},
		{"$(CREATOR)", "shared", true}, {"ab$(NAMESPACE)", "a$(CREATOR)", true},
		{"a$(NAMESPACE)", "b$(NAMESPACE)", false},
		{"$(NAMESPACE)a$(NAMESPACE)", "bab", true}, {"$(NAMESPACE)-a", "$(NAMESPACE)-b", false},
		{"ab$(NAMESPACE)ba", "aba", false},
	} {
		require.Equal(t, test.want, MayCoincide(test.a, test.b), "%s %s", test.a, test.b)
		require.Equal(t, test.want, MayCoincide(test.b, test.a), "%s %s", test.b, test.a)
	}
}

// Vet takes whatever comes, and what it accepts compiles with each overlay.
func FuzzVet(f *testing.F) {
	f.Add([]byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "$(NAMESPACE)"}}`), "a",
		`[{"op": "remove", "path": "/data"}]`)
	f.Add([]byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}}`),
		"$(CREATOR)", `{"data": {"a": null}}`)
	f.Fuzz(func(t *testing.T, raw []byte, label, patch string) {
		template := withOverlays(t, templateOf(t, configMap), "[{name: o}]")
		template.Spec.Templates = append(template.Spec.Templates, runtime.RawExtension{Raw: raw})
		template.Spec.Overlays[0].Labels = map[string]string{"label": label}
		template.Spec.Overlays[0].Patches = []v1alpha1.Patch{{
			Patch: patch, Target: &v1alpha1.PatchTarget{Kind: "ConfigMap"},
		}}
		if len(Vet(t.Context(), template)) > 0 {
			return
		}
		for _, overlays := range [][]string{nil, {"o"}} {
			compiled, err := Compile(t.Context(), template, overlays)
			require.NoError(t, err)
			if _, _, err = compiled.Stamp(strictest); err != nil {
				require.NotEmpty(t, Warnings(template), "%v", err)
			}
		}
	})
}
