package hint

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// refresh is how often a token is read, and so the longest time until a changed token is in force. nstpl-sync cannot
// watch Secrets, since it is only permitted to get them.
const refresh = 30 * time.Second

// tokenKey is the key of a Secret that contains the token, as for Flux's Receivers.
const tokenKey = "token"

// tokens is a controller of PolicyRepositories. It keeps their tokens, so that an unauthenticated request never causes
// one to the API server. Every replica runs it.
type tokens struct {
	cached, live client.Reader
	recorder     events.EventRecorder

	wereRead atomic.Bool
	mu       sync.RWMutex
	all      map[string]entry
}

// entry is what is known about the hints of a PolicyRepository.
type entry struct {
	// token is empty if no hint is valid. problem says why, if spec.hint is set.
	token   []byte
	problem string
}

// setupWithManager adds the controller to a manager.
func (t *tokens) setupWithManager(mgr ctrl.Manager) error {
	everyReplica := false
	return ctrl.NewControllerManagedBy(mgr).Named("hint").
		For(&v1alpha1.PolicyRepository{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: changesSpec})).
		WithOptions(controller.Options{NeedLeaderElection: &everyReplica}).
		Complete(t)
}

// changesSpec reports whether an update changed the spec. After an interruption of the watch, it may be that of another
// PolicyRepository with the same name, whose generation is often the same.
func changesSpec(e event.UpdateEvent) bool {
	return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() || e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration()
}

// Reconcile reads the token of a PolicyRepository.
func (t *tokens) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	repository := &v1alpha1.PolicyRepository{}
	err := t.cached.Get(ctx, req.NamespacedName, repository)
	if apierrors.IsNotFound(err) || err == nil && repository.Spec.Hint == nil {
		t.set(req.Name, entry{})
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	before := t.get(req.Name)
	after, err := t.read(ctx, repository)
	if err != nil { // the token stays in force until the API server says what has become of it
		return reconcile.Result{}, err
	}
	t.set(req.Name, after)
	if after.problem != "" && after.problem != before.problem {
		t.recorder.Eventf(repository, nil, corev1.EventTypeWarning, "HintsRejected", "ReadToken", "%s", after.problem)
	}
	return reconcile.Result{RequeueAfter: refresh}, nil
}

// read reads the token of a PolicyRepository with spec.hint.
func (t *tokens) read(ctx context.Context, repository *v1alpha1.PolicyRepository) (entry, error) {
	var e entry
	name := repository.Spec.Hint.SecretRef.Name
	secret := &corev1.Secret{}
	err := t.live.Get(ctx, types.NamespacedName{Namespace: v1alpha1.OperatorNamespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		e.problem = fmt.Sprintf("hints are rejected: the Secret %s/%s does not exist: create it with the key %s",
			v1alpha1.OperatorNamespace, name, tokenKey)
		return e, nil
	case err != nil:
		return e, fmt.Errorf("read Secret %s/%s: %w", v1alpha1.OperatorNamespace, name, err)
	}
	e.token = bytes.TrimSpace(secret.Data[tokenKey]) // files usually end with a line break
	if len(e.token) == 0 {
		e.problem = fmt.Sprintf("hints are rejected: the key %s of Secret %s/%s is missing or empty: "+
			"set it to a random text", tokenKey, v1alpha1.OperatorNamespace, name)
	}
	return e, nil
}

// areRead returns an error until the tokens of all PolicyRepositories have been read once.
func (t *tokens) areRead(request *http.Request) error {
	if t.wereRead.Load() {
		return nil
	}
	list := &v1alpha1.PolicyRepositoryList{}
	if err := t.cached.List(request.Context(), list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list PolicyRepositories: %w", err)
	}
	for i := range list.Items {
		repository := &list.Items[i]
		if e := t.get(repository.Name); repository.Spec.Hint != nil && e.token == nil && e.problem == "" {
			return fmt.Errorf("the token of PolicyRepository %s has not been read", repository.Name)
		}
	}
	t.wereRead.Store(true)
	return nil
}

// get returns what is known about a PolicyRepository. It is empty for an unknown one.
func (t *tokens) get(name string) entry {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.all[name]
}

func (t *tokens) set(name string, e entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.token == nil && e.problem == "" {
		delete(t.all, name)
		return
	}
	if t.all == nil {
		t.all = map[string]entry{}
	}
	t.all[name] = e
}
