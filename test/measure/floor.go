package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// floorSlots is the number of namespaces that are written to at a time. The operator has as many workers.
const floorSlots = 16

// Namespaces are the resource of namespaces.
var Namespaces = corev1.SchemeGroupVersion.WithResource("namespaces")

// Floor makes the same writes as the operator and nothing else: it reads, compares and remembers nothing.
type Floor struct {
	// Client is the connection of the floor. No other client shares it.
	Client  metadata.Interface
	applies []apply
	status  []byte
}

// apply is a prepared request without its namespace.
type apply struct {
	resource schema.GroupVersionResource
	name     string
	body     []byte
}

// NewFloor returns a floor that applies objects, and then sets a condition to True in the status of the namespace.
func NewFloor(
	config *rest.Config, objects []*unstructured.Unstructured, condition corev1.NamespaceConditionType,
) (*Floor, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Dial = (&net.Dialer{}).DialContext // its own connection: clients with the same configuration would share one
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	f := &Floor{Client: client}
	for _, object := range objects {
		object = object.DeepCopy()
		// These have as many bytes as the operator's own labels and annotations.
		labels := map[string]string{"example/namespace-template-name": "load-floor"}
		maps.Copy(labels, object.GetLabels())
		object.SetLabels(labels)
		object.SetAnnotations(map[string]string{"example.nstpl.dev/applied-hash": "0123456789abcdef"})
		body, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		f.applies = append(f.applies, apply{ResourceOf(object), object.GetName(), body})
	}
	f.status, err = json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
		"type": condition, "status": corev1.ConditionTrue, "reason": "Populated",
		"message": fmt.Sprintf("%d objects of load-floor", len(objects)), "lastTransitionTime": metav1.Now(),
	}}}})
	return f, err
}

// Run populates the namespaces of a watch until ctx ends. It reports errors to fail.
func (f *Floor) Run(ctx context.Context, created watch.Interface, fail func(error)) {
	slots := make(chan struct{}, floorSlots)
	var populating sync.WaitGroup
	defer populating.Wait()
	fail(Follow(ctx, created, func(event watch.Event) {
		object, ok := event.Object.(*metav1.PartialObjectMetadata)
		if !ok || event.Type != watch.Added {
			return
		}
		populating.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := f.Populate(ctx, object.Name); err != nil {
				fail(fmt.Errorf("the floor can't populate namespace %s: %w", object.Name, err))
			}
		})
	}))
}

// Populate writes the objects of a namespace at the same time, and then its condition.
func (f *Floor) Populate(ctx context.Context, namespace string) error {
	errs := make([]error, len(f.applies))
	var wait sync.WaitGroup
	for i, a := range f.applies {
		wait.Go(func() {
			_, errs[i] = f.Client.Resource(a.resource).Namespace(namespace).
				Patch(ctx, a.name, types.ApplyPatchType, a.body, metav1.PatchOptions{FieldManager: "floor"})
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err := f.Client.Resource(Namespaces).
		Patch(ctx, namespace, types.StrategicMergePatchType, f.status, metav1.PatchOptions{}, "status")
	return err
}

// ResourceOf returns the resource of an object of one of Kubernetes' own kinds.
func ResourceOf(object *unstructured.Unstructured) schema.GroupVersionResource {
	resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	return resource
}
