package integration_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// newUntrustedClient returns an HTTP client that is not the API server.
func newUntrustedClient() *http.Client {
	return &http.Client{
		Timeout:   time.Minute,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, //nolint:gosec // the client accepts every server
	}
}

// A review whose old object differs from the stored one is not the API server's. Nothing is reserved for it.
func TestPolicySpaceQuotaDeniesReviewsOfUnstoredState(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("a", "", "pods", "2")
	ns := s.createNamespaceInSpace("n", "a")
	s.waitCounted(ns)
	current, err := s.getUsageQuota(t.Context(), ns)
	require.NoError(t, err)
	for name, change := range map[string]func(*corev1.ResourceQuota){
		"none":     func(c *corev1.ResourceQuota) { c.ResourceVersion = "" },
		"old":      func(c *corev1.ResourceQuota) { c.ResourceVersion = "1" },
		"future":   func(c *corev1.ResourceQuota) { c.ResourceVersion = "999999999999" },
		"no":       func(c *corev1.ResourceQuota) { c.ResourceVersion = "x" },
		"less":     func(c *corev1.ResourceQuota) { c.Status.Used = nil },
		"more":     func(c *corev1.ResourceQuota) { c.Status.Used = resourceList("pods", "1") },
		"too many": func(c *corev1.ResourceQuota) { c.ResourceVersion += "0" },
	} {
		forged := current.DeepCopy()
		change(forged)
		allowed, status, err := s.sendForgedReview(t.Context(), newUntrustedClient(), forged, 2)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, name)
		require.False(t, allowed, name)
	}
	space := &v1alpha1.PolicySpace{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: s.name("a")}, space))
	require.Equal(t, "pods: 0/2", space.Status.Quota)
	require.Empty(t, space.Status.Reservations)

	// The same review of the stored state is allowed, so the others were denied because of their old objects.
	allowed, _, err := s.sendForgedReview(t.Context(), newUntrustedClient(), current, 2)
	require.NoError(t, err)
	require.True(t, allowed)
}

// A client that knows the stored objects can cause reservations, but cannot prevent real requests, however many reviews
// it sends.
func TestPolicySpaceQuotaIsExactDespiteForgedReviews(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("root", "", "pods", "6")
	s.createSpace("a", "root", "pods", "4")
	s.createSpace("b", "root", "pods", "6")
	namespaces := []string{
		s.createNamespaceInSpace("n1", "a"), s.createNamespaceInSpace("n2", "a"), s.createNamespaceInSpace("n3", "b"),
	}
	s.waitCounted(namespaces...)
	ctx, stop := context.WithCancel(t.Context())
	var forgers sync.WaitGroup
	booked := make(chan struct{})
	once := sync.OnceFunc(func() { close(booked) })
	for _, ns := range namespaces {
		forgers.Go(func() {
			from := newUntrustedClient()
			for ctx.Err() == nil {
				current, err := s.getUsageQuota(ctx, ns)
				if err != nil {
					continue
				}
				used := current.Status.Used[corev1.ResourcePods]
				for more := 6; more > 0; more-- {
					if allowed, _, err := s.sendForgedReview(ctx, from, current, int(used.Value())+more); err == nil &&
						allowed {
						once()
					}
				}
			}
		})
	}
	t.Cleanup(forgers.Wait)
	t.Cleanup(stop)
	<-booked
	s.eventually(func(c *assert.CollectT) { // until reservations for pods that do not exist fill the quota
		assert.ErrorContains(c, s.client.Create(t.Context(), newPod(namespaces[0], "dry"), client.DryRunAll),
			"exceeded quota in policyspace")
	})
	for i, ns := range []string{
		namespaces[0], namespaces[1], namespaces[0], namespaces[1], namespaces[2], namespaces[2],
	} {
		pod := newPod(ns, fmt.Sprint("p", i))
		s.eventually(func(c *assert.CollectT) {
			assert.NoError(c, client.IgnoreAlreadyExists(s.client.Create(t.Context(), pod.DeepCopy())))
		})
	}
	for _, ns := range namespaces {
		for i := range 5 {
			require.Error(t, s.client.Create(t.Context(), newPod(ns, fmt.Sprint("more", i))))
		}
	}
	stop()
	forgers.Wait()
	s.waitUsage("root", "pods: 6/6")
	s.waitUsage("a", "pods: 4/4")
	there := 0
	for _, ns := range namespaces {
		pods := &corev1.PodList{}
		require.NoError(t, s.client.List(t.Context(), pods, client.InNamespace(ns)))
		there += len(pods.Items)
	}
	require.Equal(t, 6, there)
}

// One forged review does not cause the denial of the next real pod.
func TestPolicySpaceQuotaAllowsPodsAfterOneForgedReview(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("a", "", "pods", "2")
	first, second := s.createNamespaceInSpace("first", "a"), s.createNamespaceInSpace("second", "a")
	s.waitCounted(first, second)
	for i, ns := range []string{first, second} { // in the namespace of the review and in another one
		current, err := s.getUsageQuota(t.Context(), first)
		require.NoError(t, err)
		allowed, _, err := s.sendForgedReview(t.Context(), newUntrustedClient(), current, 2)
		require.NoError(t, err)
		require.True(t, allowed)
		s.waitUsage("a", "pods: 2/2")
		require.NoError(t, s.createWithRetries(newPod(ns, "p")), "%d", i)
	}
	s.expectQuotaExceeded(s.createWithRetries(newPod(second, "q")), "a", "pods=3", "pods=2")
	s.waitUsage("a", "pods: 2/2")
}
