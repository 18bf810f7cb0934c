package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/leadership"
)

const (
	// retryConflict is the delay after a conflict. The cache usually shows the last write by then.
	retryConflict = 10 * time.Millisecond
	// retryProbe is the delay after a probe that the API server did not send to the webhooks.
	retryProbe = 50 * time.Millisecond
	// rewriteInterval is the least time between two writes of the same webhook configuration. All writes in the cluster
	// wait while the API server compiles the match conditions again. Many changes within the interval cost one write.
	// The first change after it is written at once. An API server that takes long to compile the conditions also takes
	// long to validate them: the interval is also at least rewriteShare times as long as the last write took.
	rewriteInterval = 500 * time.Millisecond
	rewriteShare    = 10
	// maxRewriteInterval bounds the interval, since a rule is not enforced before it is written.
	maxRewriteInterval = 3 * time.Second
)

// mutating stands for the MutatingWebhookConfiguration among the names of the configurations.
const mutating = "mutating"

// Configurations keeps the webhook configurations equal to what the chain needs: one MutatingWebhookConfiguration, and
// the ValidatingWebhookConfigurations that the plugins name. The manifests create them, so that the operator needs
// rights to these objects only.
type Configurations struct {
	*leadership.Leader
	Stored   *Stored
	Chain    Chain
	Endpoint Endpoint
	// Called is closed once all configurations have been up to date, and the API server called the webhooks of
	// v1alpha1.WebhookName.
	Called chan struct{}

	// next contains the earliest times of the next writes of ValidatingWebhookConfigurations, by name, and of the
	// MutatingWebhookConfiguration, as mutating.
	next map[string]time.Time
	// probe is that of the webhooks that v1alpha1.WebhookName should have.
	probe probe
}

// SetupWithManager adds a controller that reconciles all configurations when one of them changes, when a plugin needs
// other webhooks, and when renewed reports another bundle.
func (c *Configurations) SetupWithManager(mgr ctrl.Manager, renewed <-chan struct{}) error {
	c.next = map[string]time.Time{}
	request := reconcile.Request{NamespacedName: client.ObjectKey{Name: v1alpha1.WebhookName}}
	requests := func(context.Context) []reconcile.Request { return []reconcile.Request{request} }
	renewals := source.Func(func(ctx context.Context, queue backoff.Queue) error {
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-renewed:
					queue.Add(request)
				}
			}
		}()
		return nil
	})
	changes := source.Func(func(_ context.Context, queue backoff.Queue) error {
		for _, plugin := range c.Chain {
			if plugin.Changes != nil {
				plugin.Changes.Listen(func() { queue.Add(request) })
			}
		}
		return nil
	})
	builder := ctrl.NewControllerManagedBy(mgr).Named("webhookconfiguration").
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, handler.EnqueueRequestsFromMapFunc(
			func(ctx context.Context, _ client.Object) []reconcile.Request { return requests(ctx) })).
		WatchesRawSource(renewals).
		WatchesRawSource(changes).
		WithOptions(controller.Options{NewQueue: c.Queues.New})
	for _, name := range c.Chain.configurations() {
		builder = builder.WatchesRawSource(c.Stored.Source(name, requests))
	}
	return builder.Complete(c.Caches.Before(c))
}

// Reconcile writes the configurations that differ from what the chain needs.
func (c *Configurations) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	bundle, err := c.bundle(ctx)
	if err != nil || bundle == nil && c.Endpoint.Bundle != nil {
		return reconcile.Result{}, err // once there is a bundle, renewed enqueues the configurations again
	}
	var result reconcile.Result
	var errs []error
	for _, name := range append([]string{mutating}, c.Chain.configurations()...) {
		if wait := time.Until(c.next[name]); wait > 0 {
			if result.RequeueAfter == 0 || wait < result.RequeueAfter {
				result.RequeueAfter = wait
			}
			continue
		}
		errs = append(errs, c.write(ctx, name, bundle))
	}
	err = errors.Join(errs...)
	if isConflict(errs) {
		return reconcile.Result{RequeueAfter: retryConflict}, nil // the cache does not show the last write yet
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	select {
	case <-c.Called:
		return result, nil
	default:
	}
	called, err := c.probe.isCalled(ctx, c.Stored.leases)
	if !called {
		return reconcile.Result{RequeueAfter: retryProbe}, err
	}
	close(c.Called)
	return result, nil
}

