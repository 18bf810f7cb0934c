package survey

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"

	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// Target is a change of an object in a namespace.
type Target struct {
	Namespace string
	populate.Change
}

// ReadLive reads the objects of targets, and calls use for each target with the object, which is nil if it does not
// exist, or with the error. It calls use for one target at a time, in any order, and keeps no object.
//
// It lists a kind in all namespaces if a large part of the populated objects of the kind are targets, and otherwise
// reads each object.
func (s *Survey) ReadLive(
	ctx context.Context, c *cluster.Cluster, targets []Target,
	use func(i int, live *unstructured.Unstructured, err error),
) {
	byKind := map[schema.GroupVersionKind][]int{}
	for i, target := range targets {
		if target.Metadata != nil {
			use(i, metadataSides(target.Change).Live, nil) // namespaces were read before
			continue
		}
		byKind[target.Kind] = append(byKind[target.Kind], i)
	}
	var single []int
	for kind, wanted := range byKind {
		if s.scope.AllNamespaces && s.isWorthList(kind.GroupKind(), len(wanted)) {
			wanted = listLive(ctx, c, kind, targets, wanted, use)
		}
		single = append(single, wanted...)
	}
	var mu sync.Mutex
	cluster.Each(single, func(i int) struct{} {
		var live *unstructured.Unstructured
		objects, err := c.Objects(ctx, targets[i].Kind, targets[i].Namespace)
		if err == nil {
			live, err = readLive(ctx, objects, targets[i].Name)
		}
		mu.Lock()
		defer mu.Unlock()
		use(i, live, err)
		return struct{}{}
	})
}

// isWorthList reports whether it costs less to list a kind than to read so many of its objects.
func (s *Survey) isWorthList(kind schema.GroupKind, wanted int) bool {
	const few, costOfRead = 32, 8 // reading an object costs about as much as listing eight
	populated := 0
	for _, listed := range s.observed {
		populated += listed.Len(kind)
	}
	return wanted > few && wanted*costOfRead > populated
}

// listLive calls use for the wanted targets of a kind that a list contains. It returns the other ones, or all of them
// if the user may not list the kind.
func listLive(
	ctx context.Context, c *cluster.Cluster, kind schema.GroupVersionKind, targets []Target, wanted []int,
	use func(i int, live *unstructured.Unstructured, err error),
) (rest []int) {
	type key struct{ namespace, name string }
	missing := map[key]int{}
	for _, i := range wanted {
		missing[key{targets[i].Namespace, targets[i].Name}] = i
	}
	if objects, err := c.Objects(ctx, kind, metav1.NamespaceAll); err == nil {
		list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, options)
		})
		// After an error, the missing objects are read one by one.
		_ = list.EachListItem(ctx, metav1.ListOptions{LabelSelector: populate.Labelled},
			func(item runtime.Object) error {
				object := item.(*unstructured.Unstructured)
				id := key{object.GetNamespace(), object.GetName()}
				if i, ok := missing[id]; ok {
					delete(missing, id)
					use(i, object.DeepCopy(), nil)
				}
				return nil
			})
	}
	for _, i := range missing {
		rest = append(rest, i)
	}
	return rest
}
