package namespace

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/rollout"
	"nstpl.dev/nstpl/plugin/internal/cli"
)

// During a rollout, an object may be exempt that the namespace gets only from the newest revision.
func TestExemptionsDuringARollout(t *testing.T) {
	t.Parallel()
	spec := func(names ...string) v1alpha1.NamespaceTemplateSpec {
		spec := v1alpha1.NamespaceTemplateSpec{}
		spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
		for _, name := range names {
			spec.Templates = append(spec.Templates, runtime.RawExtension{
				Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"}}`),
			})
		}
		return spec
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "team-a", UID: "u", CreationTimestamp: metav1.NewTime(time.Unix(5, 0)),
	}}
	indexOf := func(first, second v1alpha1.NamespaceTemplateSpec) *match.Index {
		template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t", Generation: 2}, Spec: second}
		index := match.NewIndex()
		index.SetLayers(template, rollout.New(template, []v1alpha1.TemplateRevision{
			{Name: "t-2", Revision: 2, Generation: 2, State: v1alpha1.RolloutPaused, StartTime: metav1.NewTime(time.Unix(9, 0))},
			{Name: "t-1", Revision: 1, Generation: 1, State: v1alpha1.RolloutComplete},
		}, map[string]*v1alpha1.NamespaceTemplateSpec{"t-2": &second, "t-1": &first}))
		return index
	}
	const comes = "revision 2 of template t declares configmap/x for namespace/team-a and has not reached it, so the " +
		"exemption has no effect yet\n"
	for name, test := range map[string]struct {
		first, second v1alpha1.NamespaceTemplateSpec
		isWhole       bool
		note, err     string
	}{
		"both revisions declare it":              {first: spec("x"), second: spec("x")},
		"the earlier one declares it":            {first: spec("x"), second: spec()},
		"the newest one declares it":             {first: spec("y"), second: spec("x"), note: comes},
		"the earlier one does not select":        {second: spec("x"), note: comes},
		"neither declares it":                    {first: spec("y"), second: spec("y"), err: "does not declare configmap/x"},
		"a whole template":                       {first: spec("y"), second: spec("x"), isWhole: true},
		"a whole template that declares nothing": {first: spec(), second: spec(), isWhole: true, note: "declares nothing"},
		"a whole template that is to come": {
			second: spec("x"), isWhole: true, note: "revision 2 of template t declares objects for namespace/team-a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			streams, _, _, notes := genericiooptions.NewTestIOStreams()
			o := &exempt{Session: cli.NewSession(streams), template: "t"}
			wanted := &v1alpha1.TemplateExemption{}
			if !test.isWhole {
				wanted.Spec.Objects = []v1alpha1.ExemptObject{{Kind: "ConfigMap", Name: "x"}}
			}
			declared := newDeclaration(indexOf(test.first, test.second), "t", ns)
			require.True(t, declared.isKnown)
			err := o.checkDeclared("team-a", wanted, declared)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			requireNote(t, notes, test.note)
		})
	}
}

func requireNote(t *testing.T, notes *bytes.Buffer, want string) {
	t.Helper()
	if want == "" {
		require.Empty(t, notes.String())
		return
	}
	require.Contains(t, notes.String(), want)
}
