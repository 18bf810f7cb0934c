package render

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// rendering returns a template that selects all namespaces and declares one object.
func rendering(t *testing.T, object string, change ...func(*v1alpha1.NamespaceTemplateSpec)) *v1alpha1.NamespaceTemplate {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(object))
	require.NoError(t, err)
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
	template.Spec.Templates = []runtime.RawExtension{{Raw: raw}}
	for _, change := range change {
		change(&template.Spec)
	}
	return template
}

const quotaByTier = `{apiVersion: v1, kind: ResourceQuota, metadata: {name: budget},
	spec: {hard: {pods: "$(LABEL:example.com/pods)"}}}`

func TestStampNeedsTheLabelsAndAnnotationsOfTokens(t *testing.T) {
	t.Parallel()
	template := rendering(t, quotaByTier, func(spec *v1alpha1.NamespaceTemplateSpec) {
		spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{Annotations: map[string]string{"note": "$(ANNOTATION:of)"}}
	})
	compiled, err := Compile(t.Context(), template, nil)
	require.NoError(t, err)
	require.Equal(t, []MetadataKey{{Annotations, "of"}, {Labels, "example.com/pods"}}, compiled.UsedKeys())

	all := Values{
		Namespace: "team-a", Labels: map[string]string{"example.com/pods": "7"}, Annotations: map[string]string{"of": "jane"},
	}
	objects, omitted, err := compiled.Stamp(all)
	require.NoError(t, err)
	require.Empty(t, omitted)
	pods, _, err := unstructured.NestedString(objects[0].Object, "spec", "hard", "pods")
	require.NoError(t, err)
	require.Equal(t, "7", pods)
	metadata, _ := compiled.StampMetadata(all)
	require.Equal(t, map[MetadataKey]string{{Annotations, "note"}: "jane"}, metadata)

	all.Labels = map[string]string{"example.com/pods": "1e-100"}
	_, _, err = compiled.Stamp(all)
	require.ErrorContains(t, err, `template t: resourcequota/budget: spec.hard[pods]: must be a quantity, not "1e-100"`)

	for name, values := range map[string]Values{
		"none":                {Namespace: "team-a"},
		"only in annotations": {Annotations: map[string]string{"example.com/pods": "7", "of": "jane"}},
		"empty":               {Labels: map[string]string{"example.com/pods": ""}, Annotations: all.Annotations},
	} {
		_, _, err := compiled.Stamp(values)
		var missing *MissingError
		require.ErrorAs(t, err, &missing, name)
		require.ErrorContains(t, err, "no value of the label example.com/pods, for $(LABEL:example.com/pods) in resourcequota/budget")
	}
}

// A value changes nothing but the string with the token.
func FuzzStampKeepsTheStructure(f *testing.F) {
	for _, value := range []string{"gold", `"}, {"kind": "Group`, "a: b\n- c", "$(LABEL:x)", "$$(NAMESPACE)", "\u0085", "null"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if value == "" || strings.ContainsRune(value, 0xfffd) {
			return
		}
		compiled, err := Compile(t.Context(), rendering(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding,
			metadata: {name: owners, annotations: {of: "<$(ANNOTATION:x)>"}},
			roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view},
			subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "$(ANNOTATION:x)"}]}`), nil)
		require.NoError(t, err)
		objects, _, err := compiled.Stamp(Values{Namespace: "a", Annotations: map[string]string{"x": value}})
		require.NoError(t, err)
		want := map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
			"metadata": map[string]any{
				"name": "owners", "namespace": "a", "annotations": map[string]any{"of": "<" + value + ">"},
				"labels": map[string]any{v1alpha1.TemplateNameLabel: "t"},
			},
			"roleRef": map[string]any{
				"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view",
			},
			"subjects": []any{map[string]any{
				"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": value,
			}},
		}
		require.Equal(t, want, objects[0].Object)
		data, err := json.Marshal(objects[0].Object)
		require.NoError(t, err)
		var asJSON, asYAML any
		require.NoError(t, json.Unmarshal(data, &asJSON))
		require.NoError(t, yaml.Unmarshal(EscapeJSON(data), &asYAML))
		require.Equal(t, asJSON, asYAML, "the API server reads an apply patch as YAML")
	})
}

func TestStampLimitsWhatValuesAdd(t *testing.T) {
	t.Parallel()
	compiled, err := Compile(t.Context(), rendering(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a},
		data: {a: "`+strings.Repeat("$(ANNOTATION:x)", 1000)+`"}}`), nil)
	require.NoError(t, err)
	_, _, err = compiled.Stamp(Values{Annotations: map[string]string{"x": strings.Repeat("v", 100)}})
	require.NoError(t, err)
	_, _, err = compiled.Stamp(Values{Annotations: map[string]string{"x": strings.Repeat("v", 10_000)}})
	require.ErrorContains(t, err, "add 10000000 bytes to its objects, more than the allowed")
}

