package render

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// templateOf returns a template named "policies" with objects given as YAML.
func templateOf(t testing.TB, objects ...string) *v1alpha1.NamespaceTemplate {
	t.Helper()
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "policies"}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
	for _, object := range objects {
		raw, err := yaml.YAMLToJSON([]byte(object))
		require.NoError(t, err)
		template.Spec.Templates = append(template.Spec.Templates, runtime.RawExtension{Raw: raw})
	}
	return template
}

// declared returns the objects of a template with the named overlays for the namespace team-a, which alice created.
func declared(t testing.TB, template *v1alpha1.NamespaceTemplate, overlays ...string) []Object {
	t.Helper()
	compiled, err := Compile(t.Context(), template, overlays)
	require.NoError(t, err)
	objects, omitted, err := compiled.Stamp(Values{Namespace: "team-a", Creator: "alice"})
	require.NoError(t, err)
	require.Empty(t, omitted)
	return objects
}

// withOverlays adds overlays, given as a list in YAML. Overlays without a selector select every namespace.
func withOverlays(t testing.TB, template *v1alpha1.NamespaceTemplate, overlays string) *v1alpha1.NamespaceTemplate {
	t.Helper()
	require.NoError(t, yaml.UnmarshalStrict([]byte(overlays), &template.Spec.Overlays))
	for i := range template.Spec.Overlays {
		if template.Spec.Overlays[i].Namespaces.LabelSelector == nil {
			template.Spec.Overlays[i].Namespaces.LabelSelector = &metav1.LabelSelector{}
		}
	}
	return template
}

// names returns the names of a template's overlays.
func names(template *v1alpha1.NamespaceTemplate) []string {
	var names []string
	for _, overlay := range template.Spec.Overlays {
		names = append(names, overlay.Name)
	}
	return names
}

const (
	configMap   = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {color: blue}}"
	roleBinding = `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: creator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: $(CREATOR)}
- {kind: ServiceAccount, name: builder}
- {kind: ServiceAccount, name: builder, namespace: ci}
- {kind: ServiceAccount, name: default}
`
	deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: gate, labels: {app: gate}}
spec:
  replicas: 1
  selector: {matchLabels: {app: gate}}
  template:
    metadata: {labels: {app: gate}}
    spec:
      containers:
      - {name: gate, image: example.dev/gate:1, env: [{name: MODE, value: open}]}
      - {name: side, image: example.dev/side:1}
`
	networkPolicy = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: default-deny}
spec: {podSelector: {}, ingress: [], policyTypes: [Ingress, Egress]}
`
)

