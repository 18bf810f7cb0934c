package drift

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/engine/rollout"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/fields"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// inRollout returns the plan for a namespace that has revision 1 of a template, which revision 2 has not reached. Each
// revision declares ConfigMaps, whose data are in JSON.
func inRollout(t *testing.T, first, second map[string]string) *planned {
	t.Helper()
	spec := func(maps map[string]string) v1alpha1.NamespaceTemplateSpec {
		spec := v1alpha1.NamespaceTemplateSpec{}
		spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
		for name, data := range maps {
			spec.Templates = append(spec.Templates, runtime.RawExtension{
				Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":` + data + `}`),
			})
		}
		return spec
	}
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t", Generation: 2}, Spec: spec(second)}
	former := spec(first)
	index := match.NewIndex()
	index.SetLayers(template, rollout.New(template, []v1alpha1.TemplateRevision{
		{Name: "t-2", Revision: 2, Generation: 2, State: v1alpha1.RolloutStopped, StartTime: metav1.NewTime(time.Unix(9, 0))},
		{Name: "t-1", Revision: 1, Generation: 1, State: v1alpha1.RolloutComplete},
	}, map[string]*v1alpha1.NamespaceTemplateSpec{"t-2": &template.Spec, "t-1": &former}))
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	p := &planned{
		cluster: &cluster.Cluster{Mapper: meta.ToRESTMapperWithContext(mapper)}, index: index,
		templates: []*v1alpha1.NamespaceTemplate{template},
		namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "team-a", UID: "u", CreationTimestamp: metav1.NewTime(time.Unix(5, 0)),
		}},
	}
	declared := survey.Declare(render.NewCache(), nil, index, p.namespace)
	p.plan = populate.NewPlan(declared.Declared, index, populate.Observed{})
	return p
}

// A patch changes the newest revision of a template. The namespace may have an earlier one.
func TestAcceptDuringARollout(t *testing.T) {
	t.Parallel()
	const a = `{"a":"1"}`
	for name, test := range map[string]struct {
		second map[string]string
		err    string
	}{
		"another object changes": {map[string]string{"own": a, "other": "{}"}, ""},
		"the object changes": {
			map[string]string{"own": `{"a":"2"}`}, "configmap/own in namespace team-a has the declaration of revision 1 of " +
				"template t, and the template, as it was changed since, declares it otherwise",
		},
		"the object ends": {map[string]string{"other": "{}"}, "'kubectl nstpl rollout status t' shows the rollout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := inRollout(t, map[string]string{"own": a}, test.second)
			change, err := p.find(t.Context(), "configmap/own")
			require.NoError(t, err)
			if err = p.checkRevision(t.Context(), change); test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			live := change.Declared.DeepCopy()
			live.Object["data"] = map[string]any{"a": "live"}
			changes := fields.Compare(change.Declared.Object, live.Object)
			patch, err := newPatch(p.template(change), change.Declared.Unstructured, changes)
			require.NoError(t, err)
			require.NoError(t, p.verify(t.Context(), p.template(change), patch, change, changes))
		})
	}
}

func TestAnObjectThatOnlyTheNewestRevisionDeclares(t *testing.T) {
	t.Parallel()
	p := inRollout(t, map[string]string{"own": "{}"}, map[string]string{"own": "{}", "new": "{}"})
	_, err := p.find(t.Context(), "configmap/new")
	require.EqualError(t, err, "configmap/new is not declared for namespace/team-a yet: revision 2 of template t "+
		"declares it, and has not reached the namespace: 'kubectl nstpl rollout status t' shows the rollout")
	_, err = p.find(t.Context(), "configmap/none")
	require.ErrorContains(t, err, "no template declares configmap/none for namespace/team-a")
}

// The cause of a missing object may be that its template leaves it out, and not that no template declares it.
func TestAnObjectThatATemplateOmits(t *testing.T) {
	t.Parallel()
	p := inRollout(t, map[string]string{"own": "{}"}, map[string]string{"own": "{}"})
	p.plan.Changes = append(p.plan.Changes, populate.Change{
		Action: populate.LeaveAlone, Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Name: "creator", Template: "t",
		Reason: "template t omits it, because the creator is unknown",
	})
	_, err := p.find(t.Context(), "configmap/creator")
	require.EqualError(t, err, "configmap/creator in namespace team-a is left alone by the operator: template t omits it, "+
		"because the creator is unknown")
}

func TestLabelsOfTheNamespaceAreNotRestored(t *testing.T) {
	t.Parallel()
	p := inRollout(t, map[string]string{"own": "{}"}, map[string]string{"own": "{}"})
	p.plan.Changes = append(p.plan.Changes, populate.Change{
		Kind: render.NamespaceKind, Name: "team-a", Template: "t,u", Metadata: &populate.MetadataChange{},
	})
	_, err := p.find(t.Context(), "namespace/team-a")
	require.EqualError(t, err, "labels and annotations of namespace/team-a are neither restored nor accepted by this "+
		"command: 'kubectl nstpl diff team-a' shows how they differ, and names their templates; set them by 'kubectl label' "+
		"and 'kubectl annotate', or change what these templates declare in namespaceMetadata")
}