func TestCompileRefusesTokens(t *testing.T) {
	t.Parallel()
	configMap := func(text string) string {
		return `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: "` + text + `"}}`
	}
	for name, test := range map[string]struct {
		template *v1alpha1.NamespaceTemplate
		want     string
	}{
		"the name of the namespace": {
			rendering(t, configMap("$(LABEL:kubernetes.io/metadata.name)")), "spec.templates[0].data.a: the token " +
				"$(LABEL:kubernetes.io/metadata.name) cannot be used: use $(NAMESPACE), which is the same",
		},
		"the creator": {
			rendering(t, configMap("$(ANNOTATION:authorization.k8s.io/creator)")), "use $(CREATOR), which is the same",
		},
		"a key of the proposal": {rendering(t, configMap("$(ANNOTATION:policy/other)")), "is reserved for nstpl"},
		"in the name of an image": {
			rendering(t, configMap("a"), func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Overlays = []v1alpha1.Overlay{{
					Name: "o", Namespaces: v1alpha1.NamespaceSelector{LabelSelector: &metav1.LabelSelector{}},
					Images: []v1alpha1.Image{{Name: "a", NewName: "$(LABEL:policy.nstpl.dev/policyspace)"}},
				}}
			}), "spec.overlays[0].images[0]",
		},
		"a key of nstpl": {
			rendering(t, configMap("$(ANNOTATION:policy.nstpl.dev/namespace-metadata)")), "is reserved for nstpl",
		},
		"another key of nstpl": {rendering(t, configMap("$(LABEL:policy/namespace-initializing)")), "is reserved for nstpl"},
		"an invalid key":       {rendering(t, configMap("$(LABEL:a//b)")), "has an invalid key"},
		"a label with capitals in its domain": {
			rendering(t, configMap("$(LABEL:Example.com/a)")), "has an invalid key",
		},
		"a key that is too long": {
			rendering(t, configMap("$(LABEL:"+strings.Repeat("k", 64)+")")), "has an invalid key",
		},
		"in a key": {
			rendering(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {"$(LABEL:tier)": a}}`),
			`has the key "$(LABEL:tier)"`,
		},
		"in the kind": {
			rendering(t, `{apiVersion: v1, kind: "$(LABEL:tier)", metadata: {name: a}}`), "contains a token",
		},
		"in the permission to replace the object": {
			rendering(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a,
				annotations: {policy/replace: "$(LABEL:tier)"}}}`), "only the author may allow",
		},
		"in the protection from deletion": {
			rendering(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a,
				annotations: {policy.nstpl.dev/deletion-protection: "$(LABEL:tier)"}}}`), `is neither "true" nor "false"`,
		},
		"what the template itself sets": {
			rendering(t, configMap("$(LABEL:tier)"), func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{Labels: map[string]string{"tier": "gold"}}
			}), "since the template itself sets the label tier",
		},
		"a ring of one": {
			rendering(t, configMap("a"), func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{
					Annotations: map[string]string{"x": "$(ANNOTATION:x)x"},
				}
			}), "spec.namespaceMetadata.annotations[x]: the token $(ANNOTATION:x) cannot be used, since the template itself sets",
		},
		"a level of Pod Security Admission": {
			rendering(t, configMap("a"), func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{
					Labels: map[string]string{"pod-security.kubernetes.io/enforce": "$(LABEL:level)"},
				}
			}), "is not a Pod Security Standard",
		},
		"what an overlay sets, in a patch with an escape": {
			rendering(t, configMap("a"), func(spec *v1alpha1.NamespaceTemplateSpec) {
				everything := v1alpha1.NamespaceSelector{LabelSelector: &metav1.LabelSelector{}}
				spec.Overlays = []v1alpha1.Overlay{{
					Name: "o", Namespaces: everything,
					NamespaceMetadata: &v1alpha1.NamespaceMetadata{Labels: map[string]string{"tier": "gold"}},
					Patches: []v1alpha1.Patch{{
						Patch: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: "\u0024(LABEL:tier)"}}`,
					}},
				}}
			}), "spec.overlays[0].patches[0].patch: the token $(LABEL:tier) cannot be used",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Compile(t.Context(), test.template, nil)
			require.ErrorContains(t, err, test.want)
			require.NotEmpty(t, Vet(t.Context(), test.template, nil))
		})
	}
	_, err := Compile(t.Context(), rendering(t, configMap(
		"$$(LABEL:kubernetes.io/metadata.name) $(LABEL:tier) $(ANNOTATION:Example.com/a)")), nil)
	require.NoError(t, err)
}