func TestCompileRejectsInvalidObjects(t *testing.T) {
	tests := []struct {
		name    string
		objects []string
		want    []string
	}{
		{"no kind", []string{"{apiVersion: v1, metadata: {name: a}}"}, []string{"kind is missing"}},
		{"no apiVersion", []string{"{kind: ConfigMap, metadata: {name: a}}"}, []string{"apiVersion is missing"}},
		{"no name", []string{"{apiVersion: v1, kind: ConfigMap}"}, []string{"metadata.name is missing"}},
		{
			"an empty name", []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: ''}}"},
			[]string{"metadata.name is missing"},
		},
		{
			"a generated name", []string{"{apiVersion: v1, kind: ConfigMap, metadata: {generateName: a-}}"},
			[]string{"metadata.name is missing"},
		},
		{
			"a name that is not a string", []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: 1}}"},
			[]string{"metadata.name: must be a string"},
		},
		{
			"metadata that is not a map", []string{"{apiVersion: v1, kind: ConfigMap, metadata: a}"},
			[]string{"metadata.name is missing"},
		},
		{
			"a invalid apiVersion", []string{"{apiVersion: a/b/c, kind: ConfigMap, metadata: {name: a}}"},
			[]string{`apiVersion: "a/b/c" is not a version`},
		},
		{"null", []string{"null"}, []string{"spec.templates[0]: the object is empty"}},
		{"a list instead of an object", []string{"[]"}, []string{"spec.templates[0]:"}},
		{"a namespace", []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: b}}"},
			[]string{"metadata.namespace: configmap/a: must not be set: remove it"}},
		{"a namespace that is a token",
			[]string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: $(NAMESPACE)}}"},
			[]string{"metadata.namespace: configmap/a: must not be set"}},
		{"a cluster-scoped kind",
			[]string{"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}}"},
			[]string{"clusterrole.rbac.authorization.k8s.io/a: is not namespace-scoped"}},
		{
			"a Namespace", []string{"{apiVersion: v1, kind: Namespace, metadata: {name: a}}"},
			[]string{"namespace/a: is not namespace-scoped"},
		},
		{
			"an exemption",
			[]string{"{apiVersion: policy.nstpl.dev/v1alpha1, kind: TemplateExemption, metadata: {name: a}}"},
			[]string{"templateexemption.policy.nstpl.dev/a: cannot be declared"},
		},
		{
			"a list", []string{"{apiVersion: v1, kind: List, metadata: {name: a}, items: []}"},
			[]string{"the object is a List: declare its items one by one"},
		},
		{
			"a list of a kind", []string{"{apiVersion: v1, kind: ConfigMapList, metadata: {name: a}, items: null}"},
			[]string{"the object is a ConfigMapList"},
		},
		{
			"one object twice", []string{configMap, configMap},
			[]string{"spec.templates[1]: configmap/settings: is declared twice"},
		},
		{"one object in two versions", []string{
			"{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: a}}",
			"{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: a}}",
		}, []string{"horizontalpodautoscaler.autoscaling/a: is declared twice"}},
		{"a token in a key",
			[]string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {$(NAMESPACE): b}}"},
			[]string{`has the key "$(NAMESPACE)"`}},
		{"a token in a nested key",
			[]string{
				"{apiVersion: example.dev/v1, kind: Thing, metadata: {name: a}, spec: {list: [{a: {x-$(CREATOR)-y: b}}]}}",
			},
			[]string{`has the key "x-$(CREATOR)-y"`}},
		{"a token in a label's key",
			[]string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {$(CREATOR): b}}}"},
			[]string{`has the key "$(CREATOR)"`}},
		{
			"YAML's merge key", []string{`{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {"<<": b}}`},
			[]string{`has the key "<<"`},
		},
		{"an annotation that is not a string",
			[]string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {b: 1}}}"},
			[]string{"metadata.annotations[b]: configmap/a: must be a string"}},
		{"labels that are not a map", []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: []}}"},
			[]string{"metadata.labels: configmap/a: must be an object"}},
		{"an annotation with which kustomize omits the object",
			[]string{
				"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {config.kubernetes.io/local-config: 'true'}}}",
			},
			[]string{"annotation config.kubernetes.io/local-config is reserved for kustomize"}},
		{"an annotation that kustomize uses internally",
			[]string{
				"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {internal.config.kubernetes.io/previousNames: b}}}",
			},
			[]string{"is reserved for kustomize"}},
		{"every mistake at once",
			[]string{"{kind: a}", configMap, "{apiVersion: v1, kind: Namespace, metadata: {name: a}}"},
			[]string{"spec.templates[0]: apiVersion is missing", "spec.templates[2]: namespace/a: is not"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Compile(t.Context(), templateOf(t, test.objects...), nil)
			require.ErrorContains(t, err, "template policies: ")
			for _, want := range test.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// doubling is a JSON patch that doubles an object's data a number of times.
func doubling(times int) string {
	operations := make([]string, times)
	for i := range operations {
		operations[i] = fmt.Sprintf(`{"op": "copy", "from": "/data", "path": "/data/a%d"}`, i)
	}
	return "[" + strings.Join(operations, ", ") + "]"
}

// Objects are identified by their positions: two that swap their names would be vetted as each other.
func TestCompileRejectsOverlaysThatSwapTheNamesOfObjects(t *testing.T) {
	rename := func(from, to string) string {
		return `{patch: '[{"op": "replace", "path": "/metadata/name", "value": "` + to + `"}]', target: {name: ` +
			from + `}}`
	}
	template := withOverlays(t, templateOf(t, configMap, strings.Replace(configMap, "settings", "other", 1)),
		"[{name: o, patches: ["+rename("settings", "third")+", "+rename("other", "settings")+", "+rename("third",
			"other")+"]}]")
	_, err := Compile(t.Context(), template, []string{"o"})
	require.ErrorContains(t, err, "it turns another object into")
}

func TestCompileRejectsReservedLabelsAndAnnotations(t *testing.T) {
	for key, reserved := range map[string]bool{
		"policy/namespace-template-name": true, "policy/namespace-initializing": true,
		"policy.nstpl.dev/applied-hash": true,
		"policy.nstpl.dev/tree":         true, "a.tree.policy.nstpl.dev/depth": true,
		"authorization.k8s.io/creator":  true,
		"policy.nstpl.dev/required-scc": false,
		"policy/replace":                false, "policy/other": false, "policy.example.com/tree": false,
		"mypolicy.nstpl.dev/a": false,
		"namespace-a":          false,
	} {
		for _, field := range []string{"labels", "annotations"} {
			_, err := Compile(t.Context(),
				templateOf(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, "+field+": {"+key+": a}}}"), nil)
			if reserved || field == "labels" && key == "policy.nstpl.dev/required-scc" {
				require.ErrorContains(t, err, key+" is reserved for nstpl", field)
			} else {
				require.NoError(t, err, "%s %s", field, key)
			}
		}
	}
}

func TestCompileReturnsWhenItsContextIsCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Compile(ctx, templateOf(t, configMap), nil)
	require.ErrorIs(t, err, context.Canceled)
	_, err = Variants(ctx, templateOf(t, configMap))
	require.ErrorIs(t, err, context.Canceled)
}

func TestCompileRejectsInvalidSelectors(t *testing.T) {
	invalid := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: "a", Operator: "Near",
	}}}

	template := templateOf(t, configMap)
	template.Spec.Namespaces.LabelSelector = invalid
	_, err := Compile(t.Context(), template, nil)
	require.ErrorContains(t, err, "namespaces.labelSelector")

	template = templateOf(t, configMap)
	template.Spec.Namespaces.LabelSelector = nil
	_, err = Compile(t.Context(), template, nil)
	require.ErrorContains(t, err, "namespaces.labelSelector is missing")

	template = withOverlays(t, templateOf(t, configMap), "[{name: production}]")
	template.Spec.Overlays[0].Namespaces.LabelSelector = invalid
	_, err = Compile(t.Context(), template, nil)
	require.ErrorContains(t, err, "spec.overlays[0].namespaces: overlay production: namespaces.labelSelector",
		"although Compile does not apply the overlay")

	template = templateOf(t, configMap)
	template.Spec.Rollout = &v1alpha1.Rollout{
		Waves: []v1alpha1.Wave{{Selector: &metav1.LabelSelector{}}, {Selector: invalid}},
	}
	_, err = Compile(t.Context(), template, nil)
	require.ErrorContains(t, err, "spec.rollout.waves[1].selector")
}

