package main

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/measure"
)

// edit is a change of a populated object by another client.
const edit = `{"metadata": {"labels": {"` + stageLabel + `": "edited"}}}`

// drift edits populated objects one after the other. Each edit ends when the object is as declared again.
func (b *bench) drift(ctx context.Context) error {
	b.printProgress("%d edits of populated objects", b.sizes.edits)
	editor, err := metadata.NewForConfig(b.cluster.RESTConfig())
	if err != nil {
		return err
	}
	all, err := objects("a")
	if err != nil {
		return err
	}
	corrected := measure.NewSightings()
	for _, object := range all {
		edited := map[string]bool{}
		if err := b.follow(ctx, v1alpha1.TemplateNameLabel, editor.Resource(measure.ResourceOf(object)).Watch,
			func(event watch.Event) {
				seen, ok := event.Object.(*metav1.PartialObjectMetadata)
				if !ok {
					return
				}
				if seen.Labels[stageLabel] == "edited" {
					edited[seen.Namespace] = true
				} else if edited[seen.Namespace] {
					delete(edited, seen.Namespace)
					corrected.Record(seen.Namespace + "/" + object.GetKind())
				}
			}); err != nil {
			return err
		}
	}
	var took []time.Duration
	for i := range b.sizes.edits {
		object := all[i%len(all)]
		namespace := name(operatorSide, i%b.made[operatorSide])
		seen := corrected.Expect(namespace + "/" + object.GetKind())
		start := time.Now()
		_, err := editor.Resource(measure.ResourceOf(object)).Namespace(namespace).
			Patch(ctx, object.GetName(), types.MergePatchType, []byte(edit),
				metav1.PatchOptions{FieldManager: "somebody"})
		if err != nil {
			return err
		}
		at, err := measure.Await(ctx, object.GetKind()+" in namespace "+namespace+" corrected", seen)
		if err != nil {
			return err
		}
		took = append(took, at.Sub(start))
	}
	b.table.add("an edited object corrected: p50", "ms", measure.Milliseconds(measure.Percentile(took, 50)), "")
	b.table.add("an edited object corrected: p99", "ms", measure.Milliseconds(measure.Percentile(took, 99)),
		"at most 1000")
	return nil
}
