package main

import (
	"context"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"nstpl.dev/nstpl/test/measure"
)

// creatorLabel selects the namespaces of a template that a user creates.
const creatorLabel = "scale.nstpl.dev/creator"

// creations lets a user create namespaces while replicas of the operator end.
type creations struct {
	*bench
	// early is how many namespaces opened before they were populated.
	early atomic.Int64
}

// createCreator creates the user who creates namespaces.
func (b *bench) createCreator(ctx context.Context) error {
	const name = "namespace-creator"
	for _, args := range [][]string{
		{"create", "clusterrole", name, "--verb=create,patch", "--resource=namespaces,configmaps"},
		{"create", "clusterrolebinding", name, "--clusterrole=" + name, "--user=" + name},
	} {
		if _, err := b.cluster.RunKubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	config, err := b.cluster.UserConfig(name)
	if err != nil {
		return err
	}
	b.creator, err = kubernetes.NewForConfig(config)
	return err
}

// namespaceOf returns a namespace that only the template selects.
func namespaceOf(template, suffix string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: template + "-" + suffix, Labels: map[string]string{creatorLabel: template, unselectedLabel: "true"},
	}}
}

// createOpen creates a namespace for a template, and writes into it.
func (c *creations) createOpen(ctx context.Context, template, suffix string) error {
	ns := namespaceOf(template, suffix)
	err := c.untilAllowed(ctx, func() error {
		_, err := c.creator.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return c.writeWhenOpen(ctx, ns.Name)
}

// writeWhenOpen writes into a namespace as soon as that is possible. The object of its template must be there by then.
func (c *creations) writeWhenOpen(ctx context.Context, namespace string) error {
	own := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "own"}}
	if err := c.untilAllowed(ctx, func() error {
		_, err := c.creator.CoreV1().ConfigMaps(namespace).Create(ctx, own, metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	_, err := c.client.CoreV1().ConfigMaps(namespace).Get(ctx, profileObject().GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.early.Add(1)
		return nil
	}
	return err
}

// untilAllowed repeats a request that admission denies or delays, or for which it fails because a replica just ended.
func (c *creations) untilAllowed(ctx context.Context, request func() error) error {
	for {
		err := request()
		if !apierrors.IsTooManyRequests(err) && !apierrors.IsForbidden(err) && !apierrors.IsInternalError(err) {
			return err
		}
		if err := measure.Pause(ctx, pollInterval); err != nil {
			return err
		}
	}
}
