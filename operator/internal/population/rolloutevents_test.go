package population

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/objects"
	"nstpl.dev/nstpl/operator/internal/queue"
	"nstpl.dev/nstpl/operator/internal/sources"
)

// onceWritten is a client whose API server accepts one write of a status, and answers the others with a conflict.
type onceWritten struct {
	client.Client
	writes int
}

func (c *onceWritten) Status() client.SubResourceWriter {
	return onceWrittenStatus{c.Client.Status(), c}
}

type onceWrittenStatus struct {
	client.SubResourceWriter
	of *onceWritten
}

func (s onceWrittenStatus) Patch(
	ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
) error {
	if s.of.writes++; s.of.writes > 1 {
		return apierrors.NewConflict(v1alpha1.NamespaceTemplates.GroupResource(), object.GetName(), nil)
	}
	return s.SubResourceWriter.Patch(ctx, object, patch, options...)
}

// newTemplates returns the controller of templates, for a cluster with one namespace, whose kinds cannot be listed.
func newTemplates(t *testing.T, api client.Client, history *History, recorder events.EventRecorder) *Templates {
	t.Helper()
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	require.NoError(t, namespaces.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}))
	kinds, index := &forbidden{}, match.NewIndex()
	history.Index = index
	r := &Templates{
		Acceptance: &Acceptance{Live: api, Index: index, Stored: match.NewIndex()}, History: history, Client: api,
		Namespaces: corev1listers.NewNamespaceLister(namespaces), Cache: render.NewCache(), Values: &Values{},
		Objects: objects.New(t.Context(), objects.Options{Mapper: kinds, Reviews: kinds}),
		Sources: sources.New(t.Context(), sources.Options{}), Results: NewResults(func(string, bool) {}),
		Queue: queue.New(&backoff.Queues{}), Metrics: NewMetrics(prometheus.NewRegistry()),
	}
	t.Cleanup(r.Queue.ShutDown)
	r.Results.Start(nil)
	r.Remains = &Remains{Client: api, Objects: r.Objects, Index: index, Passes: &passes{}}
	r.Rollouts = &Rollouts{
		Namespaces: r.Namespaces, Index: index, Objects: r.Objects, Results: r.Results, Remains: r.Remains,
		Queue: r.Queue, Metrics: r.Metrics, Recorder: recorder,
	}
	r.Statuses = &Statuses{
		Client: api, Stored: r.Stored, Results: r.Results, Rollouts: r.Rollouts, Remains: r.Remains,
		Sources: r.Sources,
	}
	return r
}

// The status also counts namespaces whose failures do not stop a rollout.
func TestTheEventOfAStoppedRolloutCountsNoOtherFailures(t *testing.T) {
	t.Parallel()
	recorder := events.NewFakeRecorder(1)
	r := &Rollouts{Metrics: NewMetrics(prometheus.NewRegistry()), Recorder: recorder}
	template := &v1alpha1.NamespaceTemplate{}
	template.Status.Namespaces.Failed = 7
	template.Status.Revisions = []v1alpha1.TemplateRevision{{Name: "t-2", Revision: 2, State: v1alpha1.RolloutStopped}}
	r.recordRollout(template, nil)
	require.Equal(t, "Warning RolloutStopped revision 2: stopped, because namespaces failed", <-recorder.Events)
}

// A rollout is complete although namespaces failed that do not stop it.
func TestTheEventOfACompleteRolloutCountsFailures(t *testing.T) {
	t.Parallel()
	recorder := events.NewFakeRecorder(1)
	r := &Rollouts{Metrics: NewMetrics(prometheus.NewRegistry()), Recorder: recorder}
	for failed, want := range map[int32]string{0: "", 2: ", but 2 could not be populated"} {
		template := &v1alpha1.NamespaceTemplate{}
		template.Status.Namespaces.Failed = failed
		newest := v1alpha1.TemplateRevision{Name: "t-2", Revision: 2, State: v1alpha1.RolloutProgressing}
		before := []v1alpha1.TemplateRevision{newest}
		newest.State = v1alpha1.RolloutComplete
		template.Status.Revisions = []v1alpha1.TemplateRevision{newest}
		r.recordRollout(template, before)
		require.Equal(t, "Normal RolloutComplete revision 2: has reached every namespace"+want, <-recorder.Events)
	}
}

func TestTheEventOfAPauseCountsSeconds(t *testing.T) {
	t.Parallel()
	recorder := events.NewFakeRecorder(1)
	r := &Rollouts{Metrics: NewMetrics(prometheus.NewRegistry()), Recorder: recorder}
	for seconds, want := range map[int32]string{1: "1 second", 60: "60 seconds"} {
		template := &v1alpha1.NamespaceTemplate{}
		template.Status.Revisions = []v1alpha1.TemplateRevision{{
			Name: "t-2", Revision: 2, State: v1alpha1.RolloutWaiting, Waves: []v1alpha1.Wave{{PauseSeconds: seconds}},
		}}
		r.recordRollout(template, nil)
		require.Equal(t, "Normal RolloutWaiting revision 2: waits "+want+" after wave 1 of 2", <-recorder.Events)
	}
}

// The next pass knows the new state of the rollout, so it would record no Event.
func TestTheStateOfARolloutIsRecordedAlthoughALaterWriteFails(t *testing.T) {
	t.Parallel()
	api, history, template := newHistory(t)
	template.Spec.Templates = []runtime.RawExtension{{
		Raw: []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}`),
	}}
	require.NoError(t, api.Update(t.Context(), template))
	recorder := events.NewFakeRecorder(1)
	r := newTemplates(t, &onceWritten{Client: api}, history, recorder)
	_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(template)})
	require.True(t, apierrors.IsConflict(err), err)
	require.Len(t, recorder.Events, 1)
	require.Equal(t, "Normal RolloutProgressing revision 1: began", <-recorder.Events)
}