func TestCompileRejectsInvalidOverlays(t *testing.T) {
	tests := []struct {
		name, overlay, want string
	}{
		{"a patch that is a text", "patches: [{patch: hello}]", "neither an object nor a list"},
		{"a patch that is not YAML", "patches: [{patch: '{a: ['}]", "not valid YAML"},
		{
			"a JSON patch without a target", `patches: [{patch: '[{"op": "remove", "path": "/data"}]'}]`,
			"a JSON patch needs a target",
		},
		{
			"a JSON patch that fails",
			`patches: [{patch: '[{"op": "remove", "path": "/data/size"}]', target: {kind: ConfigMap}}]`, "/data/size",
		},
		{
			"a JSON patch with an unknown operation",
			`patches: [{patch: '[{"op": "twist", "path": "/data"}]', target: {kind: ConfigMap}}]`, "twist",
		},
		{"a patch of an object that the template does not declare",
			"patches: [{patch: '{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}'}]",
			"configmap/other, which the template does not declare"},
		{
			"a target that is not a regular expression",
			"patches: [{patch: '{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}', target: {name: '('}}]",
			"not a valid regular expression",
		},
		{"replicas of an object that the template does not declare", "replicas: [{name: other, count: 2}]", "other"},
		{"a token in the key of a label", "labels: {$(CREATOR): a}", `has the key "$(CREATOR)"`},
		{"a token in the key of an annotation", "annotations: {a/$(NAMESPACE): a}", `has the key "a/$(NAMESPACE)"`},
		{"a token in the key of a patch",
			"patches: [{patch: '{data: {$(CREATOR): a}, apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}'}]",
			`has the key "$(CREATOR)"`},
		{
			"an annotation with which kustomize omits every object",
			"annotations: {config.kubernetes.io/local-config: 'true'}",
			"is reserved for kustomize",
		},
		{"a patch that sets the namespace",
			`patches: [{patch: '[{"op": "add", "path": "/metadata/namespace", "value": "kube-system"}]', target: {kind: ConfigMap}}]`,
			"metadata.namespace: must not be set"},
		{"a patch that changes the name",
			`patches: [{patch: '[{"op": "replace", "path": "/metadata/name", "value": "other"}]', target: {kind: ConfigMap}}]`,
			"it turns another object into v1 ConfigMap other"},
		{"a patch that changes the kind",
			`patches: [{patch: '[{"op": "replace", "path": "/kind", "value": "Secret"}]', target: {kind: ConfigMap}}]`,
			"it turns another object into v1 Secret settings"},
		{"a patch that changes the version",
			`patches: [{patch: '[{"op": "replace", "path": "/apiVersion", "value": "v1beta1"}]', target: {kind: ConfigMap}}]`,
			"it turns another object into v1beta1 ConfigMap settings"},
		{
			"a label that is reserved for nstpl", "labels: {policy/namespace-template-name: other}",
			"the label policy/namespace-template-name is reserved for nstpl",
		},
		{
			"an annotation that is reserved for nstpl", "annotations: {policy.nstpl.dev/adopted: 'true'}",
			"the annotation policy.nstpl.dev/adopted is reserved for nstpl",
		},
		{"a patch that sets an annotation that is reserved for nstpl",
			`patches: [{patch: '[{"op": "add", "path": "/metadata/annotations", "value": {"policy.nstpl.dev/applied-hash": "a"}}]', target: {kind: ConfigMap}}]`,
			"the annotation policy.nstpl.dev/applied-hash is reserved for nstpl"},
		{
			"a patch that doubles an object many times",
			"patches: [{patch: '" + doubling(30) + "', target: {kind: ConfigMap}}]", "copy",
		},
		{
			"a patch that removes the name",
			`patches: [{patch: '[{"op": "remove", "path": "/metadata/name"}]', target: {kind: ConfigMap}}]`, "name",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			template := withOverlays(t, templateOf(t, configMap), "[{name: production, "+test.overlay+"}]")
			_, err := Compile(t.Context(), template, []string{"production"})
			require.ErrorContains(t, err, "overlay production: ")
			require.ErrorContains(t, err, test.want)

			_, err = Compile(t.Context(), template, nil)
			require.NoError(t, err, "Compile does not build overlays that are not named")
		})
	}
}

