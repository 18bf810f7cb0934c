package render

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// manyKeys returns keys of 200 characters each, with empty values.
func manyKeys(count int) string {
	var keys strings.Builder
	for i := range count {
		fmt.Fprintf(&keys, "k%0199d: '', ", i)
	}
	return keys.String()
}

func TestVetReportsEveryProblem(t *testing.T) {
	long := strings.Repeat("a", 200)
	tests := map[string]struct {
		objects  []string
		overlays string
		// want has a part of each problem.
		want []string
	}{
		"a valid template has no problems": {objects: []string{configMap, roleBinding, deployment, networkPolicy}},
		"an object that Compile rejects": {
			objects: []string{"{kind: a}"},
			want: []string{
				"spec.templates[0]: apiVersion is missing", "spec.templates[0]: metadata.name is missing",
			},
		},
		"every problem is reported at once": {objects: []string{
			"{kind: a}", configMap, configMap, "{apiVersion: v1, kind: ConfigMap, metadata: {name: A}}",
		}, want: []string{
			"spec.templates[0]: apiVersion", "spec.templates[0]: metadata.name",
			"spec.templates[2]: configmap/settings: is declared twice",
			"spec.templates[3].metadata.name: configmap/A: is not a valid name",
		}},
		"a token in apiVersion": {
			objects: []string{"{apiVersion: $(CREATOR)/v1, kind: A, metadata: {name: a}}"},
			want:    []string{`"$(CREATOR)/v1" contains a token`},
		},
		"a token in kind": {
			objects: []string{"{apiVersion: v1, kind: $(CREATOR), metadata: {name: a}}"},
			want:    []string{"contains a token"},
		},
		"an escape in kind": {
			objects: []string{"{apiVersion: v1, kind: $$(CREATOR), metadata: {name: a}}"},
			want:    []string{"contains a token"},
		},
		"a cluster-scoped kind that is newer than kustomize": {
			objects: []string{
				"{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: a}}",
			}, want: []string{"is not namespace-scoped"}},
		"a name that is too long in typical namespaces": {
			objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: $(NAMESPACE)-" + long + long + "}}"},
			want:    []string{"(in a namespace whose name has 6 characters)"},
		},
		"the creator's name in the name of an object": {
			objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a-$(CREATOR)}}"},
			want:    []string{"is not a valid name if the creator is jane@example.com or a ServiceAccount"},
		},
		"the creator's name in a label": {
			objects: []string{"{apiVersion: example.com/v1, kind: Widget, metadata: {name: a, labels: {by: $(CREATOR)}}}"},
			want:    []string{"is not a valid label value if the creator is jane@example.com or a ServiceAccount"},
		},
		"the creator's name in an annotation": {
			objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {by: $(CREATOR)}}}"},
		},
		"the name of a Role may contain capitals, colons and underscores": {
			objects: []string{"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: 'A:b_c'}}"},
		},
		"the name of a Role must not contain a slash": {
			objects: []string{"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a/b}}"},
			want:    []string{"may not contain '/'"},
		},
		"a name in another API group may contain a colon": {
			objects: []string{
				"{apiVersion: authorization.openshift.io/v1, kind: RoleBinding, metadata: {name: 'system:x'}}",
			},
		},
		"the name of the namespace is a valid label": {
			objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {a: $(NAMESPACE)}}}"},
		},
		"an invalid label": {
			objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {'a b': c}}}"},
			want:    []string{"metadata.labels"},
		},
		"an invalid annotation": {
			objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {'a b': c}}}"},
			want:    []string{"metadata.annotations"},
		},
		"annotations that are too large": {
			objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {a: " +
				strings.Repeat("x", 256*1024) + "}}}"},
			want: []string{"metadata.annotations: configmap/a: Too long"},
		},
		"annotations that leave no room for the operator's": {objects: []string{
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {a: " + strings.Repeat("x", 250_000) +
				"}}}",
		}, want: []string{"the operator adds its own"}},
		"annotations that are too large in some namespaces": {
			objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {a: " +
				strings.Repeat("$(NAMESPACE)", 4000) + "}}}"},
			want: []string{"the operator adds its own"},
		},
		"an object that is too large with the operator's metadata": {
			objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {" + manyKeys(4000) + "}}"},
			want:    []string{"with the operator's own metadata"}},
		"a Role that is too large in some namespaces": {
			objects: []string{
				"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a}, rules: [{apiGroups: ['a'], resources: [a], verbs: [a], resourceNames: [" + strings.Repeat("$(NAMESPACE), ", 20_000) + "a]}]}",
			},
			want: []string{"with the operator's own metadata"}},
		"the name of the operator's ResourceQuota": {
			objects: []string{"{apiVersion: v1, kind: ResourceQuota, metadata: {name: nstpl-policyspace}}"},
			want:    []string{"is reserved"},
		},
		"a name that is that of the operator's ResourceQuota in some namespaces": {
			objects: []string{"{apiVersion: v1, kind: ResourceQuota, metadata: {name: nstpl-$(NAMESPACE)}}"},
			want:    []string{"is reserved"},
		},
		"a name that is that of the operator's ResourceQuota for some creators": {
			objects: []string{"{apiVersion: v1, kind: ResourceQuota, metadata: {name: $(CREATOR)}}"},
			want:    []string{"is reserved", "if the creator is"},
		},
		"the name of the ConfigMap that Kubernetes restores": {
			objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: kube-root-ca.crt}}"},
			want:    []string{"is reserved for the ConfigMap that Kubernetes creates"},
		},
		"the ServiceAccount that Kubernetes creates and does not restore is valid": {
			objects: []string{"{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}"},
		},
		"the name of the operator's ResourceQuota is valid for other kinds": {
			objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: nstpl-policyspace}}"},
		},
		"a ResourceQuota with another name in every namespace is valid": {
			objects: []string{"{apiVersion: v1, kind: ResourceQuota, metadata: {name: $(NAMESPACE)-quota}}"},
		},
		"a version of RBAC that is no longer served": {
			objects: []string{"{apiVersion: rbac.authorization.k8s.io/v1beta1, kind: Role, metadata: {name: a}}"},
			want:    []string{"use rbac.authorization.k8s.io/v1"},
		},
		"a version of RBAC that does not exist": {
			objects: []string{"{apiVersion: rbac.authorization.k8s.io/v7, kind: Role, metadata: {name: a}}"},
			want:    []string{"use rbac.authorization.k8s.io/v1"},
		},
		"a version of the core group that does not exist": {
			objects: []string{"{apiVersion: v2, kind: ConfigMap, metadata: {name: a}}"}, want: []string{"use v1"},
		},
		"a version of a built-in group that is no longer served": {
			objects: []string{"{apiVersion: policy/v1beta1, kind: PodDisruptionBudget, metadata: {name: a}}"},
			want:    []string{"use policy/v1"},
		},
		"a version that a later Kubernetes may serve is valid": {
			objects: []string{"{apiVersion: batch/v2, kind: Job, metadata: {name: a}}"},
		},
		"a quantity that takes long to parse": {
			objects: []string{"{apiVersion: v1, kind: ResourceQuota, metadata: {name: a}, spec: {hard: {pods: '1e-100'}}}"},
			want: []string{
				`spec.templates[0].spec.hard[pods]: resourcequota/a: must be a quantity, not "1e-100": a quantity has at most`,
			},
		},
		"a quantity that takes long to parse in an overlay": {
			objects: []string{deployment},
			overlays: `[{name: o, patches: [{patch: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: gate}, ` +
				`spec: {template: {spec: {containers: [{name: gate, resources: {limits: {cpu: '1e100'}}}]}}}}"}]}]`,
			want: []string{`spec.overlays[0].patches[0]: deployment.apps/gate: overlay o: ` +
				`spec.template.spec.containers[0].resources.limits[cpu]: must be a quantity, not "1e100"`},
		},
		"an invalid label in an overlay": {
			objects: []string{configMap}, overlays: "[{name: o, labels: {a: 'b c'}}]",
			want: []string{
				"spec.overlays[0]: configmap/settings: overlay o: metadata.labels[a]: is not a valid label value",
			},
		},
		"two overlays of the same name": {
			objects: []string{configMap}, overlays: "[{name: o}, {name: o}]",
			want: []string{"overlay o is declared twice"},
		},
		"two invalid overlays": {
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
			problems := Vet(t.Context(), template, nil)
			require.Len(t, problems, len(test.want), "%v", problems)
			for i, want := range test.want {
				require.ErrorContains(t, problems[i], want)
			}
		})
	}
}

