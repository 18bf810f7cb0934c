package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// drift changes populated objects as somebody else, one after the other, and measures the time until each is seen to be
// as declared again.
func (b *bench) drift(ctx context.Context, config *rest.Config) error {
	b.say("%d edits of populated objects", b.sizes.Edits)
	editor, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	all, err := objects("a")
	if err != nil {
		return err
	}
	corrected := newSightings()
	for kind, resource := range resources {
		changed, err := b.watch(ctx, v1alpha1.TemplateNameLabel, editor.Resource(resource).Watch)
		if err != nil {
			return err
		}
		edited := map[string]bool{}
		go func() {
			b.fail(follow(ctx, changed, func(event watch.Event) {
				object, ok := event.Object.(*metav1.PartialObjectMetadata)
				if !ok {
					return
				}
				if object.Labels[stageLabel] == "edited" {
					edited[object.Namespace] = true
				} else if edited[object.Namespace] {
					delete(edited, object.Namespace)
					corrected.see(object.Namespace + "/" + kind)
				}
			}))
		}()
	}
	var took []time.Duration
	for i := range b.sizes.Edits {
		object := all[i%len(all)]
		namespace := fmt.Sprintf("%s-%05d", operatorSide, i%b.made[operatorSide])
		key := namespace + "/" + object.GetKind()
		seen := corrected.expect(key)
		start := time.Now()
		if _, err := editor.Resource(resources[object.GetKind()]).Namespace(namespace).Patch(ctx, object.GetName(), types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"`+stageLabel+`":"edited"}}}`), metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
			return err
		}
		at, err := await(ctx, key+" corrected", seen)
		if err != nil {
			return err
		}
		took = append(took, at.Sub(start))
	}
	b.table.add("an edited object put right: p50", "ms", milliseconds(percentile(took, 50)), "")
	b.table.add("an edited object put right: p99", "ms", milliseconds(percentile(took, 99)), "at most 1000")
	return nil
}