func TestCompileAppliesOverlays(t *testing.T) {
	settings := func(data string) string {
		return "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: team-a, labels: {policy/namespace-template-name: policies}}, data: " + data + "}"
	}
	tests := []struct {
		name, object, overlays string
		want                   []string
	}{
		{"a strategic merge patch changes the object that it names", configMap,
			"[{name: a, patches: [{patch: '{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {size: big, color: null}}'}]}]",
			[]string{settings("{size: big}")}},
		{"a strategic merge patch changes its target", configMap,
			"[{name: a, patches: [{patch: '{apiVersion: v1, kind: ConfigMap, metadata: {name: any}, data: {size: big}}', target: {name: set.*}}]}]",
			[]string{settings("{color: blue, size: big}")}},
		{"a patch whose target selects nothing changes nothing", configMap,
			"[{name: a, patches: [{patch: '[{\"op\": \"remove\", \"path\": \"/data\"}]', target: {name: set}}]}]",
			[]string{settings("{color: blue}")}},
		{"a JSON patch changes its target", configMap,
			"[{name: a, patches: [{patch: \"- {op: add, path: /data/size, value: '10'}\", target: {kind: ConfigMap}}]}]",
			[]string{settings("{color: blue, size: '10'}")}},
		{"tokens in a patch are replaced", configMap,
			"[{name: a, patches: [{patch: '{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {who: $(CREATOR)}}'}]}]",
			[]string{settings("{color: blue, who: alice}")}},
		{"a patch can delete the object", configMap,
			"[{name: a, patches: [{patch: '{$patch: delete, apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}'}]}, {name: b, labels: {a: b}}]",
			nil},
		{"a later overlay overrides an earlier one", configMap, `
- {name: a, patches: [{patch: '{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {color: red, a: a}}'}]}
- {name: b, patches: [{patch: '{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {color: $(NAMESPACE)}}'}]}`,
			[]string{settings("{a: a, color: team-a}")}},
		{"the namespace in a patch is ignored", configMap,
			"[{name: a, patches: [{patch: '{apiVersion: v1, kind: ConfigMap, metadata: {name: any, namespace: other}}', target: {kind: ConfigMap}}]}]",
			[]string{settings("{color: blue}")}},
		{"labels and annotations are set in the object's own metadata only", deployment,
			"[{name: a, labels: {tier: 'yes'}, annotations: {'on': '0123', '1': 'null', quote: \"a\\u0085'\"}}]",
			[]string{`
apiVersion: apps/v1
kind: Deployment
metadata:
  name: gate
  namespace: team-a
  labels: {app: gate, tier: 'yes', policy/namespace-template-name: policies}
  annotations: {'on': '0123', '1': 'null', quote: "a\u0085'"}
spec:
  replicas: 1
  selector: {matchLabels: {app: gate}}
  template:
    metadata: {labels: {app: gate}}
    spec:
      containers:
      - {name: gate, image: example.dev/gate:1, env: [{name: MODE, value: open}]}
      - {name: side, image: example.dev/side:1}`}},
		{"images and replicas are set, and containers are merged by their names", deployment, `
- name: a
  images: [{name: example.dev/gate, newTag: "2"}, {name: example.dev/side, newName: example.dev/$(NAMESPACE), digest: sha256:ab}]
  replicas: [{name: gate, count: 3}]
  patches:
  - patch: |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: gate}
      spec: {template: {spec: {containers: [{name: gate, env: [{name: MODE, value: "no"}]}]}}}`,
			[]string{`
apiVersion: apps/v1
kind: Deployment
metadata: {name: gate, namespace: team-a, labels: {app: gate, policy/namespace-template-name: policies}}
spec:
  replicas: 3
  selector: {matchLabels: {app: gate}}
  template:
    metadata: {labels: {app: gate}}
    spec:
      containers:
      - {name: gate, image: "example.dev/gate:2", env: [{name: MODE, value: "no"}]}
      - {name: side, image: "example.dev/team-a@sha256:ab"}`}},
		{"empty maps and lists are kept beside a patch", networkPolicy,
			"[{name: a, patches: [{patch: '{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: default-deny}, spec: {egress: []}}'}]}]",
			[]string{`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: default-deny, namespace: team-a, labels: {policy/namespace-template-name: policies}}
spec: {podSelector: {}, ingress: [], egress: [], policyTypes: [Ingress, Egress]}`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			template := withOverlays(t, templateOf(t, test.object), test.overlays)
			objects := declared(t, template, names(template)...)
			require.Len(t, objects, len(test.want))
			for i, want := range test.want {
				wantJSON, err := yaml.YAMLToJSON([]byte(want))
				require.NoError(t, err)
				gotJSON, err := json.Marshal(objects[i].Object)
				require.NoError(t, err)
				require.JSONEq(t, string(wantJSON), string(gotJSON))
			}
		})
	}
}

