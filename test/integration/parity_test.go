package integration_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
)

// The objects of a preview are exactly those that the operator stores when the namespace is created. A plan after that
// has no changes.
func TestPreviewMatchesStoredObjects(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	templates := []*v1alpha1.NamespaceTemplate{
		// the API server stores quantities in a canonical form
		s.newTemplate("kinds", strings.ReplaceAll(policyKinds, "4096Mi", "4Gi")),
		s.newTemplate("override",
			documents(configMap("settings", "overridden for $(CREATOR)"), configMap("$(NAMESPACE)", "named"))),
		s.newTemplate("overlays", documents(configMap("layered", "base"), configMap("dropped", "base")),
			func(template *v1alpha1.NamespaceTemplate) {
				template.Spec.Overlays = []v1alpha1.Overlay{
					{
						Name: "production", Namespaces: selectLabel("tier", "production"),
						Labels:      map[string]string{"tier": "production"},
						Annotations: map[string]string{"example.com/why": "$(NAMESPACE)"},
						Patches:     []v1alpha1.Patch{{Patch: configMap("layered", "for $(CREATOR)")}},
					},
					{
						Name: "last", Namespaces: selectLabel("tier", "production"),
						Patches: []v1alpha1.Patch{{
							Target: &v1alpha1.PatchTarget{Kind: "ConfigMap", Name: "dropped"},
							Patch:  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: dropped}\n$patch: delete\n",
						}},
					},
				}
			}),
		s.newTemplate("elsewhere", configMap("elsewhere", "v"), func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Namespaces = selectLabel("no", "namespace")
		}),
	}
	namespaces := []*corev1.Namespace{
		s.newNamespace("known", withCreator("system:serviceaccount:x:y")),
		s.preexistingNamespace(),
		s.newNamespace("production", withCreator("$(NAMESPACE)"), withLabel("tier", "production")),
	}
	expectStoredAsPreviewed(s, templates, namespaces)
}

// The same holds for random templates with unusual values.
func TestPreviewMatchesStoredObjectsOfRandomTemplates(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), scope: s}
			var templates []*v1alpha1.NamespaceTemplate
			for i := range 8 {
				templates = append(templates, g.template(i))
			}
			var namespaces []*corev1.Namespace
			for i := range 8 {
				namespaces = append(namespaces, g.namespace(i))
			}
			expectStoredAsPreviewed(s, templates, namespaces)
		})
	}
}

// expectStoredAsPreviewed previews namespaces that do not exist, creates them, and compares.
func expectStoredAsPreviewed(s *testScope, templates []*v1alpha1.NamespaceTemplate, namespaces []*corev1.Namespace) {
	s.t.Helper()
	cache, index := render.NewCache(), match.NewIndex()
	for _, template := range templates {
		require.NoError(s.t, s.client.Create(s.t.Context(), template))
		s.waitTemplateObserved(template)
		found := &v1alpha1.NamespaceTemplate{}
		require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(template), found))
		require.Equal(s.t, metav1.ConditionTrue, templateCondition(found.Status, v1alpha1.TemplateAccepted).Status,
			"%v",
			found.Status)
		index.Set(found)
	}
	for _, ns := range namespaces {
		templates, unpopulated := populate.Matching(index, ns)
		require.Empty(s.t, unpopulated)
		preview := populate.Declare(cache, ns, templates, populate.Inputs{})
		require.Empty(s.t, preview.Broken)
		if ns.Annotations[v1alpha1.CreatorAnnotation] == "" {
			s.applyLabels(ns)
		} else {
			require.NoError(s.t, s.createAsCreator(ns.DeepCopy()))
		}
		if len(templates) > 0 {
			s.waitPopulated(ns)
		}
		comparePreview(s, ns, preview)
		expectEmptyPlan(s, ns, cache, index)
	}
}

