package population

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/engine/rollout"
	"nstpl.dev/nstpl/operator/internal/queue"
)

// Values knows from which labels and annotations of namespaces templates render, and whether rules protect them.
// Admission denies a template that renders from others, but a rule may be deleted later. The operator itself then makes
// the API server stop asking about the attribute, after Values has learned of the deletion. So no namespace is
// rendered by a value that a user could choose since.
type Values struct {
	// Rules are those about protected attributes.
	Rules Rules

	mu sync.Mutex
	// rendered has an entry for each template that renders from labels or annotations.
	rendered map[string]rendered
}

// rendered is from which keys the revisions of a template render, and which of them no rule protects.
type rendered struct {
	uid               types.UID
	keys, unprotected []render.MetadataKey
}

// unprotected returns the keys that no rule protects.
func (s *Values) unprotected(ctx context.Context, keys []render.MetadataKey) ([]render.MetadataKey, error) {
	var found []render.MetadataKey
	var errs []error
	for _, key := range keys {
		protected, err := s.Rules.Protects(ctx, key.Attribute())
		if !protected {
			found = append(found, key)
		}
		errs = append(errs, err)
	}
	return found, errors.Join(errs...)
}

// check returns an error if no rule protects one of the keys from which a template renders.
func (s *Values) check(ctx context.Context, template string, keys []render.MetadataKey) error {
	if len(keys) == 0 {
		return nil
	}
	unprotected, err := s.unprotected(ctx, keys)
	if err != nil {
		return fmt.Errorf("template %s: %w", template, err)
	}
	if len(unprotected) > 0 {
		return fmt.Errorf("template %s: %w", template, render.NewUnprotectedError(unprotected))
	}
	return nil
}

func (s *Values) guard(ctx context.Context) populate.Guard {
	return func(template *v1alpha1.NamespaceTemplate, keys []render.MetadataKey) error {
		return s.check(ctx, template.Name, keys)
	}
}

// set records from which keys the revisions of a template render.
func (s *Values) set(ctx context.Context, template *v1alpha1.NamespaceTemplate, layers rollout.Layers) {
	keys := render.UsedKeys(&template.Spec)
	for i := range layers {
		keys = append(keys, render.UsedKeys(&layers[i].Template.Spec)...)
	}
	slices.SortFunc(keys, render.MetadataKey.Compare)
	keys = slices.Compact(keys)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(keys) == 0 {
		delete(s.rendered, template.Name)
		return
	}
	if known := s.rendered[template.Name]; known.uid == template.UID && slices.Equal(known.keys, keys) {
		return
	}
	if s.rendered == nil {
		s.rendered = map[string]rendered{}
	}
	unprotected, _ := s.unprotected(ctx, keys) // they count as unprotected, and are asked for again when rules change
	s.rendered[template.Name] = rendered{template.UID, keys, unprotected}
}

func (s *Values) forget(template string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rendered, template)
}

// changed returns the templates for which rules have begun or ceased to protect keys since the last call.
func (s *Values) changed(ctx context.Context) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, known := range s.rendered {
		unprotected, err := s.unprotected(ctx, known.keys)
		if err == nil && !slices.Equal(unprotected, known.unprotected) {
			known.unprotected = unprotected
			s.rendered[name] = known
			names = append(names, name)
		}
	}
	return names
}

// followRules reconciles templates, and the namespaces with results of them, when rules begin or cease to protect what
// the templates render from. It also has the sources of templates judged by the new rules.
func (r *Templates) followRules(ctx context.Context) {
	r.Values.Rules.Listen(func() {
		r.Sources.Judge()
		for _, name := range r.Values.changed(ctx) {
			r.Requests.AddWithOpts(priorityqueue.AddOpts{},
				reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
			r.Queue.Enqueue(queue.Rollout, 0, slices.Collect(maps.Keys(r.Results.Of(name)))...)
		}
	})
}
