package inventory

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
)

// A tree leaves the label of a namespace that a template has set, and says so.
func TestPlanKeepsTheValuesOfTemplates(t *testing.T) {
	t.Parallel()
	key := render.MetadataKey{Field: render.Labels, Key: "tier"}
	byTree := namespace("ns", labeled("tier", "tree"), labeled("team", "a"))
	live := func(tier, recorded, by string) *unstructured.Unstructured {
		object := stored(t, "1", byTree)
		object.SetLabels(map[string]string{"tier": tier, "team": "a"})
		record := populate.MetadataRecord{key: populate.NewRecordedValue("defaults", "2", recorded)}
		annotations := object.GetAnnotations()
		annotations[v1alpha1.NamespaceMetadataAnnotation] = record.String()
		if by != "" {
			object.SetLabels(map[string]string{"tier": tier, "team": by})
		}
		object.SetAnnotations(annotations)
		return object
	}
	declaring := defaults(t, v1alpha1.NamespaceTemplateSpec{
		NamespaceMetadata: &v1alpha1.NamespaceMetadata{Labels: map[string]string{"tier": "template"}},
	})
	inOverlay := defaults(t, v1alpha1.NamespaceTemplateSpec{Overlays: []v1alpha1.Overlay{{
		NamespaceMetadata: &v1alpha1.NamespaceMetadata{Labels: map[string]string{"tier": "template"}},
	}}})
	recreated := declaring.DeepCopy()
	recreated.SetUID("3")
	left := []TemplateValue{{"ns", key, "defaults"}}
	for name, test := range map[string]struct {
		template, live *unstructured.Unstructured
		applied        map[string]string
		left           []TemplateValue
	}{
		"it stays":                           {template: declaring, live: live("template", "template", ""), left: left},
		"it stays if an overlay declares it": {template: inOverlay, live: live("template", "template", ""), left: left},
		"it has the same value":              {template: declaring, live: live("tree", "tree", "")},
		"another client changed it":          {template: declaring, live: live("other", "template", ""), applied: byTree.GetLabels()},
		"the template is gone":               {live: live("template", "template", ""), applied: byTree.GetLabels()},
		"the template was created again":     {template: recreated, live: live("template", "template", ""), applied: byTree.GetLabels()},
		"the template no longer declares it": {template: defaults(t, v1alpha1.NamespaceTemplateSpec{}), live: live("template", "template", ""), applied: byTree.GetLabels()},
		"the other labels are those of the tree": {
			template: declaring, live: live("template", "template", "other"), applied: map[string]string{"team": "a"}, left: left,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := []*unstructured.Unstructured{test.live}
			if test.template != nil {
				objects = append(objects, test.template)
			}
			plan := NewPlan(declare(t, byTree), stateOf([]string{"1"}, objects...), Options{Tree: "foo"})
			require.Equal(t, test.left, plan.TemplateValues)
			if test.applied == nil {
				require.Empty(t, plan.Applies)
				return
			}
			require.Len(t, plan.Applies, 1)
			require.Equal(t, test.applied, plan.Applies[0].Declared.GetLabels())
		})
	}
	require.Equal(t, map[string]string{"tier": "tree", "team": "a"}, byTree.GetLabels(), "the declaration is not changed")
}

// The values of templates concern a tree when they change, and when a template may no longer declare them.
func TestValuesOfTemplatesConcernATreeWhenTheyChange(t *testing.T) {
	t.Parallel()
	byTree := namespace("ns", labeled("tier", "tree"))
	scope := NewScope("foo", declare(t, byTree), nil, nil)
	before := stored(t, "1", byTree)
	after := before.DeepCopy()
	after.SetLabels(map[string]string{"tier": "template"})
	require.True(t, scope.Concerns(before, after))
	record := populate.MetadataRecord{
		{Field: render.Labels, Key: "tier"}: populate.NewRecordedValue("defaults", "2", "template"),
	}
	annotations := after.GetAnnotations()
	annotations[v1alpha1.NamespaceMetadataAnnotation] = record.String()
	after.SetAnnotations(annotations)
	require.True(t, scope.Concerns(before, after), "the template may be gone")
	status := after.DeepCopy()
	status.Object["status"] = map[string]any{"phase": "Active"}
	require.False(t, scope.Concerns(after, status))

	setting := defaults(t, v1alpha1.NamespaceTemplateSpec{
		NamespaceMetadata: &v1alpha1.NamespaceMetadata{Labels: map[string]string{"tier": "template"}},
	})
	inOverlay := defaults(t, v1alpha1.NamespaceTemplateSpec{Overlays: []v1alpha1.Overlay{{
		NamespaceMetadata: &v1alpha1.NamespaceMetadata{Labels: map[string]string{"tier": "template"}},
	}}})
	without := defaults(t, v1alpha1.NamespaceTemplateSpec{})
	for _, template := range []*unstructured.Unstructured{setting, inOverlay} {
		require.True(t, scope.Concerns(template, nil), "the tree may set the label again")
		require.True(t, scope.Concerns(template, without))
		require.False(t, scope.Concerns(without, template))
		require.False(t, scope.Concerns(template, template.DeepCopy()))
	}
	require.False(t, scope.Concerns(without, nil))
}

// defaults returns the template defaults as it is in the cluster.
func defaults(t *testing.T, spec v1alpha1.NamespaceTemplateSpec) *unstructured.Unstructured {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&spec)
	require.NoError(t, err)
	return template("defaults", uid("2"), func(o *unstructured.Unstructured) { o.Object["spec"] = fields })
}

func labeled(key, value string) change {
	return func(o *unstructured.Unstructured) {
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[key] = value
		o.SetLabels(labels)
	}
}
