package namespace

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"nstpl.dev/nstpl/operator/engine/rollout"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// update changes a board. It returns an error if the watch cannot go on.
type update func(*board) error

// follow prints each namespace whose status changes, until ctx ends.
func (o *status) follow(ctx context.Context, c *cluster.Cluster, shown *board) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	updates := o.updates(ctx, c, shown.index != nil)
	for {
		select {
		case <-ctx.Done():
			return nil // the user interrupted the command
		case apply := <-updates:
			if err := apply(shown); err != nil {
				return err
			}
		}
		if changes := shown.changes(); len(changes) > 0 {
			if err := o.write(changes, time.Now()); err != nil {
				return err
			}
		}
	}
}

// updates returns the changes of the selected namespaces and, unless the user may not list them, of the templates,
// until ctx ends.
func (o *status) updates(ctx context.Context, c *cluster.Cluster, withTemplates bool) <-chan update {
	all := make(chan update)
	send := func(next update) {
		select {
		case all <- next:
		case <-ctx.Done():
		}
	}
	fail := func(err error) { send(func(*board) error { return err }) }
	if withTemplates {
		cluster.Follow(ctx, c.TemplateInformer(metav1.ListOptions{}), func(item any) {
			send(o.setTemplate(ctx, c, item))
		}, func(item any) {
			send(func(b *board) error {
				b.deleteTemplate(nameOf(item))
				return nil
			})
		}, fail)
	}
	for _, only := range o.namespaces.Watched() {
		cluster.Follow(ctx, c.NamespaceInformer(only), func(item any) {
			send(func(b *board) error {
				if ns, ok := item.(*corev1.Namespace); ok {
					b.setNamespace(ns)
				}
				return nil
			})
		}, func(item any) {
			send(func(b *board) error {
				b.deleteNamespace(nameOf(item))
				return nil
			})
		}, fail)
	}
	return all
}

// setTemplate returns the update for a template that was added or changed.
func (o *status) setTemplate(ctx context.Context, c *cluster.Cluster, item any) update {
	object, ok := item.(*unstructured.Unstructured)
	if !ok {
		return func(*board) error { return nil }
	}
	template, err := cluster.DecodeTemplate(object)
	if err != nil {
		return func(*board) error { return err }
	}
	layers, unread := c.Layers(ctx, template)
	return func(b *board) error {
		if unread != nil {
			layers = rollout.Single(template)
			o.noteUnread(unread)
		}
		b.setTemplate(template, layers)
		return nil
	}
}

// nameOf returns the name of a deleted, cluster-scoped object.
func nameOf(item any) string {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(item)
	if err != nil {
		return ""
	}
	return name
}