// isConflict reports whether some errors are conflicts, and none is another error.
func isConflict(errs []error) bool {
	return slices.ContainsFunc(errs, apierrors.IsConflict) &&
		!slices.ContainsFunc(errs, func(err error) bool { return err != nil && !apierrors.IsConflict(err) })
}

// write writes one of the configurations if it differs from what the chain needs.
func (c *Configurations) write(ctx context.Context, name string, bundle []byte) error {
	var err error
	if name == mutating {
		err = c.writeMutating(ctx, bundle)
	} else {
		err = c.writeValidating(ctx, name, bundle)
	}
	c.Stored.tried(name, err)
	return err
}

func (c *Configurations) writeValidating(ctx context.Context, name string, bundle []byte) error {
	stored, err := c.Stored.Get(ctx, name)
	if err != nil {
		return fmt.Errorf("%w: apply the manifests, which create it", err)
	}
	desired, err := c.Chain.validating(ctx, name, c.Endpoint, bundle)
	if err != nil {
		return err
	}
	if c.Endpoint.Bundle == nil {
		keepBundles(stored.Webhooks, desired, func(w *admissionregistrationv1.ValidatingWebhook) (string, *[]byte) {
			return w.Name, &w.ClientConfig.CABundle
		})
	}
	if name != v1alpha1.AttributeWebhookName && len(desired) > 0 { // package attribute has a probe of its own
		probe, err := newProbe(desired)
		if err != nil {
			return err
		}
		if name == v1alpha1.WebhookName {
			c.probe = probe
		}
		desired = append(desired, probe.webhook(c.Endpoint, desired[0].ClientConfig.CABundle))
	}
	if equality.Semantic.DeepEqual(stored.Webhooks, desired) {
		return nil
	}
	stored.Webhooks = desired
	return c.update(ctx, name, stored)
}

// bundle returns the bundle of webhooks that are not stored yet. If another program writes the bundles, it is that of
// the first webhook in v1alpha1.WebhookName, so that the API server can call the others at once.
func (c *Configurations) bundle(ctx context.Context) ([]byte, error) {
	if c.Endpoint.Bundle != nil {
		return c.Endpoint.Bundle(), nil
	}
	stored, err := c.Stored.Get(ctx, v1alpha1.WebhookName)
	if err != nil || len(stored.Webhooks) == 0 {
		return nil, client.IgnoreNotFound(err) // writeValidating reports what does not exist
	}
	return stored.Webhooks[0].ClientConfig.CABundle, nil
}

// keepBundles copies the bundles that another program has written to stored webhooks. parts returns the name and the
// bundle of a webhook.
func keepBundles[W any](stored, desired []W, parts func(*W) (name string, bundle *[]byte)) {
	bundles := map[string][]byte{}
	for i := range stored {
		name, bundle := parts(&stored[i])
		bundles[name] = *bundle
	}
	for i := range desired {
		name, bundle := parts(&desired[i])
		if kept := bundles[name]; len(kept) > 0 {
			*bundle = kept
		}
	}
}

func (c *Configurations) writeMutating(ctx context.Context, bundle []byte) error {
	stored := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: v1alpha1.WebhookName}, stored); err != nil {
		return fmt.Errorf("read %T %s, which the manifests create: %w", stored, v1alpha1.WebhookName, err)
	}
	desired, err := c.Chain.mutating(ctx, c.Endpoint, bundle)
	if err != nil {
		return err
	}
	if c.Endpoint.Bundle == nil {
		keepBundles(stored.Webhooks, desired, func(w *admissionregistrationv1.MutatingWebhook) (string, *[]byte) {
			return w.Name, &w.ClientConfig.CABundle
		})
	}
	next := stored.DeepCopy()
	next.Webhooks = desired
	c.Chain.label(next)
	if equality.Semantic.DeepEqual(stored, next) {
		return nil
	}
	return c.update(ctx, mutating, next)
}

// update writes a configuration, which is written again after an interval at the soonest.
func (c *Configurations) update(ctx context.Context, name string, configuration client.Object) error {
	started := time.Now()
	if err := c.Client.Update(ctx, configuration); err != nil {
		return fmt.Errorf("write %T %s: %w", configuration, configuration.GetName(), err)
	}
	written := time.Now()
	c.next[name] = written.Add(max(rewriteInterval, min(rewriteShare*written.Sub(started), maxRewriteInterval)))
	return nil
}
