package populate

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
)

// templateOf returns a template that selects every namespace and declares objects given in YAML.
func templateOf(t testing.TB, name string, objects ...string) *v1alpha1.NamespaceTemplate {
	t.Helper()
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
	for _, object := range objects {
		raw, err := yaml.YAMLToJSON([]byte(object))
		require.NoError(t, err)
		template.Spec.Templates = append(template.Spec.Templates, runtime.RawExtension{Raw: raw})
	}
	return template
}

// teamA returns a namespace that alice created.
func teamA() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "team-a", Annotations: map[string]string{v1alpha1.CreatorAnnotation: "alice"},
	}}
}

func declare(ns *corev1.Namespace, templates ...*v1alpha1.NamespaceTemplate) Declared {
	return Declare(render.NewCache(), ns, templates, Inputs{})
}

const (
	settings = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {color: blue}}"
	limits   = "{apiVersion: v1, kind: LimitRange, metadata: {name: limits}, spec: {limits: [{type: Container, default: {cpu: 1}}]}}"
	creator  = `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: creator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: $(CREATOR)}]
`
)

func idsOf(objects []Object) []string {
	ids := make([]string, 0, len(objects))
	for _, object := range objects {
		ids = append(ids, object.Template.Name+" "+object.ID().String())
	}
	return ids
}

func TestDeclareRendersTemplatesInOrder(t *testing.T) {
	a, b := templateOf(t, "a", limits, settings), templateOf(t, "b", creator)
	declared := declare(teamA(), a, b)
	require.Equal(t,
		[]string{"a limitrange/limits", "a configmap/settings", "b rolebinding.rbac.authorization.k8s.io/creator"},
		idsOf(declared.Objects))
	require.Equal(t, []*v1alpha1.NamespaceTemplate{a, b}, declared.Templates)
	require.Empty(t, declared.Overridden)
	require.Empty(t, declared.Omitted)
	require.Empty(t, declared.Broken)
	for _, object := range declared.Objects {
		require.Equal(t, "team-a", object.GetNamespace())
		require.Len(t, object.Hash, 16)
	}
	subjects, _, err := unstructured.NestedSlice(declared.Objects[2].Object, "subjects")
	require.NoError(t, err)
	require.Equal(t, "alice", subjects[0].(map[string]any)["name"])
}

func TestDeclareLetsTheLaterTemplateWin(t *testing.T) {
	red := "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {color: red}}"
	green := "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {color: green}}"
	declared := declare(teamA(), templateOf(t, "a", settings, limits), templateOf(t, "b", red),
		templateOf(t, "c", green))
	require.Equal(t, []string{"c configmap/settings", "a limitrange/limits"}, idsOf(declared.Objects))
	require.Equal(t, map[string]any{"color": "green"}, declared.Objects[0].Object["data"])
	require.Equal(t, "c", declared.Objects[0].GetLabels()[v1alpha1.TemplateNameLabel])
	id := ObjectID{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: "settings"}
	require.Equal(t, []Overridden{{Object: id, Template: "a", By: "b"}, {Object: id, Template: "b", By: "c"}},
		declared.Overridden)
}

func TestDeclareIdentifiesObjectsWithoutTheirVersion(t *testing.T) {
	declared := declare(teamA(),
		templateOf(t, "a", "{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: a}}"),
		templateOf(t, "b", "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: a}}"))
	require.Equal(t, []string{"b horizontalpodautoscaler.autoscaling/a"}, idsOf(declared.Objects))
	require.Equal(t, "autoscaling/v2", declared.Objects[0].GetAPIVersion())
}

func TestDeclareSkipsBrokenTemplates(t *testing.T) {
	broken := templateOf(t, "b", settings, "{kind: a}")
	twice := templateOf(t, "c", "{apiVersion: v1, kind: Secret, metadata: {name: team-a}}",
		"{apiVersion: v1, kind: Secret, metadata: {name: $(NAMESPACE)}}")
	declared := declare(teamA(), templateOf(t, "a", settings), broken, twice, templateOf(t, "d", limits))
	require.Equal(t, []string{"a configmap/settings", "d limitrange/limits"}, idsOf(declared.Objects))
	require.Empty(t, declared.Overridden)
	require.Len(t, declared.Broken, 2)
	require.Same(t, broken, declared.Broken[0].Template)
	require.ErrorContains(t, declared.Broken[0].Err, "spec.templates[1]: apiVersion is missing")
	require.ErrorContains(t, declared.Broken[1].Err, "secret/team-a is declared twice")
}