// A template may have been stored before the name was reserved.
func TestStampOmitsObjectsWithAReservedName(t *testing.T) {
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

func TestVetRejectsTemplatesThatAreTooSlow(t *testing.T) {
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
	for template, want := range map[*v1alpha1.NamespaceTemplate]string{
		overlays(objects(512), 32): "too many objects and overlays together, 512 and 32",
		overlays(objects(4000), 6): "spec.overlays[0]: overlay o0: it takes too long to apply it to 4000 objects",
		objects(4000):              "too many objects and overlays together, 4000 and 0",
	} {
		problems := Vet(t.Context(), template, nil)
		require.Len(t, problems, 1)
		require.ErrorContains(t, problems[0], want)
	}

	kinds := func(count int) *v1alpha1.NamespaceTemplate {
		var all []string
		for i := range count {
			all = append(all, fmt.Sprintf("{apiVersion: example.com/v1, kind: Kind%d, metadata: {name: a}}", i))
		}
		return templateOf(t, all...)
	}
	require.NoError(t, CheckBudget(kinds(maxKinds)))
	require.ErrorContains(t, CheckBudget(kinds(maxKinds+1)), "objects of 65 kinds, more than the allowed 64")

	require.NoError(t, CheckCombinations(overlays(objects(60), 6)))
	require.NoError(t, CheckCombinations(objects(512)))
	for _, template := range []*v1alpha1.NamespaceTemplate{overlays(objects(512), 5), overlays(objects(1), 7)} {
		_, err := Variants(t.Context(), template)
		require.ErrorIs(t, err, ErrCombinations)
	}
}

func TestDeclarationsReadFieldsInTheSameCaseAsCompile(t *testing.T) {
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

func TestWarningsAboutTheCreatorsName(t *testing.T) {
	template := templateOf(t,
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: of-$(CREATOR)}}", roleBinding)
	require.Empty(t, Vet(t.Context(), template, nil))
	require.Equal(t, []string{
		"spec.templates[0]: role.rbac.authorization.k8s.io/of-$(CREATOR): user names with / or % are not valid in " +
			"metadata.name: the object is missing in the namespaces of such users",
	}, Warnings(template))
}

// A name or a label that only long names of namespaces make invalid is valid in most namespaces.
func TestWarningsAboutLongNamesOfNamespaces(t *testing.T) {
	t.Parallel()
	for object, want := range map[string]string{
		"{apiVersion: batch/v1, kind: CronJob, metadata: {name: $(NAMESPACE)-cleanup}}":                      "metadata.name is too long in namespaces whose names have more than 44 characters",
		"{apiVersion: v1, kind: Service, metadata: {name: $(NAMESPACE)-a}}":                                  "metadata.name is too long in namespaces whose names have more than 61 characters",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {a: x-$(NAMESPACE)}}}":                "metadata.labels[a] is too long in namespaces whose names have more than 61 characters",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: $(NAMESPACE)-" + strings.Repeat("a", 200) + "}}": "metadata.name is too long in namespaces whose names have more than 52 characters",
	} {
		template := templateOf(t, object)
		require.Empty(t, Vet(t.Context(), template, nil), object)
		warnings := Warnings(template)
		require.Len(t, warnings, 1, object)
		require.Contains(t, warnings[0], want)
	}
}

