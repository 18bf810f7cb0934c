package population

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/rollout"
)

// A failure that may pass by itself holds a rollout until the next try. One that users of the namespace can cause does
// not hold it longer, nor do several failures stop it of which each passes or is caused by users.
func TestWhatFailuresMeanForARollout(t *testing.T) {
	t.Parallel()
	passing := populate.Finding{Template: "t", Reason: populate.FindingFailed, Severity: populate.Error, MayPass: true}
	local, conflict, lasting := passing, passing, passing
	local.MayPass, local.IsLocal = false, true
	conflict.IsLocal = true
	lasting.MayPass = false
	for name, test := range map[string]struct {
		findings []populate.Finding
		// first and later are what follows from the first try, and from later ones.
		first, later rollout.Member
	}{
		"none":    {},
		"passing": {[]populate.Finding{passing}, rollout.Member{Pending: true}, rollout.Member{Retried: true}},
		"changed by a user all the time": {
			[]populate.Finding{conflict}, rollout.Member{Pending: true}, rollout.Member{},
		},
		"local": {[]populate.Finding{local}, rollout.Member{}, rollout.Member{}},
		"passing and local": {
			[]populate.Finding{passing, local}, rollout.Member{Pending: true}, rollout.Member{Retried: true},
		},
		"lasting": {
			[]populate.Finding{passing, lasting}, rollout.Member{Failed: true}, rollout.Member{Failed: true},
		},
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
				Results: NewResults(func(string, bool) {}), failedBefore: map[string]rollout.FailedBefore{"t": {}},
			}
			layers := rollout.New(template, []v1alpha1.TemplateRevision{
				{Name: "t-1", Generation: 1, State: v1alpha1.RolloutComplete},
			}, map[string]*v1alpha1.NamespaceTemplateSpec{"t-1": &template.Spec})
			var plan populate.Plan
			plan.Templates = []*v1alpha1.NamespaceTemplate{template}
			for try, want := range []rollout.Member{test.first, test.later, test.later} {
				r.Results.Record("a", "1", templateResults(plan, test.findings, nil, nil), len(test.findings) == 0)
				members, err := r.members(template, layers)
				require.NoError(t, err)
				require.Len(t, members, 1)
				got := members[0]
				require.Equal(t, [...]bool{want.Pending, want.Failed, want.Retried},
					[...]bool{got.Pending, got.Failed, got.Retried}, "try %d", try)
			}
		})
	}
}
