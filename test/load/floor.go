package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// floorSlots is the number of namespaces that are written to at a time. The operator has as many workers.
const floorSlots = 16

var namespaces = corev1.SchemeGroupVersion.WithResource("namespaces")

// floor makes the same writes as the operator and nothing else: it reads, compares and remembers nothing.
type floor struct {
	client  metadata.Interface
	applies []apply
	status  []byte
}

// apply is a prepared request without its namespace.
type apply struct {
	resource schema.GroupVersionResource
	name     string
	body     []byte
}

func newFloor(config *rest.Config) (*floor, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Dial = (&net.Dialer{}).DialContext // its own connection: clients with the same configuration would share one
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	all, err := objects("a")
	if err != nil {
		return nil, err
	}
	f := &floor{client: client}
	for _, object := range all {
		// These have as many bytes as the operator's own labels and annotations.
		object.SetLabels(map[string]string{stageLabel: "a", "example/namespace-template-name": templateName(floorSide)})
		object.SetAnnotations(map[string]string{"example.nstpl.dev/applied-hash": "0123456789abcdef"})
		body, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		f.applies = append(f.applies, apply{resourceOf(object), object.GetName(), body})
	}
	f.status, err = json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
		"type": floorSide.condition(), "status": corev1.ConditionTrue, "reason": "Populated",
		"message": "5 objects of " + templateName(floorSide), "lastTransitionTime": metav1.Now(),
	}}}})
	return f, err
}

// run populates the namespaces of a watch until ctx ends. It reports errors to fail.
func (f *floor) run(ctx context.Context, created watch.Interface, fail func(error)) {
	slots := make(chan struct{}, floorSlots)
	fail(follow(ctx, created, func(event watch.Event) {
		object, ok := event.Object.(*metav1.PartialObjectMetadata)
		if !ok || event.Type != watch.Added {
			return
		}
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := f.populate(ctx, object.Name); err != nil {
				fail(fmt.Errorf("the floor can't populate namespace %s: %w", object.Name, err))
			}
		}()
	}))
}

func (f *floor) populate(ctx context.Context, namespace string) error {
	errs := make([]error, len(f.applies))
	var wait sync.WaitGroup
	for i, a := range f.applies {
		wait.Go(func() {
			_, errs[i] = f.client.Resource(a.resource).Namespace(namespace).
				Patch(ctx, a.name, types.ApplyPatchType, a.body, metav1.PatchOptions{FieldManager: "floor"})
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err := f.client.Resource(namespaces).
		Patch(ctx, namespace, types.StrategicMergePatchType, f.status, metav1.PatchOptions{}, "status")
	return err
}
