package survey

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
)

func TestEffectsAreTheChangesOfOtherTemplates(t *testing.T) {
	t.Parallel()
	template := func(name string, objects ...string) *v1alpha1.NamespaceTemplate {
		template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
		template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
		template.Spec.DeletionPolicy = v1alpha1.DeletionDelete
		template.Status.Kinds = []v1alpha1.GroupKind{{Kind: "ConfigMap"}}
		for _, object := range objects {
			template.Spec.Templates = append(template.Spec.Templates, runtime.RawExtension{
				Raw: []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "` + object + `"},
					"data": {"of": "` + name + `"}}`),
			})
		}
		return template
	}
	populated := func(name, template string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "team-a", Labels: map[string]string{v1alpha1.TemplateNameLabel: template},
			Annotations: map[string]string{v1alpha1.HashAnnotation: "x"},
		}}
	}
	base, last := template("base", "pending", "shared"), template("last", "shared", "own", "new")
	deleted := last.DeepCopy()
	now := metav1.Now()
	deleted.DeletionTimestamp = &now
	s := &Survey{
		cache: render.NewCache(), index: match.NewIndex(base, deleted),
		namespaces: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}},
		observed: []populate.Listed{populate.NewListed(corev1.SchemeGroupVersion.WithKind("ConfigMap"),
			populated("shared", "last"), populated("own", "last"))},
	}
	effects := map[string]populate.Action{}
	for ns := range s.Effects(t.Context(), match.NewIndex(base, last)) {
		for _, change := range ns.Changes {
			effects[change.Template+"/"+change.Name] = change.Action
		}
	}
	require.Equal(t, map[string]populate.Action{
		"base/shared": populate.Configure, // which it was not before, because last overrode it
		"last/own":    populate.Prune,
	}, effects, "base/pending is created in any case, and last/new never")
	for ns := range s.Effects(t.Context(), s.index) {
		require.Empty(t, ns.Changes)
	}

	for _, reason := range []string{populate.ConditionNotAdopted, populate.ConditionPolicySpaceNotFound} {
		s.namespaces[0].Status.Conditions = []corev1.NamespaceCondition{{
			Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionFalse, Reason: reason,
		}}
		for ns := range s.Namespaces(t.Context()) {
			for _, change := range ns.Changes {
				require.False(t, change.Deletes(), "nothing is deleted while the place of the namespace is unknown")
			}
		}
	}
}

// Values that are removed are not in the declaration of a namespace, which is the same then.
func TestEffectsOnLabelsOfNamespaces(t *testing.T) {
	t.Parallel()
	change := func(removed populate.Action, by string) populate.Change {
		key := func(name string) render.MetadataKey { return render.MetadataKey{Field: render.Labels, Key: name} }
		return populate.Change{
			Action: populate.Configure, Kind: render.NamespaceKind, Name: "team-a", Template: "t,u",
			Metadata: &populate.MetadataChange{Values: []populate.ValueChange{
				{MetadataKey: key("pending"), Action: populate.Create, Template: "t"},
				{MetadataKey: key("former"), Action: removed, Template: by},
			}},
		}
	}
	kept := change(populate.LeaveAlone, "u")
	require.Empty(t, Except([]populate.Change{kept}, []populate.Change{change(populate.LeaveAlone, "u")}))
	require.Len(t, Except([]populate.Change{change(populate.Prune, "u")}, []populate.Change{kept}), 1)
	require.Len(t, Except([]populate.Change{change(populate.LeaveAlone, "t")}, []populate.Change{kept}), 1)
	object := kept
	object.Metadata = nil
	require.Len(t, Except([]populate.Change{object}, []populate.Change{kept}), 1)
}
