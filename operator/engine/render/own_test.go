package render

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// kustomized returns objects with the label and the namespace set by kustomize.
func kustomized(t *testing.T, objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	namespace, err := json.Marshal(map[string]any{
		"apiVersion": "builtin", "kind": "NamespaceTransformer",
		"metadata":  map[string]string{"name": "namespace", "namespace": NamespaceToken},
		"unsetOnly": true, "setRoleBindingSubjects": "allServiceAccounts",
	})
	require.NoError(t, err)
	built, err := build(notCanceled, types.Kustomization{
		Labels:       []types.Label{{Pairs: map[string]string{v1alpha1.TemplateNameLabel: "policies"}}},
		Transformers: []string{string(namespace)},
	}, objects)
	require.NoError(t, err)
	return built
}

// Objects must have the same hash as those that an earlier version applied: otherwise an upgrade writes every object.
// Only a Role without rules, a RoleBinding without subjects and a NetworkPolicy with defaults differ: see
// DeclareDefaults.
func TestCompileSetsTheLabelAndTheNamespaceAsKustomizeDoes(t *testing.T) {
	for name, object := range map[string]string{
		"no labels":         configMap,
		"labels":            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {a: b}, annotations: {c: d}}}",
		"null labels":       "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: null}}",
		"null annotations":  "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: null}}",
		"empty labels":      "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {}, annotations: {}}}",
		"an old label":      "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {other: policies}}}",
		"null data":         "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: null}}",
		"numbers":           "{apiVersion: example.dev/v1, kind: A, metadata: {name: a}, spec: {a: 1.0, b: 1.5, c: 1e3, d: -0}}",
		"large numbers":     "{apiVersion: example.dev/v1, kind: A, metadata: {name: a}, spec: [9223372036854775807, 1e21]}",
		"text like numbers": `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: "1", b: "yes", c: "~", d: ""}}`,
		"subjects":          roleBinding,
		"a subject without a namespace": `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a},
			subjects: [{kind: ServiceAccount, name: a, namespace: ""}, {kind: ServiceAccount, name: b, namespace: null},
			{kind: ServiceAccount, name: default, namespace: default}, {name: default}]}`,
		"another group's RoleBinding": `{apiVersion: example.dev/v1, kind: RoleBinding, metadata: {name: a},
			subjects: [{kind: ServiceAccount, name: a}]}`,
		"a pod template": `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {selector: {matchLabels: {a: b}},
			template: {metadata: {labels: {a: b}}, spec: {serviceAccountName: c, containers: [{name: d, image: "e:1"}]}}}}`,
		"a service": "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {selector: {a: b}, ports: [{port: 80}]}}",
	} {
		t.Run(name, func(t *testing.T) {
			template := templateOf(t, object)
			parsed, problems := parseObjects(template)
			require.Empty(t, problems)
			want, err := json.Marshal(kustomized(t, parsed)[0].Object)
			require.NoError(t, err)
			compiled, err := Compile(t.Context(), template, nil)
			require.NoError(t, err)
			got, err := json.Marshal(compiled.Objects()[0].Object)
			require.NoError(t, err)
			require.Equal(t, string(want), string(got))
		})
	}
}

func TestAPanicOfKustomizeIsAnError(t *testing.T) {
	object := `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {"": b}}}`
	template := withOverlays(t, templateOf(t, object), "[{name: production, labels: {tier: production}}]")
	_, err := Compile(t.Context(), template, names(template))
	require.ErrorContains(t, err, "kustomize panicked")
}
