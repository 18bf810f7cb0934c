package namespace

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/rollout"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// collectFor is how long a watch collects changes before it computes all statuses again.
const collectFor = 100 * time.Millisecond

// statusWatch computes a board from the stores of informers.
type statusWatch struct {
	*status
	cluster *cluster.Cluster
	// namespaces, templates and exemptions are informers. If the user may not list templates, there are only those of
	// namespaces. Those of exemptions are by the namespaces that WatchedExemptions returns.
	namespaces, templates []cache.SharedIndexInformer
	exemptions            map[string]cache.SharedIndexInformer
	// index is the last that was computed. Templates that have not changed since then keep the revisions in it.
	index *match.Index
}

// follow prints each namespace whose status changes, until ctx ends.
func (o *status) follow(ctx context.Context, c *cluster.Cluster, shown *board) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w := &statusWatch{
		status: o, cluster: c, index: match.NewIndex(), exemptions: map[string]cache.SharedIndexInformer{},
	}
	changed, failed, notes := make(chan struct{}, 1), make(chan error), make(chan string)
	w.start(ctx, shown.index != nil, changed, cluster.Sender(ctx, failed), cluster.Sender(ctx, notes))
	var collected, end <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil // the user interrupted the command
		case err := <-failed:
			return err
		case note := <-notes:
			o.noteOnce(note)
			continue
		case <-changed:
			if collected == nil {
				collected = time.After(collectFor)
			}
			continue
		case <-collected:
			collected = nil
		case <-end:
		}
		next, err := w.update(ctx, shown)
		if err != nil {
			return err
		}
		end = after(next)
		if changes := shown.changes(); len(changes) > 0 && ctx.Err() == nil {
			if err := o.write(changes, time.Now()); err != nil {
				return err
			}
		}
	}
}

// after returns a channel that delivers at a time. It returns nil, which never delivers, for nil.
func after(end *metav1.Time) <-chan time.Time {
	if end == nil {
		return nil
	}
	return time.After(time.Until(end.Time))
}

// start watches the selected namespaces and, unless the user may not list them, the templates and exemptions, until ctx
// ends. Changed receives when a store has been filled, and after each change.
func (w *statusWatch) start(
	ctx context.Context, withTemplates bool, changed chan<- struct{}, fail func(error), note func(string),
) {
	report := func(any) {
		select {
		case changed <- struct{}{}:
		default: // an earlier change has not been received yet
		}
	}
	start := func(informer cache.SharedIndexInformer, denied func(error)) cache.SharedIndexInformer {
		cluster.Follow(ctx, informer, report, report, denied)
		go func() {
			cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
			report(nil)
		}()
		return informer
	}
	for _, only := range w.status.namespaces.Watched() {
		w.namespaces = append(w.namespaces, start(w.cluster.NamespaceInformer(only), fail))
	}
	if !withTemplates {
		return
	}
	w.templates = append(w.templates,
		start(w.cluster.Informer(v1alpha1.NamespaceTemplates, metav1.ListOptions{}), fail))
	for _, in := range cluster.WatchedExemptions(w.status.namespaces.Names) {
		w.exemptions[in] = start(w.cluster.ExemptionInformer(in), func(err error) {
			note(fmt.Sprintf("changes of exemptions are not shown: %v", err))
		})
	}
}

// update computes the namespaces and the index of a board from the stores, and returns when the next exemption expires,
// or nil. It changes nothing before the namespaces and templates have been listed.
func (w *statusWatch) update(ctx context.Context, b *board) (next *metav1.Time, err error) {
	namespaces, hasNamespaces := stored[*corev1.Namespace](w.namespaces...)
	templates, hasTemplates := stored[*unstructured.Unstructured](w.templates...)
	if !hasNamespaces || !hasTemplates {
		return nil, nil
	}
	b.namespaces = namespaces
	if b.index == nil {
		return nil, nil
	}
	if w.index, err = w.indexOf(ctx, templates); err != nil {
		return nil, err
	}
	var exemptions []*v1alpha1.TemplateExemption
	for in, informer := range w.exemptions {
		some, err := exemptionsOf(informer, in, b)
		if err != nil {
			return nil, err
		}
		exemptions = append(exemptions, some...)
	}
	_, next = match.InForce(exemptions, metav1.Now()) // before SetExemptions, so that none can expire unnoticed
	cluster.SetExemptions(w.index, exemptions)
	b.index = w.index
	return next, nil
}

// stored returns the objects in the stores of informers. It reports whether each store has been filled.
func stored[T any](informers ...cache.SharedIndexInformer) (objects []T, isComplete bool) {
	for _, informer := range informers {
		if !informer.HasSynced() {
			return nil, false
		}
		for _, item := range informer.GetStore().List() {
			if object, ok := item.(T); ok {
				objects = append(objects, object)
			}
		}
	}
	return objects, true
}

// indexOf returns an index of templates, without exemptions. It reads the revisions of a template once for each state
// of the template.
func (w *statusWatch) indexOf(ctx context.Context, templates []*unstructured.Unstructured) (*match.Index, error) {
	index := match.NewIndex()
	for _, object := range templates {
		template, layers := w.index.Get(object.GetName()), w.index.Layers(object.GetName())
		if template == nil || template.ResourceVersion != object.GetResourceVersion() {
			var err error
			if template, err = cluster.Decode[v1alpha1.NamespaceTemplate](object); err != nil {
				return nil, err
			}
			if layers, err = w.cluster.Layers(ctx, template); err != nil && ctx.Err() == nil {
				w.noteUnread(err)
			}
			if err != nil {
				layers = rollout.Single(template)
			}
		}
		index.SetLayers(template, layers)
	}
	return index, nil
}

// exemptionsOf returns the TemplateExemptions in the store of the informer for a namespace, or for all. A user who may
// not watch them sees those that were in force before.
func exemptionsOf(informer cache.SharedIndexInformer, in string, b *board) ([]*v1alpha1.TemplateExemption, error) {
	objects, isComplete := stored[*unstructured.Unstructured](informer)
	var exemptions []*v1alpha1.TemplateExemption
	if !isComplete {
		for _, ns := range b.namespaces {
			if in == metav1.NamespaceAll || in == ns.Name {
				exemptions = append(exemptions, b.index.Exemptions(ns.Name)...)
			}
		}
	}
	for _, object := range objects {
		exemption, err := cluster.Decode[v1alpha1.TemplateExemption](object)
		if err != nil {
			return nil, err
		}
		exemptions = append(exemptions, exemption)
	}
	return exemptions, nil
}