// Two overlays together may compose a token that neither contains, for example in the name of an image. Compile finds
// it.
func TestCompileFindsTokensThatOverlaysCompose(t *testing.T) {
	t.Parallel()
	template := rendering(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: a}}`,
		func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Overlays = []v1alpha1.Overlay{{
				Name: "o", Namespaces: v1alpha1.NamespaceSelector{LabelSelector: &metav1.LabelSelector{}},
				Patches: []v1alpha1.Patch{{
					Patch: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: \"\\u0024(LABEL:tier)\"}",
				}},
			}}
		})
	require.Equal(t, MetadataKey{Labels, "tier"}, References(&template.Spec)[0].MetadataKey)
	compiled, err := Compile(t.Context(), template, nil)
	require.NoError(t, err)
	require.Empty(t, compiled.UsedKeys())
	compiled, err = Compile(t.Context(), template, []string{"o"})
	require.NoError(t, err)
	require.Equal(t, []MetadataKey{{Labels, "tier"}}, compiled.UsedKeys())
	template.Spec.Overlays[0].Patches = nil
	template.Spec.Templates[0].Raw = []byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, ` +
		`"spec": {"containers": [{"name": "a", "image": "a"}]}}`)
	template.Spec.Overlays[0].Images = []v1alpha1.Image{
		{Name: "a", NewName: "$(LABEL", NewTag: "policy.nstpl.dev/policyspace)"},
	}
	require.Empty(t, References(&template.Spec))
	_, err = Compile(t.Context(), template, []string{"o"})
	require.ErrorContains(t, err, "is reserved for nstpl")
}

func TestWarningsAboutTextThatResemblesTokensOfLabels(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"$(LABEL:)":         "$(LABEL:) is not a token: did you mean $(LABEL:KEY)?",
		"$(LABELS:tier)":    "$(LABELS:tier) is not a token: did you mean $(LABEL:tier)?",
		"$(label:tier)":     "$(label:tier) is not a token: did you mean $(LABEL:tier)?",
		"$(ANNOTATION:a:b)": "$(ANNOTATION:a:b) is not a token: did you mean $(ANNOTATION:ab)?",
		"$(LABEL:tier)":     "", "$$(LABEL:)": "", "$(FOO:tier)": "", "$(LABEL)": "",
	} {
		warnings := Warnings(rendering(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: "`+text+`"}}`))
		if want == "" {
			require.Empty(t, warnings, text)
			continue
		}
		require.Equal(t, []string{"spec.templates[0].data.a: " + want}, warnings)
	}
}

// A value of an annotation may be invalid in a label, and in no other annotation.
func TestWarningsAboutAnnotationsInLabels(t *testing.T) {
	t.Parallel()
	values := map[string]string{"a": "$(ANNOTATION:owner)"}
	template := &v1alpha1.NamespaceTemplate{}
	template.Spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{Annotations: values}
	require.Empty(t, Warnings(template))
	template.Spec.NamespaceMetadata.Labels = map[string]string{"a": "$(LABEL:owner)", "b": "$$(ANNOTATION:owner)"}
	require.Empty(t, Warnings(template))
	template.Spec.Overlays = []v1alpha1.Overlay{{NamespaceMetadata: &v1alpha1.NamespaceMetadata{Labels: values}}}
	require.Equal(t, []string{"spec.overlays[0].namespaceMetadata.labels[a]: an annotation may have a value that is not " +
		"valid in labels: such namespaces are not populated"}, Warnings(template))
	object := rendering(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {a: $(ANNOTATION:owner)}, "+
		"labels: {b: $(LABEL:owner)}}}")
	require.Empty(t, Warnings(object))
	object = rendering(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {b: $(ANNOTATION:owner)}}}")
	require.Equal(t, []string{"spec.templates[0]: configmap/a: annotations may have values that are not valid in labels: " +
		"the object is missing in such namespaces: see metadata.labels[b]"}, Warnings(object))
}
