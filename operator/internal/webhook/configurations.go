package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/backoff"
)

// Endpoint is where the API server reaches the webhooks.
type Endpoint struct {
	// URL of an operator outside of the cluster, without a path. Empty means the Service.
	URL string
	// Bundle returns the authorities, as PEM, that vouch for the endpoint; nil while that is not known. A nil function
	// leaves what somebody else (cert-manager) writes.
	Bundle func() []byte
}

// clientConfig says in full what the API server would fill in, so that nothing seems to differ.
func (e Endpoint) clientConfig(path string, bundle []byte) admissionregistrationv1.WebhookClientConfig {
	if e.URL != "" {
		return admissionregistrationv1.WebhookClientConfig{URL: new(e.URL + path), CABundle: bundle}
	}
	return admissionregistrationv1.WebhookClientConfig{CABundle: bundle,
		Service: &admissionregistrationv1.ServiceReference{
			Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.WebhookService, Path: new(path),
			Port: new(int32(443)),
		}}
}

// mutating returns the webhooks of the mutators, in the chain's order.
func (t Chain) mutating(
	ctx context.Context, endpoint Endpoint, bundle []byte,
) ([]admissionregistrationv1.MutatingWebhook, error) {
	var webhooks []admissionregistrationv1.MutatingWebhook
	for _, p := range t {
		if p.Mutator == nil {
			continue
		}
		asked, err := p.webhooks(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		for i, w := range asked {
			webhooks = append(webhooks, admissionregistrationv1.MutatingWebhook{
				Name: p.webhookName(i), ClientConfig: endpoint.clientConfig(mutatePath, bundle), Rules: w.Rules,
				NamespaceSelector: orEverything(p.NamespaceSelector), ObjectSelector: &metav1.LabelSelector{},
				MatchConditions: w.MatchConditions, MatchPolicy: new(admissionregistrationv1.Equivalent),
				FailurePolicy: new(p.FailurePolicy), TimeoutSeconds: new(p.TimeoutSeconds),
				SideEffects:             new(admissionregistrationv1.SideEffectClassNoneOnDryRun),
				AdmissionReviewVersions: []string{"v1"},
				ReinvocationPolicy:      new(admissionregistrationv1.IfNeededReinvocationPolicy),
			})
		}
	}
	return webhooks, nil
}

// validating returns the webhooks of the validators.
func (t Chain) validating(
	ctx context.Context, endpoint Endpoint, bundle []byte,
) ([]admissionregistrationv1.ValidatingWebhook, error) {
	var webhooks []admissionregistrationv1.ValidatingWebhook
	for _, p := range t {
		if p.Validator == nil {
			continue
		}
		asked, err := p.webhooks(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		for i, w := range asked {
			webhooks = append(webhooks, admissionregistrationv1.ValidatingWebhook{
				Name: p.webhookName(i), ClientConfig: endpoint.clientConfig(p.path(w), bundle), Rules: w.Rules,
				NamespaceSelector: orEverything(p.NamespaceSelector), ObjectSelector: &metav1.LabelSelector{},
				MatchConditions: w.MatchConditions, MatchPolicy: new(admissionregistrationv1.Equivalent),
				FailurePolicy: new(p.FailurePolicy), TimeoutSeconds: new(p.TimeoutSeconds),
				SideEffects:             new(admissionregistrationv1.SideEffectClassNoneOnDryRun),
				AdmissionReviewVersions: []string{"v1"},
			})
		}
	}
	return webhooks, nil
}

// path is where a plugin's validating webhook is answered.
func (p *Plugin) path(w Webhook) string {
	if w.Revision == "" {
		return validatePath
	}
	return path.Join(validatePath, p.Name, w.Revision)
}

// webhookName counts the webhooks of a plugin that has more than one.
func (p *Plugin) webhookName(number int) string {
	name := p.Name
	if number > 0 {
		name += "-" + strconv.Itoa(number+1)
	}
	return name + "." + v1alpha1.GroupVersion.Group
}

func orEverything(selector *metav1.LabelSelector) *metav1.LabelSelector {
	return cmp.Or(selector, &metav1.LabelSelector{})
}

// behindCache is how long the cache may take to show a write.
const behindCache = 10 * time.Millisecond

// Configurations keeps the two webhook configurations as the chain has them. They are made by the manifests, so that
// the operator needs rights on these two only.
type Configurations struct {
	Client   client.Client
	Chain    Chain
	Endpoint Endpoint
	// Written is closed once both are as they should be.
	Written chan struct{}
	// Queues makes the controller's queue.
	Queues *backoff.Queues
}

// SetupWithManager has them looked at as they change and whenever renewed says that the bundle did.
func (c *Configurations) SetupWithManager(mgr ctrl.Manager, renewed <-chan struct{}) error {
	request := reconcile.Request{NamespacedName: client.ObjectKey{Name: v1alpha1.WebhookName}}
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{request}
	})
	renewals := source.Func(func(ctx context.Context,
		queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
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
	return ctrl.NewControllerManagedBy(mgr).Named("webhookconfiguration").
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, enqueue).
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, enqueue).
		WatchesRawSource(renewals).
		WatchesRawSource(source.Func(func(_ context.Context,
			queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			for _, plugin := range c.Chain {
				if plugin.Changes != nil {
					plugin.Changes.Listen(func() { queue.Add(request) })
				}
			}
			return nil
		})).
		WithOptions(controller.Options{NewQueue: c.Queues.New}).
		Complete(c)
}

