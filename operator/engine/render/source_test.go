package render

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// withSources adds sources, given as a list in YAML.
func withSources(t testing.TB, template *v1alpha1.NamespaceTemplate, sources string) *v1alpha1.NamespaceTemplate {
	t.Helper()
	require.NoError(t, yaml.UnmarshalStrict([]byte(sources), &template.Spec.Sources))
	return template
}

func TestCopiesAreRenderedAfterOverlaysWithoutTheirContent(t *testing.T) {
	template := withSources(t, templateOf(t, configMap), `
- {apiVersion: v1, kind: Secret, namespace: registry, name: pull, as: pull-$(NAMESPACE),
   labels: {team: $(NAMESPACE)}, annotations: {example.com/by: $(CREATOR)}}
- {apiVersion: v1, kind: ConfigMap, namespace: certs, name: ca}
`)
	withOverlays(t, template, `
- name: all
  labels: {overlay: all}
  patches: [{target: {kind: Secret|ConfigMap}, patch: '[{"op": "add", "path": "/data/patched", "value": "a"}]'}]
`)
	objects := declared(t, template, "all")
	require.Len(t, objects, 3)
	require.Equal(t, map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{
			"name": "pull-team-a", "namespace": "team-a",
			"labels":      map[string]any{"team": "team-a", v1alpha1.TemplateNameLabel: "policies"},
			"annotations": map[string]any{"example.com/by": "alice", v1alpha1.CopyOfAnnotation: "registry/pull"},
		},
	}, objects[1].Object)
	ref, isCopy := SourceOf(objects[1].Unstructured)
	require.True(t, isCopy)
	require.Equal(t, SourceRefs(&template.Spec)[0], ref)
	require.Equal(t, "secret/pull in namespace registry", ref.String())
	_, isCopy = SourceOf(objects[0].Unstructured)
	require.False(t, isCopy)
	require.Equal(t, "ca", objects[2].GetName())
	require.NotContains(t, objects[2].Object, "data")
}

func TestFillCopiesTheContentLiterally(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "copy"},
	}}
	before := object.DeepCopy()
	filled := &unstructured.Unstructured{Object: object.Object}
	Fill(filled, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "source"}, "status": "unknown",
		"type": "example.com/a", "immutable": true, "data": map[string]any{"token": "$(NAMESPACE)"},
	}})
	require.Equal(t, map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "copy"},
		"type": "example.com/a", "immutable": true, "data": map[string]any{"token": "$(NAMESPACE)"},
	}, filled.Object)
	require.Equal(t, before, object, "the rendered object is not changed")
}

