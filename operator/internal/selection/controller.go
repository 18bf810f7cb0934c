package selection

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/selectors"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/revisions"
	"nstpl.dev/nstpl/operator/internal/watch"
)

// gather is the least time between two writes of the ConfigMap, and restFactor how many times as long as reading all
// rules the pause after it is. Admission writes at once what must not wait.
const (
	gather     = 100 * time.Millisecond
	restFactor = 9
)

// Controller keeps the ConfigMap: it removes rules that are no longer needed, adds those of objects that were stored
// without the operator, before it was installed, and copies the lists in nstpl-auto-opt-out.
type Controller struct {
	leader *leadership.Leader
	// live reads from the API server.
	live client.Reader
	// lists has the ConfigMap nstpl-auto-opt-out.
	lists client.Reader
	// revisions reads the revisions of templates that are in force.
	revisions *revisions.Reader
	// known are the rules of templates by UID. They save reading the selectors of all templates again.
	known map[types.UID]rulesAt
	// resume is the time before which Reconcile waits for more changes.
	resume time.Time
	// complete is closed when the ConfigMap has all rules.
	complete chan struct{}
}

// rulesAt are the rules of a template at a resourceVersion.
type rulesAt struct {
	resourceVersion string
	rules           []selectors.Rule
}

// Setup adds the controller to a manager.
func Setup(mgr ctrl.Manager, leader *leadership.Leader, reader *revisions.Reader) error {
	lists, err := newOptOutCache(mgr)
	if err != nil {
		return err
	}
	if err := mgr.Add(lists); err != nil {
		return err
	}
	r := &Controller{
		leader: leader, live: mgr.GetAPIReader(), lists: lists, revisions: reader, complete: make(chan struct{}),
	}
	if err := mgr.AddReadyzCheck("selectors", r.ready(mgr.Elected())); err != nil {
		return err
	}
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: v1alpha1.SelectorsConfigMap}}}
	})
	changed := builder.WithPredicates(predicate.Funcs{UpdateFunc: watch.MoreThanStatus})
	return ctrl.NewControllerManagedBy(mgr).Named("selectors").
		Watches(&corev1.ConfigMap{}, one).
		WatchesRawSource(source.Kind(lists, client.Object(&corev1.ConfigMap{}), one)).
		Watches(&v1alpha1.NamespaceTemplate{}, one,
			builder.WithPredicates(predicate.Funcs{UpdateFunc: changesRules})).
		Watches(&v1alpha1.NamespaceInitializationConfiguration{}, one, changed).
		WithOptions(controller.Options{NewQueue: leader.Queues.New}).
		Complete(leader.Caches.Before(r))
}

// changesRules reports whether an update of a template may change its rules: the template, or which of its revisions
// namespaces may have.
func changesRules(e event.UpdateEvent) bool {
	before, isTemplate := e.ObjectOld.(*v1alpha1.NamespaceTemplate)
	after, _ := e.ObjectNew.(*v1alpha1.NamespaceTemplate)
	return watch.MoreThanStatus(e) || isTemplate && !slices.Equal(revisions.Names(before), revisions.Names(after))
}

// ready returns a readiness check, which fails until the leader has written all rules. Templates that were stored
// before the first operator started are in force then.
func (r *Controller) ready(elected <-chan struct{}) healthz.Checker {
	return func(*http.Request) error {
		select {
		case <-elected:
		default:
			return nil
		}
		select {
		case <-r.complete:
			return nil
		default:
			return fmt.Errorf("ConfigMap %s has not been written yet", v1alpha1.SelectorsConfigMap)
		}
	}
}

// Reconcile writes the rules of all templates, configurations and pending additions, and nothing if they are written.
func (r *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if wait := time.Until(r.resume); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	configMap := &corev1.ConfigMap{}
	// The cache may have this ConfigMap only. If it does not exist, the policies allow everything, until it is created.
	key := client.ObjectKey{Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.SelectorsConfigMap}
	if err := r.leader.Client.Get(ctx, key, configMap); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	start := time.Now()
	objects, rules, err := r.read(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	took := time.Since(start)
	before := read(configMap)
	pending, err := r.stillPending(ctx, before.pending, objects)
	if err != nil {
		return reconcile.Result{}, err
	}
	listed, err := r.optOuts(ctx, before.optOuts)
	if err != nil {
		return reconcile.Result{}, err
	}
	changed, err := record{rules: rules, pending: pending, optOuts: listed}.write(configMap)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("ConfigMap %s: %w", v1alpha1.SelectorsConfigMap, err)
	}
	if changed {
		if err := r.leader.Client.Update(ctx, configMap); err != nil {
			return reconcile.Result{}, fmt.Errorf("write ConfigMap %s: %w", v1alpha1.SelectorsConfigMap, err)
		}
	}
	// Not after a failure: the queue waits longer after each, unless a result without an error comes between them.
	r.resume = time.Now().Add(max(gather, restFactor*took))
	select {
	case <-r.complete:
	default:
		close(r.complete)
	}
	if len(pending) > 0 {
		return reconcile.Result{RequeueAfter: expiry}, nil
	}
	return reconcile.Result{}, nil
}

// stillPending returns those of some additions whose objects are not in the cache yet. An addition that has expired is
// pending only if the API server has stored its object.
func (r *Controller) stillPending(
	ctx context.Context, additions []addition, cached map[string]metav1.Object,
) ([]addition, error) {
	now := time.Now()
	var pending []addition
	for _, a := range additions {
		if a.stored(cached[a.Kind+"/"+a.Name]) {
			continue
		}
		if a.expired(now) {
			live := &metav1.PartialObjectMetadata{}
			live.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kinds[a.Kind]))
			err := r.live.Get(ctx, client.ObjectKey{Name: a.Name}, live)
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("get %s %s: %w", a.Kind, a.Name, err)
			}
			if err != nil || !a.stored(live) {
				continue
			}
		}
		pending = append(pending, a)
	}
	return pending, nil
}

// kinds are the kinds of the resources that have rules.
var kinds = map[string]string{
	v1alpha1.NamespaceTemplates.Resource:                    "NamespaceTemplate",
	v1alpha1.NamespaceInitializationConfigurations.Resource: "NamespaceInitializationConfiguration",
}

// read returns the rules of all templates and configurations in the cache, and their metadata by kind and name.
func (r *Controller) read(ctx context.Context) (map[string]metav1.Object, selectors.Set, error) {
	templates := &v1alpha1.NamespaceTemplateList{}
	if err := r.leader.Client.List(ctx, templates, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, err
	}
	configurations := &v1alpha1.NamespaceInitializationConfigurationList{}
	if err := r.leader.Client.List(ctx, configurations, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, err
	}
	objects, rules := map[string]metav1.Object{}, selectors.Set{}
	known := make(map[types.UID]rulesAt, len(templates.Items))
	for i := range templates.Items {
		template := &templates.Items[i]
		at := r.known[template.UID]
		if at.resourceVersion != template.ResourceVersion {
			rules, err := rulesInForce(ctx, r.revisions, template)
			if err != nil {
				return nil, nil, err
			}
			at = rulesAt{template.ResourceVersion, rules}
		}
		known[template.UID] = at
		objects[v1alpha1.NamespaceTemplates.Resource+"/"+template.Name] = template
		rules.Add(at.rules...)
	}
	r.known = known
	for i := range configurations.Items {
		configuration := &configurations.Items[i]
		objects[v1alpha1.NamespaceInitializationConfigurations.Resource+"/"+configuration.Name] = configuration
		rules.Add(selectors.OfConfiguration(configuration)...)
	}
	return objects, rules, nil
}