func TestCompileOfATemplateWithoutObjects(t *testing.T) {
	compiled, err := Compile(t.Context(), templateOf(t), nil)
	require.NoError(t, err)
	require.Empty(t, compiled.Kinds())
	require.Empty(t, declared(t, templateOf(t)))
}

func TestCompileSetsTheNamespaceOfServiceAccountsThatNameNone(t *testing.T) {
	serviceAccount := "{apiVersion: v1, kind: ServiceAccount, metadata: {name: builder}}"
	for name, objects := range map[string][]string{
		"not declared in the template": {roleBinding},
		"declared before":              {serviceAccount, roleBinding},
		"declared after":               {roleBinding, serviceAccount},
	} {
		t.Run(name, func(t *testing.T) {
			for _, object := range declared(t, templateOf(t, objects...)) {
				if object.GetKind() != "RoleBinding" {
					continue
				}
				require.Equal(t, []any{
					map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"},
					map[string]any{"kind": "ServiceAccount", "name": "builder", "namespace": "team-a"},
					map[string]any{"kind": "ServiceAccount", "name": "builder", "namespace": "ci"},
					map[string]any{"kind": "ServiceAccount", "name": "default", "namespace": "team-a"},
				}, object.Object["subjects"])
			}
		})
	}
}

func TestCompileSetsNoNamespaceOfSubjectsOfOtherKinds(t *testing.T) {
	access := declared(t, templateOf(t, "{apiVersion: example.com/v1, kind: Access, metadata: {name: a}, "+
		"subjects: [{kind: ServiceAccount, name: builder}]}"))[0]
	require.Equal(t, []any{map[string]any{"kind": "ServiceAccount", "name": "builder"}}, access.Object["subjects"])
}

