package population

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/rollout"
)

// Several failures stop no rollout if each of them may pass by itself, or was caused by a user of the namespace.
func TestWhatFailuresMeanForARollout(t *testing.T) {
	t.Parallel()
	lasting := populate.Finding{Template: "t", Reason: populate.FindingFailed, Severity: populate.Error}
	passing, local := lasting, lasting
	passing.MayPass, local.IsLocal = true, true
	for name, test := range map[string]struct {
		findings        []populate.Finding
		pending, failed bool
	}{
		"none":                       {},
		"local":                      {findings: []populate.Finding{local, local}},
		"passing":                    {findings: []populate.Finding{passing}, pending: true},
		"local and passing":          {findings: []populate.Finding{local, passing}, pending: true},
		"passing and local":          {findings: []populate.Finding{passing, local}, pending: true},
		"lasting":                    {findings: []populate.Finding{lasting}, failed: true},
		"passing, lasting and local": {findings: []populate.Finding{passing, lasting, local}, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t", Generation: 1}}
			template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
			namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			require.NoError(t, namespaces.Add(&corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", CreationTimestamp: metav1.NewTime(time.Unix(1, 0))},
			}))
			r := &Rollouts{
				Namespaces: corev1listers.NewNamespaceLister(namespaces), Index: match.NewIndex(),
				Results: NewResults(func(string, bool) {}),
			}
			plan := populate.Plan{Declared: populate.Declared{Templates: []*v1alpha1.NamespaceTemplate{template}}}
			r.Results.Record("a", "1", templateResults(plan, test.findings, nil, nil), len(test.findings) == 0)
			members, err := r.members(template, rollout.Single(template))
			require.NoError(t, err)
			require.Len(t, members, 1)
			require.Equal(t, test.pending, members[0].Pending)
			require.Equal(t, test.failed, members[0].Failed)
		})
	}
}

// failing has the namespace a of a template, the newest revision of which has reached it or not.
type failing struct {
	t          *testing.T
	rollouts   *Rollouts
	namespaces cache.Indexer
	layers     rollout.Layers
}

func newFailing(t *testing.T, isReached bool) *failing {
	t.Helper()
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t", Generation: 2}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	newest := v1alpha1.TemplateRevision{
		Name: "t-2", Generation: 2, State: v1alpha1.RolloutProgressing, StartTime: metav1.NewTime(time.Unix(2, 0)),
	}
	if isReached {
		newest.Wave = 1
	}
	revisions := []v1alpha1.TemplateRevision{newest, {Name: "t-1", Generation: 1, State: v1alpha1.RolloutComplete}}
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	return &failing{
		t: t, namespaces: namespaces,
		rollouts: &Rollouts{
			Namespaces: corev1listers.NewNamespaceLister(namespaces), Index: match.NewIndex(),
			Results: NewResults(func(string, bool) {}),
		},
		layers: rollout.New(template, revisions, map[string]*v1alpha1.NamespaceTemplateSpec{
			"t-1": &template.Spec, "t-2": &template.Spec,
		}),
	}
}

// record records the result of a pass with the template.
func (f *failing) record(uid types.UID, findings ...populate.Finding) {
	selecting := []*v1alpha1.NamespaceTemplate{f.layers.For(f.namespace(uid)).Template}
	plan := populate.Plan{Declared: populate.Declared{Templates: selecting}}
	f.rollouts.Results.Record("a", uid, templateResults(plan, findings, nil, nil), len(findings) == 0)
}

func (f *failing) namespace(uid types.UID) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "a", UID: uid, Labels: map[string]string{"team": "a"}, CreationTimestamp: metav1.NewTime(time.Unix(1, 0)),
	}}
}

func (f *failing) members(stored *corev1.Namespace) []rollout.Member {
	f.t.Helper()
	require.NoError(f.t, f.namespaces.Update(stored))
	found, err := f.rollouts.members(f.layers[0].Template, f.layers)
	require.NoError(f.t, err)
	return found
}

// A changed label excludes a namespace for a moment, and its result is gone when it is back. As long as a rollout is
// paused, many namespaces may be created, fail and be deleted.
func TestNamespacesThatFailedBeforeAreKnownAsLongAsTheyExist(t *testing.T) {
	t.Parallel()
	lasting := populate.Finding{Template: "t", Reason: populate.FindingFailed, Severity: populate.Error}
	passing := lasting
	passing.MayPass = true
	for _, isReached := range []bool{true, false} {
		f := newFailing(t, isReached)
		ns := f.namespace("1")
		f.record(ns.UID, lasting)
		require.True(t, f.members(ns)[0].FailedBefore)

		away := ns.DeepCopy()
		away.Labels = nil
		f.rollouts.Results.Record("a", ns.UID, nil, true)
		require.Empty(t, f.members(away))
		back := f.members(ns)
		require.True(t, back[0].FailedBefore, "it is back")
		require.False(t, back[0].Failed)
		next, _ := rollout.Advance(f.layers[0].TemplateRevision, nil, back, time.Unix(3, 0))
		require.Equal(t, !isReached, next.FailedBefore == 1, "it may fail when the revision reaches it")
		f.record(ns.UID, passing)
		require.True(t, f.members(ns)[0].FailedBefore, "the other failure may be hidden")

		f.record(ns.UID)
		require.False(t, f.members(ns)[0].FailedBefore)
		require.Empty(t, f.rollouts.of("t").failedBefore)
	}
}

func TestANamespaceDoesNotFailBeforeBecauseAnEarlierOneOfItsNameDid(t *testing.T) {
	t.Parallel()
	lasting := populate.Finding{Template: "t", Reason: populate.FindingFailed, Severity: populate.Error}
	f := newFailing(t, true)
	f.record("1", lasting)
	require.True(t, f.members(f.namespace("1"))[0].FailedBefore)
	f.record("2", lasting)
	require.False(t, f.members(f.namespace("2"))[0].FailedBefore)
	require.Empty(t, f.rollouts.of("t").failedBefore)
}

// The owner of a namespace that failed before may exempt it, or remove its label, as long as the revision reaches it.
func TestANamespaceThatWasOutsideWhenItWasReachedFailedBefore(t *testing.T) {
	t.Parallel()
	lasting := populate.Finding{Template: "t", Reason: populate.FindingFailed, Severity: populate.Error}
	f := newFailing(t, false)
	ns := f.namespace("1")
	f.record(ns.UID, lasting)
	require.True(t, f.members(ns)[0].FailedBefore)

	away := ns.DeepCopy()
	away.Labels = nil
	f.rollouts.Results.Record("a", ns.UID, nil, true)
	require.Empty(t, f.members(away))
	f.layers = newFailing(t, true).layers
	revision, paused := f.layers[0].TemplateRevision, &v1alpha1.Rollout{Paused: true}
	require.NoError(t, f.namespaces.Update(ns))
	f.record(ns.UID, lasting)
	for range 2 {
		back := f.members(ns)
		require.True(t, back[0].Reached && back[0].Failed)
		revision, _ = rollout.Advance(revision, paused, back, time.Unix(3, 0))
		require.Equal(t, v1alpha1.RolloutPaused, revision.State)
		require.EqualValues(t, 1, revision.FailedBefore)
		f.layers[0].TemplateRevision = revision
		f.rollouts.known = nil // a restart
	}
}