func TestInvalidSources(t *testing.T) {
	for name, test := range map[string]struct{ source, want string }{
		"no name":      {"{apiVersion: v1, kind: Secret, namespace: a}", "spec.sources[0].name: is missing"},
		"no namespace": {"{apiVersion: v1, kind: Secret, name: a}", "spec.sources[0].namespace: is missing"},
		"no kind":      {"{apiVersion: v1, namespace: a, name: a}", "spec.sources[0].kind: is missing"},
		"a token in the namespace": {
			"{apiVersion: v1, kind: Secret, namespace: $(NAMESPACE), name: a}",
			`spec.sources[0].namespace: "$(NAMESPACE)" contains a token: a source must be the same in every namespace`,
		},
		"a token in the name": {
			"{apiVersion: v1, kind: Secret, namespace: a, name: of-$(CREATOR)}",
			`spec.sources[0].name: "of-$(CREATOR)" contains a token`,
		},
		"a token of a label in the name": {
			"{apiVersion: v1, kind: Secret, namespace: a, name: $(LABEL:tier)}",
			`spec.sources[0].name: "$(LABEL:tier)" contains a token`,
		},
		"an escaped token in the name": {
			"{apiVersion: v1, kind: Secret, namespace: a, name: $$(CREATOR)}", "contains a token",
		},
		"an invalid namespace": {
			"{apiVersion: v1, kind: Secret, namespace: a/b, name: a}",
			`spec.sources[0].namespace: "a/b" is not a valid namespace name`,
		},
		"a path in the name": {
			"{apiVersion: v1, kind: Secret, namespace: a, name: b/c, as: d}",
			`spec.sources[0].name: "b/c" is not a valid name`,
		},
		"a Role": {
			"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, namespace: a, name: a}",
			"spec.sources[0].kind: a Role cannot be copied, because it grants rights: declare it in spec.templates",
		},
		"a cluster-scoped kind": {
			"{apiVersion: v1, kind: Node, namespace: a, name: a}", "spec.sources[0]: node/a: is not namespace-scoped",
		},
		"an invalid version": {"{apiVersion: a/b/c, kind: Secret, namespace: a, name: a}", `"a/b/c" is not a version`},
		"a version that is not served": {
			"{apiVersion: v2, kind: Secret, namespace: a, name: a}", "spec.sources[0].apiVersion: secret/a: v2 is not served",
		},
		"an invalid name of the copy": {
			"{apiVersion: v1, kind: Secret, namespace: a, name: a, as: A}",
			"spec.sources[0].as: secret/A: is not a valid name",
		},
		"a reserved name": {
			"{apiVersion: v1, kind: ResourceQuota, namespace: a, name: a, as: nstpl-policyspace}", "is reserved for",
		},
		"a reserved label": {
			"{apiVersion: v1, kind: Secret, namespace: a, name: a, labels: {policy/namespace-template-name: b}}",
			"spec.sources[0].labels[policy/namespace-template-name]",
		},
		"the annotation of copies": {
			"{apiVersion: v1, kind: Secret, namespace: a, name: a, annotations: {policy.nstpl.dev/copy-of: b/c}}",
			"spec.sources[0].annotations[policy.nstpl.dev/copy-of]: secret/a: the annotation policy.nstpl.dev/copy-of is reserved",
		},
		"an invalid label": {
			"{apiVersion: v1, kind: Secret, namespace: a, name: a, labels: {a: 'b c'}}",
			"spec.sources[0].labels[a]: secret/a: is not a valid label value",
		},
		"an object of the template": {
			"{apiVersion: v1, kind: ConfigMap, namespace: a, name: settings}",
			"spec.sources[0]: configmap/settings: is declared twice",
		},
		"two equal copies": {
			"{apiVersion: v1, kind: Secret, namespace: a, name: a}\n- {apiVersion: v1, kind: Secret, namespace: b, name: b, as: a}",
			"spec.sources[1]: secret/a: is declared twice: give the copy another name with the field as",
		},
	} {
		t.Run(name, func(t *testing.T) {
			template := withSources(t, templateOf(t, configMap), "- "+test.source)
			var found []string
			for _, problem := range Vet(t.Context(), template, nil) {
				found = append(found, problem.Error())
			}
			require.Contains(t, strings.Join(found, "\n"), test.want)
			require.Len(t, found, 1)
		})
	}
}

// A source is a source of exactly the object that it names, whatever its other fields contain.
func FuzzSources(f *testing.F) {
	f.Add("v1", "Secret", "registry", "pull", "pull-$(NAMESPACE)", "a/b", "c")
	f.Add("v1", "Secret", "registry", "$(LABEL:tier)", "pull", "a/b", "c")
	f.Add("v1", "ConfigMap", "$(NAMESPACE)", "a/b", "$$(CREATOR)", v1alpha1.CopyOfAnnotation, "b/c")
	f.Fuzz(func(t *testing.T, version, kind, namespace, name, as, key, value string) {
		template := templateOf(t)
		source := v1alpha1.Source{
			APIVersion: version, Kind: kind, Namespace: namespace, Name: name, As: as,
			Labels: map[string]string{key: value}, Annotations: map[string]string{key: value},
		}
		template.Spec.Sources = []v1alpha1.Source{source}
		compiled, err := Compile(t.Context(), template, nil)
		if err != nil {
			require.NotEmpty(t, Vet(t.Context(), template, nil))
			return
		}
		objects, _, err := compiled.Stamp(Values{Namespace: "registry", Creator: "pull/../other", sample: "other"})
		require.NoError(t, err)
		for _, object := range objects {
			ref, isCopy := SourceOf(object.Unstructured)
			require.True(t, isCopy)
			require.Equal(t, RefOf(&source), ref)
			require.Equal(t, "registry", object.GetNamespace())
		}
	})
}
