package population

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/rollout"
)

// A namespace that was created in the second in which the correction of its template began to be rolled out has the
// earlier revision, until the rollout reaches the namespace.
func TestAFailureDoesNotLastWhileARolloutIsUnderWay(t *testing.T) {
	t.Parallel()
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t", Generation: 2}}
	revisions := func(state v1alpha1.RolloutState) []v1alpha1.TemplateRevision {
		return []v1alpha1.TemplateRevision{
			{Name: "t-2", Revision: 2, Generation: 2, State: state, StartTime: metav1.NewTime(time.Now())},
			{Name: "t-1", Revision: 1, Generation: 1, State: v1alpha1.RolloutComplete},
		}
	}
	specs := map[string]*v1alpha1.NamespaceTemplateSpec{"t-1": {}, "t-2": {}}
	failed := []populate.Finding{{Template: "t", Severity: populate.Error}}
	for _, test := range []struct {
		state      v1alpha1.RolloutState
		generation int64
		findings   []populate.Finding
		awaits     bool
	}{
		{v1alpha1.RolloutProgressing, 1, failed, true},
		{v1alpha1.RolloutComplete, 1, failed, true},
		{v1alpha1.RolloutProgressing, 2, failed, false},
		{v1alpha1.RolloutPaused, 1, failed, false},
		{v1alpha1.RolloutStopped, 1, failed, false},
		{v1alpha1.RolloutWaiting, 1, failed, false},
		{v1alpha1.RolloutProgressing, 1, []populate.Finding{{Template: "t", Severity: populate.Warning}}, false},
		{v1alpha1.RolloutProgressing, 1, []populate.Finding{{Template: "other", Severity: populate.Error}}, false},
	} {
		index := match.NewIndex()
		index.SetLayers(template, rollout.New(template, revisions(test.state), specs))
		namespaces := &Namespaces{Templates: &Templates{Acceptance: &Acceptance{Index: index}}}
		populated := *template
		populated.Generation = test.generation
		plan := populate.Plan{Declared: populate.Declared{Templates: []*v1alpha1.NamespaceTemplate{&populated}}}
		require.Equal(t, test.awaits, namespaces.awaitsRevision(plan, test.findings), "%+v", test)
	}
}

// oneTemplate is a client that reads a template.
type oneTemplate struct {
	client.Client
	template v1alpha1.NamespaceTemplate
}

func (c oneTemplate) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *v1alpha1.NamespaceTemplate:
		c.template.DeepCopyInto(into)
	case *metav1.PartialObjectMetadata:
		into.ObjectMeta = c.template.ObjectMeta
	}
	return nil
}

// A template that was deleted and created again may have the generation of the earlier one.
func TestATemplateIsCurrentIfItWasReconciledAsItIsStored(t *testing.T) {
	t.Parallel()
	template := func(uid types.UID, generation, observed int64) oneTemplate {
		read := v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t", UID: uid, Generation: generation}}
		read.Status.ObservedGeneration = observed
		return oneTemplate{template: read}
	}
	for name, test := range map[string]struct {
		cached, live oneTemplate
		want         bool
	}{
		"reconciled":            {template("1", 2, 2), template("1", 2, 2), true},
		"not reconciled yet":    {template("1", 2, 1), template("1", 2, 1), false},
		"edited meanwhile":      {template("1", 2, 2), template("1", 3, 2), false},
		"a successor meanwhile": {template("1", 2, 2), template("2", 2, 0), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &Namespaces{Client: test.cached, Live: test.live}
			current, err := r.isCurrent(t.Context(), "t")
			require.NoError(t, err)
			require.Equal(t, test.want, current)
		})
	}
}
