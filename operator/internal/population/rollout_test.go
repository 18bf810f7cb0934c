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

// A changed label excludes a namespace for a moment. As long as a rollout is paused, many namespaces may be created,
// fail and be deleted.
func TestNamespacesThatFailedBeforeAreKnownAsLongAsTheyExist(t *testing.T) {
	t.Parallel()
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t", Generation: 1}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "a", UID: "1", Labels: map[string]string{"team": "a"}, CreationTimestamp: metav1.NewTime(time.Unix(1, 0)),
	}}
	r := &Rollouts{
		Namespaces: corev1listers.NewNamespaceLister(namespaces), Index: match.NewIndex(),
		Results: NewResults(func(string, bool) {}),
	}
	fail := func(uid types.UID) {
		plan := populate.Plan{Declared: populate.Declared{Templates: []*v1alpha1.NamespaceTemplate{template}}}
		lasting := populate.Finding{Template: "t", Reason: populate.FindingFailed, Severity: populate.Error}
		r.Results.Record("a", uid, templateResults(plan, []populate.Finding{lasting}, nil, nil), false)
	}
	members := func(stored *corev1.Namespace) []rollout.Member {
		require.NoError(t, namespaces.Update(stored))
		found, err := r.members(template, rollout.Single(template))
		require.NoError(t, err)
		return found
	}
	fail(ns.UID)
	require.True(t, members(ns)[0].FailedBefore)

	away := ns.DeepCopy()
	away.Labels = nil
	require.Empty(t, members(away))
	require.True(t, members(ns)[0].FailedBefore, "it is back")

	again := ns.DeepCopy()
	again.UID = "2"
	fail(again.UID)
	require.False(t, members(again)[0].FailedBefore, "another namespace of the name")
	require.Empty(t, r.failedBeforeOf("t"))
}