// comparePreview fails unless the populated objects of a namespace are exactly those of the preview.
func comparePreview(s *testScope, ns *corev1.Namespace, preview populate.Declared) {
	s.t.Helper()
	previewed := map[string]bool{}
	for _, object := range preview.Objects {
		previewed[object.ID().String()] = true
		stored := s.mustGet(ns, object)
		require.Empty(s.t, differences(object.Object, stored.Object), "%s in %s", object.ID(), ns.Name)
		require.Equal(s.t, object.GetLabels(), stored.GetLabels())
		annotations := stored.GetAnnotations()
		delete(annotations, v1alpha1.HashAnnotation)
		if len(annotations) > 0 || len(object.GetAnnotations()) > 0 {
			require.Equal(s.t, object.GetAnnotations(), annotations)
		}
		require.Equal(s.t, uncompletedFields(object.Unstructured), uncompletedFields(stored), "%s in %s", object.ID(),
			ns.Name)
	}
	found := map[string]bool{}
	for _, object := range listPopulatedObjects(s, ns, populate.KindsToObserve(preview.Templates, preview)) {
		found[populate.ObjectID{GroupKind: object.GroupVersionKind().GroupKind(), Name: object.Name}.String()] = true
	}
	require.Equal(s.t, previewed, found)
}

// uncompletedFields returns the fields of an object to which the API server adds nothing: the number of values in data,
// and the rules of a Role.
func uncompletedFields(object *unstructured.Unstructured) []any {
	data, _, _ := unstructured.NestedMap(object.Object, "data")
	return []any{len(data), object.Object["rules"]}
}

func listPopulatedObjects(s *testScope,
	ns *corev1.Namespace, kinds []schema.GroupKind,
) []*metav1.PartialObjectMetadata {
	s.t.Helper()
	metadataClient, err := metadata.NewForConfig(s.controlPlane.RESTConfig())
	require.NoError(s.t, err)
	observer := &populate.Observer{Client: metadataClient, Mapper: meta.ToRESTMapperWithContext(s.client.RESTMapper())}
	var all []*metav1.PartialObjectMetadata
	for _, kind := range kinds {
		found, err := observer.Observe(s.t.Context(), kind, ns.Name, populate.Labelled)
		require.NoError(s.t, err)
		all = append(all, found.In(ns.Name)...)
	}
	return all
}

// expectEmptyPlan fails if a plan for the stored objects has changes.
func expectEmptyPlan(s *testScope, ns *corev1.Namespace, cache *render.Cache, index *match.Index) {
	s.t.Helper()
	found := &corev1.Namespace{}
	require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(ns), found))
	templates, _ := populate.Matching(index, found)
	declared := populate.Declare(cache, found, templates, populate.Inputs{})
	there := listPopulatedObjects(s, found, populate.KindsToObserve(index.All(), declared))
	for _, change := range populate.NewPlan(declared, index, populate.Observed{Objects: there}).Changes {
		require.Contains(s.t, []populate.Action{populate.Unchanged, populate.LeaveAlone}, change.Action,
			"%s in %s: %s", change.ID(), ns.Name, change.Reason)
		require.False(s.t, change.Drifted, "%s in %s: %s", change.ID(), ns.Name, change.Reason)
	}
}

// generator returns random templates and namespaces.
type generator struct {
	*rand.Rand
	scope *testScope
}

func (g *generator) pick(from ...string) string {
	return from[g.IntN(len(from))]
}

// trickyString returns a string that a parser of YAML or tokens may misread.
func (g *generator) trickyString() string {
	word := g.pick("yes", "null", "~", "1e3", "0x1F", "007", "1_000", "12:30:45", "2001-01-01", "-", "", " ", "a: b",
		"- x", "# no", "{}", "[", "'", `"`,
		"\t", "a\nb\n", "\n", "x\r\ny", "*a", "&a", "!!str x", "|", ">", "%", "@", "`", "é", "世界", "🎉", "\u0085",
		"\u2028", "\ufeff", "\x7f",
		"$(NAMESPACE)", "$(CREATOR)", "$$(NAMESPACE)", "$$(CREATOR)", "$$$(NAMESPACE)", "$(NAMESPACE", "$",
		"${NAMESPACE}", "$(OTHER)")
	if g.IntN(3) == 0 {
		word += g.trickyString()
	}
	return word
}

func (g *generator) labels() map[string]string {
	labels := map[string]string{}
	for range g.IntN(3) {
		labels[g.pick("a", "b", "example.com/c")] = g.pick("1", "true", "x-y", "", "null")
	}
	return labels
}