func TestCompileKeepsEveryValue(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for range 20 {
		template := templateOf(t)
		var want []any
		for i := range 60 {
			object := map[string]any{
				"apiVersion": "example.dev/v1", "kind": "Anything",
				"metadata": map[string]any{
					"name":        fmt.Sprintf("object-%d", i),
					"labels":      map[string]any{randomKey(random): randomString(random)},
					"annotations": map[string]any{randomKey(random): randomString(random)},
				},
				"spec": randomValue(random, 4),
			}
			raw, err := json.Marshal(object)
			require.NoError(t, err)
			template.Spec.Templates = append(template.Spec.Templates, runtime.RawExtension{Raw: raw})
			metadata := object["metadata"].(map[string]any)
			metadata["namespace"] = "team-a"
			metadata["labels"].(map[string]any)[v1alpha1.TemplateNameLabel] = "policies"
			want = append(want, object)
		}
		objects := declared(t, template)
		require.Len(t, objects, len(want))
		for i := range want {
			wantJSON, err := json.Marshal(want[i])
			require.NoError(t, err)
			gotJSON, err := json.Marshal(objects[i].Object)
			require.NoError(t, err)
			require.Equal(t, string(wantJSON), string(gotJSON))
		}
	}
}

// Compile keeps every JSON value, or returns an error.
func FuzzCompile(f *testing.F) {
	f.Add([]byte(`{"a": [1, null, "\ta\nb", {"1": "yes", "on": 0.5}]}`))
	f.Add([]byte(`"- a: b"`))
	f.Add([]byte(`[[], {}, "", "\u0085", 1e21, 9223372036854775807, 18446744073709551616]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var spec any
		if utiljson.Unmarshal(data, &spec) != nil {
			return
		}
		raw, err := json.Marshal(map[string]any{
			"apiVersion": "example.dev/v1", "kind": "Thing", "metadata": map[string]any{"name": "a"}, "spec": spec,
		})
		require.NoError(t, err)
		template := templateOf(t)
		template.Spec.Templates = []runtime.RawExtension{{Raw: raw}}
		compiled, err := Compile(t.Context(), template, nil)
		if err != nil {
			return
		}
		wantJSON, err := json.Marshal(spec)
		require.NoError(t, err)
		gotJSON, err := json.Marshal(compiled.objects[0].Object["spec"])
		require.NoError(t, err)
		require.Equal(t, string(wantJSON), string(gotJSON))
	})
}

func BenchmarkCompileTenObjects(b *testing.B) {
	template := withOverlays(b, tenObjects(b), "[{name: a, labels: {a: b}, replicas: [{name: gate, count: 3}]}]")
	for b.Loop() {
		if _, err := Compile(b.Context(), template, []string{"a"}); err != nil {
			b.Fatal(err)
		}
	}
}

// awkward are strings that YAML could read as something else, as values or as keys.
var awkward = []string{
	"", " ", "a", "yes", "no", "on", "off", "y", "n", "true", "True", "null", "Null", "~", "0123", "0x1F", "0o7", "1e3",
	"1_000", "12:30:45",
	".inf", ".nan", "-", "- a", "? a", "a: b", "#", "a #b", "<<", "=", "&a", "*a", "!a", "!!int 3", "%a", "@a", "`a`",
	"{a}", "[a]",
	"'", "\"", "\\", "\\n", "$", "$$", "$(FOO)", "2001-01-01", "2001-01-01T00:00:00Z", "---", "\n---\n", "...", "\n",
	"a\nb", "a\n", "\na",
	"\ta\n\tb", "  a\n b", "a ", " a", "a\r\nb", "\x00", "\x01", "\x1b[31m", "\x7f", "\u0085", "\u00a0", "\u009f",
	"\u2028", "\u2029",
	"\ufeff", "\ufffd", "\ufffe", "\uffff", "é", "漢字", "😀", "|", ">", "|-\n  a", "//", "</script>", "0", "-0", "3.0",
	"1e400",
}

func randomString(random *rand.Rand) string {
	s := awkward[random.Intn(len(awkward))]
	for random.Intn(3) == 0 {
		s += awkward[random.Intn(len(awkward))]
	}
	return s
}

// randomKey returns a key that kustomize accepts.
func randomKey(random *rand.Rand) string {
	if key := randomString(random); key != "<<" && key != "" {
		return key
	}
	return "a"
}

var numbers = []any{
	0, -1, 1.5, -0.25, 1e-9, 1e21, 1e300, 10000000, math.MaxInt32, int64(math.MaxInt64), int64(math.MinInt64),
	int64(1)<<53 + 1, 0.1, 100000.5,
}

// randomValue returns a JSON value.
func randomValue(random *rand.Rand, depth int) any {
	switch kind := random.Intn(8); {
	case kind == 0:
		return nil
	case kind == 1:
		return random.Intn(2) == 0
	case kind == 2:
		return numbers[random.Intn(len(numbers))]
	case kind <= 4 || depth == 0:
		return randomString(random)
	case kind == 5:
		list := []any{}
		for range random.Intn(4) {
			list = append(list, randomValue(random, depth-1))
		}
		return list
	}
	fields := map[string]any{}
	for range random.Intn(5) {
		fields[randomKey(random)] = randomValue(random, depth-1)
	}
	return fields
}

// Otherwise an existing object of that name would keep what it grants.
func TestNothingThatIsGrantedIsDeclaredAsAnEmptyList(t *testing.T) {
	const role = "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a}"
	const binding = "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a}, " +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}"
	for source, field := range map[string]string{
		role + "}": "rules", role + ", rules: null}": "rules", role + ", rules: []}": "rules",
		binding + "}": "subjects", binding + ", subjects: null}": "subjects", binding + ", subjects: []}": "subjects",
	} {
		t.Run(source, func(t *testing.T) {
			compiled, err := Compile(t.Context(), templateOf(t, source), nil)
			require.NoError(t, err)
			require.Equal(t, []any{}, compiled.Objects()[0].Object[field])
		})
	}
}

// Otherwise the owner of a namespace could open a policy by a field that it leaves out.
func TestDefaultsOfANetworkPolicyAreDeclared(t *testing.T) {
	for source, want := range map[string]string{
		"": `{"ingress": [], "podSelector": {}, "policyTypes": ["Ingress"]}`,
		", spec: {podSelector: {matchLabels: {a: b}}, ingress: [{}]}": `{"ingress": [{}],
			"podSelector": {"matchLabels": {"a": "b"}}, "policyTypes": ["Ingress"]}`,
		", spec: {egress: [{}]}": `{"egress": [{}], "ingress": [], "podSelector": {},
			"policyTypes": ["Ingress", "Egress"]}`,
		", spec: {policyTypes: [], egress: []}": `{"egress": [], "ingress": [], "podSelector": {},
			"policyTypes": ["Ingress"]}`,
		", spec: {policyTypes: [Egress], podSelector: null}": `{"egress": [], "podSelector": {},
			"policyTypes": ["Egress"]}`,
		", spec: {policyTypes: [Ingress, Egress], ingress: null}": `{"egress": [], "ingress": [], "podSelector": {},
			"policyTypes": ["Ingress", "Egress"]}`,
	} {
		t.Run(source, func(t *testing.T) {
			compiled, err := Compile(t.Context(), templateOf(t,
				"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: a}"+source+"}"), nil)
			require.NoError(t, err)
			got, err := json.Marshal(compiled.Objects()[0].Object["spec"])
			require.NoError(t, err)
			require.JSONEq(t, want, string(got))
		})
	}
}

// Kubernetes writes the rules of a ClusterRole that aggregates others.
func TestRulesOfAnAggregatedClusterRoleAreNotDeclared(t *testing.T) {
	role := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "aggregationRule": map[string]any{},
	}}
	DeclareDefaults(role)
	require.NotContains(t, role.Object, "rules")
	delete(role.Object, "aggregationRule")
	DeclareDefaults(role)
	require.Equal(t, []any{}, role.Object["rules"])
}