func TestDeclareOmitsObjectsThatNameAnUnknownCreator(t *testing.T) {
	ns := teamA()
	ns.Annotations = nil
	declared := declare(ns, templateOf(t, "a", settings, creator))
	require.Equal(t, []string{"a configmap/settings"}, idsOf(declared.Objects))
	require.Len(t, declared.Omitted, 1)
	require.Equal(t, "creator", declared.Omitted[0].Name)
	require.Equal(t, "a", declared.Omitted[0].Template)
}

func TestHashIdentifiesTheContent(t *testing.T) {
	hash := func(ns *corev1.Namespace, template *v1alpha1.NamespaceTemplate) string {
		return declare(ns, template).Objects[0].Hash
	}
	first := hash(teamA(),
		templateOf(t, "a",
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: a, b: b, c: c, d: d}}"))
	for range 20 {
		require.Equal(t, first,
			hash(teamA(),
				templateOf(t, "a",
					"{data: {d: d, c: c, b: b, a: a}, kind: ConfigMap, metadata: {name: settings}, apiVersion: v1}")))
	}
	teamB := teamA()
	teamB.Name = "team-b"
	require.Equal(t, first,
		hash(teamB, templateOf(t, "a",
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: a, b: b, c: c, d: d}}")),
		"the hash does not depend on the namespace")
	for name, template := range map[string]*v1alpha1.NamespaceTemplate{
		"a value": templateOf(t, "a",
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: a, b: b, c: c, d: e}}"),
		"a key": templateOf(t, "a",
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: a, b: b, c: c, e: d}}"),
		"a type": templateOf(t, "a",
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: a, b: b, c: c, d: null}}"),
		"a label": templateOf(t, "a",
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, labels: {a: b}}, data: {a: a, b: b, c: c, d: d}}"),
		"a template": templateOf(t, "b",
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: a, b: b, c: c, d: d}}"),
	} {
		require.NotEqual(t, first, hash(teamA(), template), name)
	}
}

func TestHashDoesNotChangeTheObject(t *testing.T) {
	require.Equal(t, "team-a", declare(teamA(), templateOf(t, "a", settings)).Objects[0].GetNamespace())
}

func TestMatchingReturnsNoTemplatesForExcludedNamespaces(t *testing.T) {
	index := match.NewIndex(templateOf(t, "b", settings), templateOf(t, "a", limits))
	templates, reason := Matching(index, teamA())
	require.Empty(t, reason)
	require.Equal(t, []string{"a", "b"}, []string{templates[0].Name, templates[1].Name})

	templates, reason = Matching(index, teamA(), "team-a")
	require.Contains(t, reason, "--exclude-namespaces")
	require.Empty(t, templates)
}

// settingAnnotations returns a template that sets annotations of namespaces, given as keys and values.
func settingAnnotations(t *testing.T, name string, pairs ...string) *v1alpha1.NamespaceTemplate {
	t.Helper()
	template := templateOf(t, name)
	template.Spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{Annotations: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		template.Spec.NamespaceMetadata.Annotations[pairs[i]] = pairs[i+1]
	}
	return template
}