func (g *generator) namespace(i int) *corev1.Namespace {
	if g.IntN(4) == 0 {
		return g.scope.preexistingNamespace(func(ns *corev1.Namespace) { maps.Copy(ns.Labels, g.labels()) })
	}
	ns := g.scope.newNamespace(fmt.Sprint(i), withCreator("user "+g.trickyString()))
	maps.Copy(ns.Labels, g.labels())
	return ns
}

func (g *generator) selector() v1alpha1.NamespaceSelector {
	s := selectLabel(testLabel, g.scope.id)
	for range g.IntN(2) {
		requirement := metav1.LabelSelectorRequirement{
			Key:      g.pick("a", "b", "example.com/c"),
			Operator: metav1.LabelSelectorOperator(g.pick("In", "NotIn", "Exists", "DoesNotExist")),
		}
		if strings.HasSuffix(string(requirement.Operator), "In") {
			requirement.Values = []string{g.pick("1", "true", "null"), g.pick("x-y", "")}
		}
		s.LabelSelector.MatchExpressions = append(s.LabelSelector.MatchExpressions, requirement)
	}
	return s
}

func (g *generator) template(i int) *v1alpha1.NamespaceTemplate {
	template := &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: g.scope.name(fmt.Sprint(i))},
		Spec: v1alpha1.NamespaceTemplateSpec{
			Namespaces:  g.selector(),
			DriftPolicy: v1alpha1.DriftPolicy(g.pick("Correct", "Report")),
		},
	}
	ids := map[string]map[string]any{}
	for range 1 + g.IntN(5) {
		object := g.object()
		ids[fmt.Sprint(object["kind"], object["metadata"].(map[string]any)["name"])] = object
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		template.Spec.Templates = append(template.Spec.Templates, runtime.RawExtension{Raw: g.json(ids[id])})
	}
	for j := range g.IntN(3) {
		template.Spec.Overlays = append(template.Spec.Overlays, g.overlay(j, ids))
	}
	return template
}

func (g *generator) json(value any) []byte {
	data, err := json.Marshal(value)
	require.NoError(g.scope.t, err)
	return data
}

func (g *generator) object() map[string]any {
	metadata := map[string]any{"name": g.pick("x", "y", "$(NAMESPACE)", "of-$(NAMESPACE)"), "labels": g.labels()}
	if g.IntN(2) == 0 {
		metadata["annotations"] = map[string]any{"example.com/a": g.trickyString(), "b": g.trickyString()}
	}
	switch g.IntN(4) {
	case 0:
		return map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata,
			"rules": []any{map[string]any{
				"apiGroups": []any{""}, "resources": []any{"pods"}, "resourceNames": []any{"x" + g.trickyString()},
				"verbs": []any{"get"},
			}},
		}
	case 1:
		return map[string]any{
			"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata,
			"spec": map[string]any{
				"podSelector": map[string]any{"matchLabels": g.labels()}, "policyTypes": []any{"Ingress"},
				"ingress": []any{map[string]any{"ports": []any{map[string]any{
					"port": 1 + g.IntN(65535), "protocol": "TCP",
				}, map[string]any{"port": "web"}}}},
			},
		}
	}
	data := map[string]any{}
	for range g.IntN(5) {
		data[g.pick("a", "b.c", "1", "true", "null", "on", "e-1")] = g.trickyString()
	}
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
}

// overlay returns an overlay that patches one of the template's ConfigMaps, if there is one.
func (g *generator) overlay(i int, objects map[string]map[string]any) v1alpha1.Overlay {
	overlay := v1alpha1.Overlay{
		Name: fmt.Sprintf("overlay-%d", i), Namespaces: g.selector(),
		Labels: g.labels(), Annotations: map[string]string{"example.com/overlay": g.trickyString()},
	}
	for _, id := range slices.Sorted(maps.Keys(objects)) {
		if object := objects[id]; object["kind"] == "ConfigMap" {
			overlay.Patches = []v1alpha1.Patch{{Patch: string(g.json(map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap",
				"metadata": map[string]any{"name": object["metadata"].(map[string]any)["name"]},
				"data":     map[string]any{"patched": g.trickyString()},
			}))}}
			break
		}
	}
	return overlay
}
