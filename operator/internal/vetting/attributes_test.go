package vetting

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/engine/render"
)

// labelled is an object in JSON with a label env, or without.
func labelled(name, env string) string {
	labels := ""
	if env != "" {
		labels = fmt.Sprintf(`, "labels": {"env": %q}`, env)
	}
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": %q%s}}`, name, labels)
}

func templateWith(change func(*v1alpha1.NamespaceTemplateSpec), objects ...string) *v1alpha1.NamespaceTemplate {
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
	for _, object := range objects {
		template.Spec.Templates = append(template.Spec.Templates, runtime.RawExtension{Raw: []byte(object)})
	}
	if change != nil {
		change(&template.Spec)
	}
	return template
}

// tier selects the namespaces of a tier.
func tier(name string) v1alpha1.NamespaceSelector {
	return v1alpha1.NamespaceSelector{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": name}},
	}
}

func overlays(all ...v1alpha1.Overlay) func(*v1alpha1.NamespaceTemplateSpec) {
	return func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Overlays = all }
}

func TestLosses(t *testing.T) {
	t.Parallel()
	prod := v1alpha1.Overlay{Name: "prod", Namespaces: tier("prod"), Labels: map[string]string{"env": "prod"}}
	elsewhere := prod
	elsewhere.Namespaces = tier("other")
	deletes := func(spec *v1alpha1.NamespaceTemplateSpec) { spec.DeletionPolicy = v1alpha1.DeletionDelete }
	many := make([]v1alpha1.Overlay, 0, render.MaxVariantOverlays+1)
	for i := range cap(many) {
		many = append(many,
			v1alpha1.Overlay{
				Name: fmt.Sprint("o", i), Namespaces: tier(fmt.Sprint(i)), Labels: map[string]string{"other": "label"},
			})
	}
	for name, test := range map[string]struct {
		before, after *v1alpha1.NamespaceTemplate
		want          []string
	}{
		"nothing changes": {
			templateWith(overlays(prod), labelled("a", "dev")), templateWith(overlays(prod), labelled("a", "dev")), nil,
		},
		"the label is removed": {
			templateWith(nil, labelled("a", "dev")), templateWith(nil, labelled("a", "")), []string{"a: dev > "},
		},
		"the object is removed from the template": {
			templateWith(nil, labelled("a", "dev")), templateWith(nil, labelled("b", "")), []string{"a: dev, deleted"},
		},
		"the template is deleted": {
			templateWith(deletes, labelled("a", "dev")), nil, []string{"a: dev, deleted"},
		},
		"the template is deleted, and its objects stay": {templateWith(nil, labelled("a", "dev")), nil, nil},
		"the object is removed, with deletionPolicy Delete": {
			templateWith(nil, labelled("a", "dev")), templateWith(deletes, labelled("b", "")),
			[]string{"a: dev, deleted"},
		},
		"an overlay is removed": {
			templateWith(overlays(prod), labelled("a", "")), templateWith(nil, labelled("a", "")),
			[]string{"a: prod > "},
		},
		"an overlay is added": {
			templateWith(nil, labelled("a", "dev")), templateWith(overlays(prod), labelled("a", "dev")),
			[]string{"a: dev > prod"},
		},
		"an overlay selects other namespaces": {
			templateWith(overlays(prod), labelled("a", "")), templateWith(overlays(elsewhere), labelled("a", "")),
			[]string{"a: prod > "},
		},
		"too many combinations of overlays": {
			templateWith(overlays(many...), labelled("a", "dev")), templateWith(nil, labelled("a", "")),
			[]string{"a: dev > "},
		},
		"other namespaces, with deletionPolicy Delete": {
			templateWith(deletes, labelled("a", "dev")),
			templateWith(func(spec *v1alpha1.NamespaceTemplateSpec) {
				deletes(spec)
				spec.Namespaces = tier("x")
			}, labelled("a", "dev")),
			[]string{"a: dev, deleted"},
		},
		"other namespaces, and the objects stay": {
			templateWith(nil, labelled("a", "dev")),
			templateWith(func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Namespaces = tier("x")
			}, labelled("a", "dev")),
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var variants []render.Variant
			if test.after != nil {
				var err error
				variants, err = render.Variants(t.Context(), test.after)
				require.NoError(t, err)
			}
			var found []string
			for _, lost := range losses(t.Context(), edit{test.before, test.after}, variants,
				func(object *unstructured.Unstructured) bool { return object.GetLabels()["env"] != "" }) {
				text := lost.before.GetName() + ": " + lost.before.GetLabels()["env"]
				switch {
				case lost.now == nil:
					text += ", deleted"
				case lost.now.GetLabels()["env"] == lost.before.GetLabels()["env"]:
					continue
				default:
					text += " > " + lost.now.GetLabels()["env"]
				}
				found = append(found, text)
			}
			slices.Sort(found)
			require.Equal(t, test.want, slices.Compact(found))
		})
	}
}

// A template that only reports drift replaces no value of users, but those of templates that it overrides.
func TestNamespaceChangesOfAReportingTemplate(t *testing.T) {
	t.Parallel()
	template := templateWith(func(spec *v1alpha1.NamespaceTemplateSpec) {
		spec.DriftPolicy = v1alpha1.DriftReport
		spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{Labels: map[string]string{"env": "staging"}}
	})
	env := render.MetadataKey{Field: render.Labels, Key: "env"}
	rules := attributes.NewRules([]v1alpha1.ClusterProtectedAttribute{{AttributeRule: v1alpha1.AttributeRule{
		AttributeKind: v1alpha1.LabelAttribute, AttributeName: "env", ProtectedValues: []string{"prod"},
	}}}, nil)
	sets := attributes.Change{New: namespaceWith(env, "staging")}
	removes := attributes.Change{Old: namespaceWith(env, "prod"), New: map[string]any{}}
	for _, test := range []struct {
		other string
		want  []attributes.Change
	}{
		{"earlier", []attributes.Change{sets, removes}},
		{"z-later", []attributes.Change{sets}},
	} {
		other := &outline{name: test.other, setKeys: []render.MetadataKey{env}}
		v := &review{edit: edit{updated: template}, others: []*outline{other}}
		require.Equal(t, test.want, v.namespaceChanges(rules, v.overrides), test.other)
	}
}