// No template is rendered from what a template sets in the same namespace. So rings of templates change nothing, and
// what is declared does not depend on earlier declarations.
func TestDeclareRendersNothingThatTemplatesSet(t *testing.T) {
	t.Parallel()
	ns := teamA()
	ns.Annotations["x"], ns.Annotations["y"], ns.Annotations["z"] = "1", "2", "3"
	renders := templateOf(t, "renders", `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: $(ANNOTATION:x)}}`)
	for name, test := range map[string]struct {
		templates []*v1alpha1.NamespaceTemplate
		// broken are the templates that are not rendered, in their order.
		broken []string
	}{
		"nothing sets it": {[]*v1alpha1.NamespaceTemplate{renders}, nil},
		"a setter": {
			[]*v1alpha1.NamespaceTemplate{renders, settingAnnotations(t, "sets", "x", "1")}, []string{"renders"},
		},
		"a setter of something else": {
			[]*v1alpha1.NamespaceTemplate{renders, settingAnnotations(t, "sets", "y", "1")}, nil,
		},
		"a chain of values": {
			[]*v1alpha1.NamespaceTemplate{renders, settingAnnotations(t, "sets", "y", "$(ANNOTATION:z)")}, nil,
		},
		"a ring of two": {[]*v1alpha1.NamespaceTemplate{
			settingAnnotations(t, "a", "x", "$(ANNOTATION:y)+"), settingAnnotations(t, "b", "y", "$(ANNOTATION:x)+"),
		}, []string{"a", "b"}},
		"a ring of three": {[]*v1alpha1.NamespaceTemplate{
			settingAnnotations(t, "a", "x", "$(ANNOTATION:y)+"), settingAnnotations(t, "b", "y", "$(ANNOTATION:z)+"),
			settingAnnotations(t, "c", "z", "$(ANNOTATION:x)+"),
		}, []string{"a", "b", "c"}},
		"a setter that renders from another one": {[]*v1alpha1.NamespaceTemplate{
			renders, settingAnnotations(t, "sets", "x", "$(ANNOTATION:y)"), settingAnnotations(t, "y", "y", "1"),
		}, []string{"renders", "sets"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var broken []string
			for _, b := range declare(ns, test.templates...).Broken {
				broken = append(broken, b.Template.Name)
			}
			require.Equal(t, test.broken, broken)
		})
	}
	broken := declare(ns, renders, settingAnnotations(t, "sets", "x", "1")).Broken
	require.ErrorContains(t, broken[0].Err, "template renders: the token $(ANNOTATION:x) cannot be used, since template sets "+
		"sets the annotation x (namespaceMetadata)")
}

func TestDeclareAsksItsGuardOnlyAboutValues(t *testing.T) {
	t.Parallel()
	ns := teamA()
	ns.Labels = map[string]string{"tier": "gold"}
	renders := templateOf(t, "renders", `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: $(LABEL:tier)}}`)
	refuse := func(_ *v1alpha1.NamespaceTemplate, keys []render.MetadataKey) error {
		require.Equal(t, []render.MetadataKey{{Field: render.Labels, Key: "tier"}}, keys)
		return errors.New("refused")
	}
	declared := Declare(render.NewCache(), ns, []*v1alpha1.NamespaceTemplate{renders, templateOf(t, "z", settings)},
		Inputs{Guard: refuse})
	require.Len(t, declared.Broken, 1)
	require.EqualError(t, declared.Broken[0].Err, "refused")
	require.Equal(t, []string{"z configmap/settings"}, idsOf(declared.Objects))

	// A client knows from the status which keys are not protected.
	require.Empty(t, declare(ns, renders).Broken)
	renders.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.TemplateAccepted, Reason: v1alpha1.TemplateValueNotProtected, Message: "template renders: $(LABEL:tier)",
	}}
	require.EqualError(t, declare(ns, renders).Broken[0].Err, "template renders: $(LABEL:tier)")
	renders.Status.Conditions[0].Message = "template renders: $(LABEL:other)"
	require.Empty(t, declare(ns, renders).Broken)
}

// A namespace without the value keeps what was rendered before.
func TestMissingValuesPruneNothing(t *testing.T) {
	t.Parallel()
	renders := templateOf(t, "renders", `{apiVersion: v1, kind: ConfigMap, metadata: {name: a-$(LABEL:tier)}}`)
	renders.Status.Kinds = []v1alpha1.GroupKind{{Kind: "ConfigMap"}}
	declared := declare(teamA(), renders)
	gold := teamA()
	gold.Labels = map[string]string{"tier": "gold"}
	rendered := applied(t, declare(gold, renders).Objects[0])
	plan := NewPlan(declared, match.NewIndex(renders), Observed{Objects: []*metav1.PartialObjectMetadata{rendered}})
	require.Len(t, plan.Changes, 1)
	require.Equal(t, LeaveAlone, plan.Changes[0].Action)
	require.Contains(t, plan.Changes[0].Reason, "template renders can't be rendered")
	findings := Findings(plan, Result{})
	require.Len(t, findings, 1)
	require.Equal(t, FindingValueMissing, findings[0].Reason)
	require.Equal(t, Error, findings[0].Severity)
	require.Equal(t, "template renders: the namespace has no value of the label tier, for $(LABEL:tier) in "+
		"configmap/a-$(LABEL:tier): ask a user who may set it", findings[0].Message)
}