func TestWarningsAboutNamesThatMayBeEqual(t *testing.T) {
	named := func(kind, name string) string {
		return "{apiVersion: v1, kind: " + kind + ", metadata: {name: " + name + "}}"
	}
	for _, other := range []string{named("ConfigMap", "$(NAMESPACE)"), named("ConfigMap", "set$(NAMESPACE)")} {
		template := templateOf(t, configMap, other)
		require.Empty(t, Vet(t.Context(), template, nil))
		warnings := Warnings(template)
		require.Len(t, warnings, 1, "%s", other)
		require.Contains(t, warnings[0], "may be the same object in some namespaces")
	}
	require.Empty(t,
		Warnings(templateOf(t, configMap, named("ConfigMap", "a-$(NAMESPACE)"), named("Secret", "$(NAMESPACE)"))))
}

func TestVariantsAreAllCombinationsOfOverlays(t *testing.T) {
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

// Vet never panics, and a template without problems compiles with each overlay.
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
		if len(Vet(t.Context(), template, nil)) > 0 {
			return
		}
		for _, overlays := range [][]string{nil, {"o"}} {
			compiled, err := Compile(t.Context(), template, overlays)
			require.NoError(t, err)
			if _, _, err = compiled.Stamp(longestValues); err != nil {
				require.NotEmpty(t, Warnings(template), "%v", err)
			}
		}
	})
}
