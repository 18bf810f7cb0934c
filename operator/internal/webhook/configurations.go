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
)

// retryConflict is the delay after a conflict. The cache usually shows the last write by then.
const retryConflict = 10 * time.Millisecond

// Configurations keeps the two webhook configurations equal to what the chain needs. The manifests create them, so that
// the operator needs rights to these two objects only.
type Configurations struct {
	Client   client.Client
	Chain    Chain
	Endpoint Endpoint
	// Written is closed once both configurations are up to date.
	Written chan struct{}
	// Queues creates the queue of the controller.
	Queues *backoff.Queues
}

// SetupWithManager adds a controller that reconciles both configurations when one of them changes, when a plugin needs
// other webhooks, and when renewed reports another bundle.
func (c *Configurations) SetupWithManager(mgr ctrl.Manager, renewed <-chan struct{}) error {
	request := reconcile.Request{NamespacedName: client.ObjectKey{Name: v1alpha1.WebhookName}}
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{request}
	})
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
	return ctrl.NewControllerManagedBy(mgr).Named("webhookconfiguration").
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, enqueue).
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, enqueue).
		WatchesRawSource(renewals).
		WatchesRawSource(changes).
		WithOptions(controller.Options{NewQueue: c.Queues.New}).
		Complete(c)
}

// Reconcile writes the configurations that differ from what the chain needs.
func (c *Configurations) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var bundle []byte
	if c.Endpoint.Bundle != nil {
		if bundle = c.Endpoint.Bundle(); bundle == nil {
			return reconcile.Result{}, nil // once there is a bundle, renewed enqueues the configurations again
		}
	}
	err := errors.Join(c.writeValidating(ctx, bundle), c.writeMutating(ctx, bundle))
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: retryConflict}, nil // the cache does not show the last write yet
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	select {
	case <-c.Written:
	default:
		close(c.Written)
	}
	return reconcile.Result{}, nil
}

func (c *Configurations) writeValidating(ctx context.Context, bundle []byte) error {
	stored := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := c.get(ctx, stored); err != nil {
		return err
	}
	desired, err := c.Chain.validating(ctx, c.Endpoint, bundle)
	if err != nil {
		return err
	}
	for i := range desired {
		same := slices.IndexFunc(stored.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool {
			return w.Name == desired[i].Name
		})
		if c.Endpoint.Bundle == nil && same >= 0 {
			desired[i].ClientConfig.CABundle = stored.Webhooks[same].ClientConfig.CABundle
		}
	}
	if equality.Semantic.DeepEqual(stored.Webhooks, desired) {
		return nil
	}
	stored.Webhooks = desired
	return c.update(ctx, stored)
}

func (c *Configurations) writeMutating(ctx context.Context, bundle []byte) error {
	stored := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := c.get(ctx, stored); err != nil {
		return err
	}
	desired, err := c.Chain.mutating(ctx, c.Endpoint, bundle)
	if err != nil {
		return err
	}
	for i := range desired {
		same := slices.IndexFunc(stored.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool {
			return w.Name == desired[i].Name
		})
		if c.Endpoint.Bundle == nil && same >= 0 {
			desired[i].ClientConfig.CABundle = stored.Webhooks[same].ClientConfig.CABundle
		}
	}
	if equality.Semantic.DeepEqual(stored.Webhooks, desired) {
		return nil
	}
	stored.Webhooks = desired
	return c.update(ctx, stored)
}

func (c *Configurations) get(ctx context.Context, configuration client.Object) error {
	if err := c.Client.Get(ctx, client.ObjectKey{Name: v1alpha1.WebhookName}, configuration); err != nil {
		return fmt.Errorf("read %T %s, which the manifests create: %w", configuration, v1alpha1.WebhookName, err)
	}
	return nil
}

func (c *Configurations) update(ctx context.Context, configuration client.Object) error {
	if err := c.Client.Update(ctx, configuration); err != nil {
		return fmt.Errorf("write %T %s: %w", configuration, v1alpha1.WebhookName, err)
	}
	return nil
}
