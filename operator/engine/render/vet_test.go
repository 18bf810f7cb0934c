package render

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestVet(t *testing.T) {
	long := strings.Repeat("a", 200)
	tests := map[string]struct {
		objects  []string
		overlays string
		// want are parts of the problems, one each.
		want []string
	}{
		"nothing wrong":         {objects: []string{configMap, roleBinding, deployment, networkPolicy}},
		"what Compile refuses":  {objects: []string{"{kind: a}"}, want: []string{"spec.templates[0]: apiVersion is missing"}},
		"every mistake at once": {objects: []string{"{kind: a}", configMap, configMap, "{apiVersion: v1, kind: ConfigMap, metadata: {name: A}}"}, want: []string{"spec.templates[0]: apiVersion", "spec.templates[2]: ConfigMap settings is there twice", "spec.templates[3]: ConfigMap A: metadata.name"}},
		"a token in apiVersion": {objects: []string{"{apiVersion: $(CREATOR)/v1, kind: A, metadata: {name: a}}"}, want: []string{`a token stands in "$(CREATOR)/v1"`}},
		"a token in kind":       {objects: []string{"{apiVersion: v1, kind: $(CREATOR), metadata: {name: a}}"}, want: []string{"a token stands in"}},
		"an escape in kind":     {objects: []string{"{apiVersion: v1, kind: $$(CREATOR), metadata: {name: a}}"}, want: []string{"a token stands in"}},
		"a cluster-scoped kind that is newer than kustomize": {
			objects: []string{"{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: a}}"}, want: []string{"is not namespace-scoped"}},
		"a name that is too long in some namespaces": {objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: $(NAMESPACE)-" + long + "}}"}, want: []string{"(where the namespace's name has 63 characters)"}},
		"a Service's name, which is shorter":         {objects: []string{"{apiVersion: v1, kind: Service, metadata: {name: $(NAMESPACE)-a}}"}, want: []string{"metadata.name (where"}},
		"a Role's name, which is nearly free":        {objects: []string{"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: 'A:b_c'}}"}},
		"a Role's name with a slash":                 {objects: []string{"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a/b}}"}, want: []string{"may not contain '/'"}},
		"another group's name, which may be free":    {objects: []string{"{apiVersion: authorization.openshift.io/v1, kind: RoleBinding, metadata: {name: 'system:x'}}"}},
		"a label that is too long somewhere":         {objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {a: x-$(NAMESPACE)}}}"}, want: []string{"metadata.labels"}},
		"a label of just the namespace":              {objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {a: $(NAMESPACE)}}}"}},
		"a malformed label":                          {objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {'a b': c}}}"}, want: []string{"metadata.labels"}},
		"a malformed annotation":                     {objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {'a b': c}}}"}, want: []string{"metadata.annotations"}},
		"annotations that are too large":             {objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {a: " + strings.Repeat("x", 256*1024) + "}}}"}, want: []string{"metadata.annotations: Too long"}},
		"an overlay's malformed label":               {objects: []string{configMap}, overlays: "[{name: o, labels: {a: 'b c'}}]", want: []string{"overlay o: ConfigMap settings: metadata.labels"}},
		"an overlay twice":                           {objects: []string{configMap}, overlays: "[{name: o}, {name: o}]", want: []string{"overlay o is there twice"}},
		"two overlays that don't build":              {objects: []string{configMap}, overlays: "[{name: o, replicas: [{name: a, count: 1}]}, {name: p, replicas: [{name: b, count: 1}]}]", want: []string{"overlay o:", "overlay p:"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			template := templateOf(t, test.objects...)
			if test.overlays != "" {
				template = withOverlays(t, template, test.overlays)
			}
			problems := Vet(template)
			require.Len(t, problems, len(test.want), "%v", problems)
			for i, want := range test.want {
				require.ErrorContains(t, problems[i], want)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	template := templateOf(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: $(CREATOR), labels: {by: $(CREATOR)}}}", roleBinding)
	require.Empty(t, Vet(template))
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
		require.Empty(t, Vet(template))
		warnings := Warnings(template)
		require.Len(t, warnings, 1, "%s", other)
		require.Contains(t, warnings[0], "are the same object in some namespace")
	}
	require.Empty(t, Warnings(templateOf(t, configMap, named("ConfigMap", "a-$(NAMESPACE)"), named("Secret", "$(NAMESPACE)"))))
}

func TestVariantsCombineOverlays(t *testing.T) {
	template := withOverlays(t, templateOf(t, configMap), `
- {name: a, labels: {mark: "yes"}}
- {name: b, patches: [{patch: '[{"op": "replace", "path": "/data/color", "value": "red"}]', target: {labelSelector: mark=yes}}]}
- {name: c, patches: [{patch: '{$patch: delete, apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}'}]}
- {name: d, patches: [{patch: '{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: b}}'}]}`)
	variants, err := Variants(template)
	require.NoError(t, err)
	colors := map[string]string{}
	for _, variant := range variants {
		for _, object := range variant.Objects() {
			colors[strings.Join(variant.Overlays, "")] = object.Object["data"].(map[string]any)["color"].(string)
		}
	}
	require.Equal(t, map[string]string{"": "blue", "a": "blue", "b": "blue", "d": "blue", "ab": "red", "ad": "blue", "bd": "blue", "abd": "red"}, colors)
}

func TestMayCoincide(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"x-$(NAMESPACE)", "shared", false}, {"s$(NAMESPACE)", "shared", true},
		{"$(CREATOR)", "shared", true}, {"ab$(NAMESPACE)", "a$(CREATOR)", true}, {"a$(NAMESPACE)", "b$(NAMESPACE)", false},
		{"$(NAMESPACE)a$(NAMESPACE)", "bab", true}, {"$(NAMESPACE)-a", "$(NAMESPACE)-b", false}, {"ab$(NAMESPACE)ba", "aba", false},
	} {
		require.Equal(t, test.want, MayCoincide(test.a, test.b), "%s %s", test.a, test.b)
		require.Equal(t, test.want, MayCoincide(test.b, test.a), "%s %s", test.b, test.a)
	}
}

// Vet takes whatever comes, and what it accepts compiles with each overlay.
func FuzzVet(f *testing.F) {
	f.Add([]byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "$(NAMESPACE)"}}`), "a", `[{"op": "remove", "path": "/data"}]`)
	f.Add([]byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}}`), "$(CREATOR)", `{"data": {"a": null}}`)
	f.Fuzz(func(t *testing.T, raw []byte, label, patch string) {
		template := withOverlays(t, templateOf(t, configMap), "[{name: o}]")
		template.Spec.Templates = append(template.Spec.Templates, runtime.RawExtension{Raw: raw})
		template.Spec.Overlays[0].Labels = map[string]string{"label": label}
		template.Spec.Overlays[0].Patches = []v1alpha1.Patch{{Patch: patch, Target: &v1alpha1.PatchTarget{Kind: "ConfigMap"}}}
		if len(Vet(template)) > 0 {
			return
		}
		for _, overlays := range [][]string{nil, {"o"}} {
			compiled, err := Compile(template, overlays)
			require.NoError(t, err)
			if _, _, err = compiled.Stamp(strictest); err != nil {
				require.NotEmpty(t, Warnings(template), "%v", err)
			}
		}
	})
}
