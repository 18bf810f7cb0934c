package webhook

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Stored provides the operator's ValidatingWebhookConfigurations as they are stored. The operator may watch each of
// them by its name only, so that each has a cache of its own.
type Stored struct {
	caches map[string]cache.Cache
}

// NewStored adds the caches to a manager, whose own cache has the configuration v1alpha1.WebhookName.
func NewStored(mgr ctrl.Manager) (*Stored, error) {
	s := &Stored{caches: map[string]cache.Cache{v1alpha1.WebhookName: mgr.GetCache()}}
	for _, name := range []string{v1alpha1.AttributeWebhookName, v1alpha1.ConstraintWebhookName} {
		one, err := cache.New(mgr.GetConfig(), cache.Options{
			HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{&admissionregistrationv1.ValidatingWebhookConfiguration{}: {
				Field: fields.OneTermEqualSelector(metav1.ObjectNameField, name),
			}},
		})
		if err != nil {
			return nil, err
		}
		if err := mgr.Add(one); err != nil {
			return nil, err
		}
		s.caches[name] = one
	}
	return s, nil
}

// Get returns a configuration. The caller may change it.
func (s *Stored) Get(
	ctx context.Context, name string,
) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	stored := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := s.caches[name].Get(ctx, client.ObjectKey{Name: name}, stored); err != nil {
		return nil, fmt.Errorf("read ValidatingWebhookConfiguration %s: %w", name, err)
	}
	return stored, nil
}

// State is whether the API server sends requests to a plugin, by the webhook configurations that are stored.
type State int

// The states.
const (
	// Configured means that the API server sends requests to the plugin.
	Configured State = iota
	// Missing means that a configuration lacks the webhook of the plugin. The leader adds it.
	Missing
	// Deleted means that a configuration does not exist. The operator may not create it.
	Deleted
)

// State returns the state of a plugin whose first webhook is in a configuration.
func (s *Stored) State(ctx context.Context, configuration, plugin string) (State, error) {
	stored, err := s.Get(ctx, configuration)
	switch {
	case apierrors.IsNotFound(err):
		return Deleted, nil
	case err != nil:
		return Missing, err
	case slices.ContainsFunc(stored.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool {
		return w.Name == FullName(plugin)
	}):
		return Configured, nil
	}
	return Missing, nil
}

// Source returns a source of the requests that a function returns when a configuration changes.
func (s *Stored) Source(name string, requests func(context.Context) []reconcile.Request) source.Source {
	return source.Kind(s.caches[name], &admissionregistrationv1.ValidatingWebhookConfiguration{},
		handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, _ *admissionregistrationv1.ValidatingWebhookConfiguration) []reconcile.Request {
				return requests(ctx)
			}))
}
