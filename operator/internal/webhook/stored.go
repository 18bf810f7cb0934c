package webhook

import (
	"context"
	"fmt"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Stored provides the operator's ValidatingWebhookConfigurations as they are stored. The operator may watch each of
// them by its name only, so that each has a cache of its own. It is safe for concurrent use.
type Stored struct {
	caches map[string]cache.Cache
	leases coordinationclient.LeaseInterface

	mu sync.Mutex
	// inUse has, by name, the resourceVersions of the last configurations that the API server was found to use.
	inUse map[string]string
	// failed has, by name, why the last write of a configuration failed. Only the leader writes.
	failed sync.Map
}

// NewStored adds the caches to a manager, whose own cache has the configuration v1alpha1.WebhookName. leases are those
// in the operator's namespace, for dry runs.
func NewStored(mgr ctrl.Manager, leases coordinationclient.LeaseInterface) (*Stored, error) {
	s := &Stored{
		caches: map[string]cache.Cache{v1alpha1.WebhookName: mgr.GetCache()},
		leases: leases, inUse: map[string]string{},
	}
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

// State is whether the API server sends requests to a plugin.
type State int

// The states.
const (
	// Configured means that the API server sends requests to the plugin.
	Configured State = iota
	// Missing means that a configuration lacks the webhook of the plugin, which the leader adds. Of Asks, it also means
	// that the API server does not use the configuration yet.
	Missing
	// Deleted means that a configuration does not exist. The operator may not create it.
	Deleted
)

// State returns the state of a plugin whose first webhook is in a configuration, by what is stored. The error is also
// why the operator could not write the webhook.
func (s *Stored) State(ctx context.Context, configuration, plugin string) (State, error) {
	_, state, err := s.find(ctx, configuration, plugin,
		func(*admissionregistrationv1.ValidatingWebhook) bool { return true })
	return state, err
}

// find returns a configuration, and the state of a plugin whose first webhook is in it, and is as needed.
func (s *Stored) find(
	ctx context.Context, configuration, plugin string,
	isAsNeeded func(*admissionregistrationv1.ValidatingWebhook) bool,
) (*admissionregistrationv1.ValidatingWebhookConfiguration, State, error) {
	stored, err := s.Get(ctx, configuration)
	state, err := stateIn(stored, err, plugin, isAsNeeded)
	if err == nil && state == Missing {
		err = s.failure(configuration)
	}
	return stored, state, err
}

// stateIn returns the state of a plugin whose first webhook is in a configuration that was read, and is as needed.
func stateIn(
	stored *admissionregistrationv1.ValidatingWebhookConfiguration, err error, plugin string,
	isAsNeeded func(*admissionregistrationv1.ValidatingWebhook) bool,
) (State, error) {
	switch {
	case apierrors.IsNotFound(err):
		return Deleted, nil
	case err != nil:
		return Missing, err
	}
	for i := range stored.Webhooks {
		if w := &stored.Webhooks[i]; w.Name == FullName(plugin) && isAsNeeded(w) {
			return Configured, nil
		}
	}
	return Missing, nil
}

// Asks is like State, but Configured also means that the webhook is as needed, and that the API server uses the
// configuration: after a write, it goes on with an earlier one until it has compiled the new one. It uses a
// configuration as a whole, so one probe finds that out for all plugins.
func (s *Stored) Asks(
	ctx context.Context, configuration, plugin string,
	isAsNeeded func(*admissionregistrationv1.ValidatingWebhook) bool,
) (State, error) {
	stored, state, err := s.find(ctx, configuration, plugin, isAsNeeded)
	if err != nil || state != Configured {
		return state, err
	}
	if isUsed, err := s.isUsed(ctx, stored); err != nil || !isUsed {
		return Missing, err
	}
	return Configured, nil
}

// isUsed reports whether the API server uses a configuration with webhooks, as it was read.
func (s *Stored) isUsed(
	ctx context.Context, read *admissionregistrationv1.ValidatingWebhookConfiguration,
) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := probeOf(read.Webhooks)
	if p == "" || read.ResourceVersion == s.inUse[read.Name] { // an earlier operator writes no probe
		return true, nil
	}
	isCalled, err := p.isCalled(ctx, s.leases)
	if isCalled {
		s.inUse[read.Name] = read.ResourceVersion
	}
	return isCalled, err
}

// tried records how an attempt to write a configuration ended. After a conflict it is soon written again.
func (s *Stored) tried(configuration string, err error) {
	if err == nil || apierrors.IsConflict(err) {
		s.failed.Delete(configuration)
		return
	}
	s.failed.Store(configuration, err)
}

// failure returns why a configuration could not be written, or nil.
func (s *Stored) failure(configuration string) error {
	failed, _ := s.failed.Load(configuration)
	err, _ := failed.(error)
	return err
}

// MutatingFailure returns why the operator could not write the MutatingWebhookConfiguration, or nil.
func (s *Stored) MutatingFailure() error { return s.failure(mutating) }

// Source returns a source of the requests that a function returns when a configuration changes.
func (s *Stored) Source(name string, requests func(context.Context) []reconcile.Request) source.Source {
	return source.Kind(s.caches[name], &admissionregistrationv1.ValidatingWebhookConfiguration{},
		handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, _ *admissionregistrationv1.ValidatingWebhookConfiguration) []reconcile.Request {
				return requests(ctx)
			}))
}
