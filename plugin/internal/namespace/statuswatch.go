package namespace

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
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
		case <-after(shown.nextEnd()):
			shown.expire(time.Now())
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

// after returns a channel that delivers at a time. It returns nil, which never delivers, for the zero time.
func after(end time.Time) <-chan time.Time {
	if end.IsZero() {
		return nil
	}
	return time.After(time.Until(end))
}

// updates returns the changes of the selected namespaces and, unless the user may not list them, of the templates and
// exemptions, until ctx ends.
func (o *status) updates(ctx context.Context, c *cluster.Cluster, withTemplates bool) <-chan update {
	all := make(chan update)
	send := cluster.Sender(ctx, all)
	fail := func(err error) { send(func(*board) error { return err }) }
	if withTemplates {
		cluster.FollowObjects(ctx, c, v1alpha1.NamespaceTemplates, metav1.ListOptions{},
			func(template *v1alpha1.NamespaceTemplate) { send(o.setTemplate(ctx, c, template)) }, func(name string) {
				send(func(b *board) error {
					b.deleteTemplate(name)
					return nil
				})
			}, fail)
		for _, namespace := range cluster.WatchedExemptions(o.namespaces.Names) {
			o.followExemptions(ctx, c.ExemptionInformer(namespace), namespace, send)
		}
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
				b.deleteNamespace(cluster.NameOf(item))
				return nil
			})
		}, fail)
	}
	return all
}

// followExemptions sends the changes of the TemplateExemptions of a namespace, or of all, until ctx ends. First, it
// sends what has changed since they were listed. A user who may not watch them sees the exemptions that were listed.
func (o *status) followExemptions(
	ctx context.Context, informer cache.SharedIndexInformer, in string, send func(update),
) {
	changed := func(item any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(item); err == nil && informer.HasSynced() {
			namespace, _, _ := cache.SplitMetaNamespaceKey(key)
			send(o.setExemptions(informer, namespace))
		}
	}
	cluster.Follow(ctx, informer, changed, changed, func(err error) {
		send(func(*board) error {
			o.noteOnce(fmt.Sprintf("changes of exemptions are not shown: %v", err))
			return nil
		})
	})
	go func() {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return
		}
		send(func(b *board) error {
			namespaces := []string{in}
			if in == metav1.NamespaceAll {
				namespaces = slices.Concat(informer.GetIndexer().ListIndexFuncValues(cache.NamespaceIndex),
					slices.Collect(maps.Keys(b.namespaces)))
			}
			for _, namespace := range namespaces {
				if err := o.setExemptions(informer, namespace)(b); err != nil {
					return err
				}
			}
			return nil
		})
	}()
}

// setExemptions returns the update for the TemplateExemptions of a namespace.
func (o *status) setExemptions(informer cache.SharedIndexInformer, namespace string) update {
	return func(b *board) error {
		items, err := informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
		if err != nil {
			return err
		}
		var exemptions []*v1alpha1.TemplateExemption
		for _, item := range items {
			object, ok := item.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			exemption, err := cluster.Decode[v1alpha1.TemplateExemption](object)
			if err != nil {
				return err
			}
			exemptions = append(exemptions, exemption)
		}
		b.setExemptions(namespace, exemptions, time.Now())
		return nil
	}
}

// setTemplate returns the update for a template that was added or changed.
func (o *status) setTemplate(ctx context.Context, c *cluster.Cluster, template *v1alpha1.NamespaceTemplate) update {
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
