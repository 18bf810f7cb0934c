package rollout

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// In one namespace after another, a webhook may fail that only this namespace needs.
func TestAFewNamespacesThatFailAgainAndAgainHoldNoRollout(t *testing.T) {
	t.Parallel()
	for _, settings := range []*v1alpha1.Rollout{
		nil, {MaxUnavailable: new(intstr.FromInt(1))}, {MaxUnavailable: new(intstr.FromString("100%"))},
	} {
		for one := range "0123456789" {
			c := newCluster(t, settings, tiers(10)...)
			c.edit("t-1")
			c.run()
			c.retries = func(ns *corev1.Namespace) bool { return ns.Name == c.namespaces[one].Name }
			c.edit("t-2")
			c.run()
			require.Equal(t, v1alpha1.RolloutComplete, c.revisions[0].State)
			require.Equal(t, 10, c.count("t-2"))
		}
	}
}

// If an API server or a webhook fails for all namespaces, no revision reaches many of them before it answers again.
func TestAFailureOfTheClusterHoldsARollout(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		settings         *v1alpha1.Rollout
		namespaces, most int
	}{
		"one namespace":     {nil, 1, 1},
		"a few namespaces":  {nil, 8, 5},
		"many namespaces":   {nil, 200, 12}, // those of one batch
		"one after another": {&v1alpha1.Rollout{MaxUnavailable: new(intstr.FromInt(1))}, 200, 11},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, test.settings, tiers(test.namespaces)...)
			c.edit("t-1")
			c.run()
			c.edit("t-2")
			if test.namespaces > 8 { // a part has the revision already
				c.advance()
				c.populate()
			}
			had := c.count("t-2")
			isDown := map[string]bool{}
			for _, ns := range c.namespaces {
				isDown[ns.Name] = c.has[ns.Name] != "t-2"
			}
			c.retries = func(ns *corev1.Namespace) bool { return isDown[ns.Name] }
			c.run()
			require.Equal(t, v1alpha1.RolloutProgressing, c.revisions[0].State)
			require.LessOrEqual(t, c.count("t-2")-had, test.most)
			c.retries = nil
			c.run()
			require.Equal(t, v1alpha1.RolloutComplete, c.revisions[0].State)
		})
	}
}

// Other waves do not follow one in which no namespace shows the revision.
func TestAWaveOfNamespacesThatFailAgainAndAgainHoldsARollout(t *testing.T) {
	t.Parallel()
	c := newCluster(t, &v1alpha1.Rollout{Waves: []v1alpha1.Wave{wave("canary", 0)}}, "canary", "x", "x", "x")
	c.edit("t-1")
	c.retries = func(*corev1.Namespace) bool { return true }
	c.run()
	require.Equal(t, v1alpha1.RolloutProgressing, c.revisions[0].State)
	require.Equal(t, 1, c.count("t-1"))
}

func TestDeletedNamespacesAreForgotten(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil, tiers(3)...)
	c.edit("t-1")
	c.run()
	c.fails = func(*corev1.Namespace, string) bool { return true }
	c.edit("t-2")
	c.members()
	require.Len(t, c.failedBefore, 3)
	c.namespaces = c.namespaces[:1]
	c.members()
	require.Len(t, c.failedBefore, 1)
}
