package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"nstpl.dev/nstpl/test/measure"
)

const (
	floorLabel     = "floor.nstpl.dev/populate"
	floorCondition = "floor.nstpl.dev/Populated"
	// writers is the number of concurrent clients. The operator has as many workers.
	writers = 16
)

// measureFloor measures a bare client that makes the same writes as the operator, before anything is installed, and
// deletes what it created.
func (b *bench) measureFloor(ctx context.Context) (err error) {
	defer b.progress.begin("a bare client before anything is installed")()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	floor, err := measure.NewFloor(b.config, floorObjects(), floorCondition)
	if err != nil {
		return err
	}
	created, err := measure.Watch(ctx, b.client, floorLabel, floor.Client.Resource(measure.Namespaces).Watch)
	if err != nil {
		return err
	}
	go floor.Run(ctx, created, fail)
	b.progress.part("population by the bare client", b.options.floor)
	var done population
	work, err := measure.During(ctx, b.client, func() (err error) {
		arriving := &arrivals{bench: b, rate: b.options.rate, condition: floorCondition}
		done, err = arriving.create(ctx, listed(b.options.floor, floorNamespace))
		return err
	})
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	b.bare.population = done
	b.bare.cpu = work.CPU / time.Duration(b.options.floor)
	return b.measureFloorChanges(ctx, floor)
}

func floorName(index int) string { return fmt.Sprintf("floor-%05d", index) }

func floorNamespace(index int) *corev1.Namespace {
	ns := newNamespace(index)
	ns.Name = floorName(index)
	ns.Labels[floorLabel] = ""
	return ns
}

// measureFloorChanges makes the same writes as a rollout, as the move of a policy space, and the same deletions.
func (b *bench) measureFloorChanges(ctx context.Context, floor *measure.Floor) (err error) {
	changed := baselineObjects()[0]
	changed.SetLabels(map[string]string{stageLabel: "b"})
	if b.bare.rollout, err = b.floorEach(ctx, "rollout by the bare client", func(namespace string) error {
		return floorApply(ctx, floor, namespace, changed)
	}); err != nil {
		return err
	}
	entered := viewers(south+".viewers", south+"-viewers")
	label := fmt.Appendf(nil, `{"metadata": {"labels": {"%s.example.com/depth": "5", "%s.example.com/depth": null}}}`,
		south, north)
	if b.bare.move, err = b.floorEach(ctx, "move by the bare client", func(namespace string) error {
		_, labeled := floor.Client.Resource(measure.Namespaces).
			Patch(ctx, namespace, types.MergePatchType, label, metav1.PatchOptions{})
		return errors.Join(labeled, floorApply(ctx, floor, namespace, entered),
			floor.Client.Resource(measure.ResourceOf(entered)).Namespace(namespace).
				Delete(ctx, north+".viewers", metav1.DeleteOptions{}))
	}); err != nil {
		return err
	}
	var names []string
	for i := range b.options.floor {
		names = append(names, floorName(i))
	}
	took, err := b.deleteNamespaces(ctx, names)
	b.bare.deletion = took / time.Duration(len(names))
	return err
}

// floorEach does something in each of the floor's namespaces, and returns the time for one.
func (b *bench) floorEach(ctx context.Context, what string, do func(namespace string) error) (time.Duration, error) {
	b.progress.part(what, b.options.floor)
	start := time.Now()
	err := b.parallel(ctx, b.options.floor, func(i int) error { return do(floorName(i)) })
	return time.Since(start) / time.Duration(b.options.floor), err
}

func floorApply(ctx context.Context, floor *measure.Floor, namespace string, object *unstructured.Unstructured) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	_, err = floor.Client.Resource(measure.ResourceOf(object)).Namespace(namespace).
		Patch(ctx, object.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "floor"})
	return err
}

// parallel calls do with each index, and counts the progress. It returns the first error and how many there were.
func (b *bench) parallel(ctx context.Context, count int, do func(index int) error) error {
	errs := make([]error, count)
	workqueue.ParallelizeUntil(ctx, writers, count, func(i int) {
		errs[i] = do(i)
		b.progress.done.Add(1)
	})
	var first error
	failed := 0
	for _, err := range errs {
		if err != nil {
			if failed++; first == nil {
				first = err
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d failed; the first: %w", failed, count, first)
	}
	return context.Cause(ctx)
}

// deleteNamespaces deletes namespaces at once and returns the time until the last is gone.
func (b *bench) deleteNamespaces(ctx context.Context, names []string) (time.Duration, error) {
	b.progress.part("requests to delete namespaces", len(names))
	start := time.Now()
	if err := b.parallel(ctx, len(names), func(i int) error {
		return b.client.CoreV1().Namespaces().Delete(ctx, names[i], metav1.DeleteOptions{})
	}); err != nil {
		return 0, err
	}
	b.progress.part("deletion of namespaces", len(names))
	for {
		listed := time.Now()
		list, err := b.metadata.Resource(measure.Namespaces).List(ctx, metav1.ListOptions{})
		if err != nil {
			return 0, err
		}
		left := 0
		for _, ns := range list.Items {
			if ns.DeletionTimestamp != nil {
				left++
			}
		}
		b.progress.done.Store(int64(len(names) - left))
		if left == 0 {
			return time.Since(start), nil
		}
		if err := measure.Pause(ctx, max(pollInterval, 3*time.Since(listed))); err != nil {
			return 0, err
		}
	}
}
