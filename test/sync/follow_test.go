package sync_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// A tree is followed from its first commit through changes, a violation, its correction and a revert.
func TestCommitsAreFollowed(t *testing.T) {
	t.Parallel()
	x := newTree(t, "follow")
	first := map[string]string{
		"role.yaml":                       roleFile("follow-viewer", "list"),
		"viewers.yaml":                    bindingFile("viewers", "follow-viewer", "ann"),
		"shop/follow-dev/namespace.yaml":  namespaceFile("follow-dev"),
		"shop/follow-prod/namespace.yaml": namespaceFile("follow-prod"),
		"shop/follow-prod/deployers.yaml": bindingFile("deployers", "edit", "bob"),
		"shop/README.md":                  "ignored",
		"follow-audit/namespace.yaml":     namespaceFile("follow-audit"),
	}
	a := x.commit(first)
	x.follow()
	x.waitApplied(a)
	x.waitEvent("CommitApplied", "commit "+a[:7])
	x.waitExists(binding("follow-dev", "follow.viewers"))
	x.waitExists(binding("follow-prod", "follow-prod.deployers"))

	// A commit with violations changes nothing, also if it quotes them in more than the API server stores.
	broken := maps.Clone(first)
	broken["shop/follow-dev/namespace.yaml"] = namespaceFile("other")
	broken["viewers.yaml"] = bindingFile("viewers", "follow-viewer", "eve")
	broken["shop/role.yaml"] = roleFile("misplaced", "list")
	broken["shop/follow-prod/namespace.yaml"] = namespaceFile("follow-prod") +
		"  annotations: {policy.nstpl.dev/scc.uid-range: 1000410000-1999999999}\n"
	for _, path := range []string{"wrong-kind.yaml", "shop/wrong-kind.yaml"} {
		broken[path] = strings.Replace(bindingFile("wrong", "follow-viewer", "eve"), "kind: ClusterRole",
			"kind: "+strings.Repeat("k", 900_000), 1)
	}
	b := x.commit(broken)
	message := x.waitReason("Violations", b)
	require.Contains(t, message, "commit "+b[:7]+" breaks a rule: follow/")
	require.Contains(t, message, "; commit "+a[:7]+" stays in force")
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.Equal(c, v1alpha1.RepositoryCommits{Fetched: b, Vetted: a, Applied: a}, status.Commits)
		assert.Len(c, status.Violations, int(status.ViolationCount))
		assert.GreaterOrEqual(c, status.ViolationCount, int32(5))
		assert.Contains(c, status.Violations, v1alpha1.RepositoryViolation{
			Path: "follow/shop/follow-prod/namespace.yaml", Line: 5, Rule: "schema",
			Message: "Namespace follow-prod: metadata.annotations[policy.nstpl.dev/scc.uid-range] the annotation " +
				"policy.nstpl.dev/scc.uid-range is reserved for nstpl",
		})
	})
	// It is kept in force meanwhile.
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "follow-viewer"}}
	x.mustExist(role)
	role.Rules[0].Verbs = []string{"*"}
	require.NoError(t, cluster.client.Update(t.Context(), role))
	x.eventually(func(c *assert.CollectT) {
		assert.NoError(c, cluster.client.Get(t.Context(), client.ObjectKeyFromObject(role), role))
		assert.Equal(c, []string{"list"}, role.Rules[0].Verbs)
	})

	// The correction renames a policyspace and removes a RoleBinding.
	delete(first, "viewers.yaml")
	for _, path := range []string{
		"follow-dev/namespace.yaml", "follow-prod/namespace.yaml", "follow-prod/deployers.yaml", "README.md",
	} {
		first["store/"+path] = first["shop/"+path]
		delete(first, "shop/"+path)
	}
	d := x.commit(first)
	x.waitApplied(d)
	x.waitGone(binding("follow-dev", "follow.viewers"))
	x.waitGone(space("shop"))
	x.mustExist(space("store"))
	x.mustExist(namespace("follow-dev"))
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.Empty(c, status.Violations)
		assert.EqualValues(c, 3, status.Namespaces)
		assert.Len(c, status.History, 2)
		assert.Equal(c, "follow", status.Tree)
	})
}

// waitEvent waits for an Event of the PolicyRepository with a reason, whose message contains a text.
func (x *tree) waitEvent(reason, text string) {
	x.Helper()
	x.eventually(func(c *assert.CollectT) {
		events := &eventsv1.EventList{}
		if !assert.NoError(c, cluster.client.List(x.Context(), events)) {
			return
		}
		assert.True(c, slices.ContainsFunc(events.Items, func(event eventsv1.Event) bool {
			return event.Regarding.Kind == "PolicyRepository" && event.Regarding.Name == x.name &&
				event.Reason == reason && strings.Contains(event.Note, text)
		}))
	})
}

func (x *tree) eventually(check func(c *assert.CollectT)) {
	x.Helper()
	require.EventuallyWithT(x, check, timeout, pollInterval)
}