// Reconcile writes what differs, and nothing else.
func (c *Configurations) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var bundle []byte
	if c.Endpoint.Bundle != nil {
		if bundle = c.Endpoint.Bundle(); bundle == nil {
			return reconcile.Result{}, nil // it comes, and this is asked for again
		}
	}
	err := errors.Join(c.writeValidating(ctx, bundle), c.writeMutating(ctx, bundle))
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: behindCache}, nil // the cache does not show the last write yet
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
	found := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := c.get(ctx, found); err != nil {
		return err
	}
	desired, err := c.Chain.validating(ctx, c.Endpoint, bundle)
	if err != nil {
		return err
	}
	for i := range desired {
		same := slices.IndexFunc(found.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool {
			return w.Name == desired[i].Name
		})
		if c.Endpoint.Bundle == nil && same >= 0 {
			desired[i].ClientConfig.CABundle = found.Webhooks[same].ClientConfig.CABundle
		}
	}
	if equality.Semantic.DeepEqual(found.Webhooks, desired) {
		return nil
	}
	found.Webhooks = desired
	return c.update(ctx, found)
}

func (c *Configurations) writeMutating(ctx context.Context, bundle []byte) error {
	found := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := c.get(ctx, found); err != nil {
		return err
	}
	desired, err := c.Chain.mutating(ctx, c.Endpoint, bundle)
	if err != nil {
		return err
	}
	for i := range desired {
		same := slices.IndexFunc(found.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool {
			return w.Name == desired[i].Name
		})
		if c.Endpoint.Bundle == nil && same >= 0 {
			desired[i].ClientConfig.CABundle = found.Webhooks[same].ClientConfig.CABundle
		}
	}
	if equality.Semantic.DeepEqual(found.Webhooks, desired) {
		return nil
	}
	found.Webhooks = desired
	return c.update(ctx, found)
}

func (c *Configurations) get(ctx context.Context, configuration client.Object) error {
	if err := c.Client.Get(ctx, client.ObjectKey{Name: v1alpha1.WebhookName}, configuration); err != nil {
		return fmt.Errorf("read %T %s, which the manifests make: %w", configuration, v1alpha1.WebhookName, err)
	}
	return nil
}

func (c *Configurations) update(ctx context.Context, configuration client.Object) error {
	if err := c.Client.Update(ctx, configuration); err != nil {
		return fmt.Errorf("write %T %s: %w", configuration, v1alpha1.WebhookName, err)
	}
	return nil
}
