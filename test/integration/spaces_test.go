package integration_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
)

// createSpace creates a policyspace of the scope. Its quota has pairs of a resource and its limit.
func (s spaceFixture) createSpace(short, parent string, hard ...string) *v1alpha1.PolicySpace {
	s.t.Helper()
	space := s.newSpace(short, parent, hard...)
	require.NoError(s.t, s.client.Create(s.t.Context(), space))
	return space
}

// newSpace returns a policyspace, which is not created yet.
func (s spaceFixture) newSpace(short, parent string, hard ...string) *v1alpha1.PolicySpace {
	space := &v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{Name: s.name(short)}}
	if parent != "" {
		space.Spec.Parent = s.name(parent)
	}
	if len(hard) > 0 {
		space.Spec.Quota = &v1alpha1.PolicySpaceQuota{Hard: resourceList(hard...)}
	}
	return space
}

// inSpace has a namespace belong to a policyspace of the scope.
func (s spaceFixture) inSpace(short string) func(*corev1.Namespace) {
	return withLabel(v1alpha1.PolicySpaceLabel, s.name(short))
}

// selectsSpace has a template select the namespaces of a policyspace and of its descendants, and delete its objects.
func (s spaceFixture) selectsSpace(short string) func(*v1alpha1.NamespaceTemplate) {
	return func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.DeletionPolicy = v1alpha1.DeletionDelete
		template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: hierarchy.DepthLabel(s.name(short)), Operator: metav1.LabelSelectorOpExists},
		}}
	}
}

// createNamespaceInSpace creates a namespace in a policyspace. It returns when the namespace is initialized and its
// usage is counted.
func (s spaceFixture) createNamespaceInSpace(short, space string) string {
	s.t.Helper()
	ns := s.createNamespace(short, s.inSpace(space))
	s.waitInitialized(ns)
	s.waitSpaceStatus(space, func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		assert.True(c, apimeta.IsStatusConditionTrue(status.Conditions, v1alpha1.PolicySpaceReady))
	})
	return ns.Name
}

// moveNamespace moves a namespace to a policyspace.
func (s spaceFixture) moveNamespace(namespace, space string) {
	s.t.Helper()
	s.patchNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, v1alpha1.PolicySpaceLabel, s.name(space)))
}

// waitInSpace waits until a namespace has the depth label of a policyspace.
func (s spaceFixture) waitInSpace(namespace, space string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) { assert.Contains(c, s.spaceDepths(c, namespace), space) })
}

// spaceDepths returns the values of the depth labels of a namespace, by the short names of policyspaces.
func (s spaceFixture) spaceDepths(c *assert.CollectT, namespace string) map[string]string {
	ns := &corev1.Namespace{}
	if !assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKey{Name: namespace}, ns)) {
		return nil
	}
	found := map[string]string{}
	for key, value := range hierarchy.OwnDepthLabels(ns) {
		found[strings.TrimPrefix(strings.TrimSuffix(key, v1alpha1.DepthLabelSuffix), s.name(""))] = value
	}
	return found
}

// waitSpaceStatus waits until the status of a policyspace is as expected.
func (s spaceFixture) waitSpaceStatus(short string, expect func(*assert.CollectT, v1alpha1.PolicySpaceStatus)) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		space := &v1alpha1.PolicySpace{}
		if assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKey{Name: s.name(short)}, space)) {
			expect(c, space.Status)
		}
	})
}

// waitUsage waits until the status of a policyspace has the usage and limits of a text, such as "pods: 1/2".
func (s spaceFixture) waitUsage(short, quota string) {
	s.t.Helper()
	s.waitSpaceStatus(short, func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		assert.Equal(c, quota, status.Quota)
	})
}

// waitCounted waits until the API server has counted the usage of namespaces for the last time. A write during a count
// may fail with a conflict.
func (s spaceFixture) waitCounted(namespaces ...string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		for _, ns := range namespaces {
			counter := &corev1.ResourceQuota{}
			if assert.NoError(c,
				s.client.Get(s.t.Context(), client.ObjectKey{Namespace: ns, Name: v1alpha1.QuotaName}, counter)) {
				assert.NotContains(c, counter.Spec.Hard, corev1.ResourceName(v1alpha1.RecountResource))
				assert.Len(c, counter.Status.Hard, len(counter.Spec.Hard))
				assert.Len(c, counter.Status.Used, len(counter.Spec.Hard))
			}
		}
	})
}

// getUsageQuota returns the ResourceQuota by which the API server counts the usage of a namespace.
func (s spaceFixture) getUsageQuota(ctx context.Context, namespace string) (*corev1.ResourceQuota, error) {
	counter := &corev1.ResourceQuota{}
	return counter, s.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.QuotaName}, counter)
}

// createWithRetries creates an object, and retries after errors that are not denials, as Kubernetes' own controllers
// do. If the answer to an earlier attempt was lost, the object may exist already, which counts as success.
func (s spaceFixture) createWithRetries(object client.Object) error {
	isRetriable := func(err error) bool {
		return !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "status unknown for quota")
	}
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1.5, Jitter: 1, Steps: 15}
	tried := false
	return retry.OnError(backoff, isRetriable, func() error {
		err := s.client.Create(context.WithoutCancel(s.t.Context()), object.DeepCopyObject().(client.Object))
		if tried && apierrors.IsAlreadyExists(err) {
			return nil
		}
		tried = true
		return err
	})
}

// expectQuotaExceeded fails unless a request was denied for exceeding the quota of a policyspace.
func (s spaceFixture) expectQuotaExceeded(err error, short, requested, limit string) {
	s.t.Helper()
	require.True(s.t, apierrors.IsForbidden(err), "%v", err)
	want := fmt.Sprintf("exceeded quota in policyspace %q, requested: %s, limit: %s, used: ", s.name(short), requested,
		limit)
	require.ErrorContains(s.t, err, want)
	require.True(s.t, strings.HasSuffix(err.Error(), codes.QuotaExceeded.AddTo("")), "%v", err)
}
