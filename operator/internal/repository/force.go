package repository

import (
	"context"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inventory"
)

// writes is how many objects are written at the same time.
const writes = 16

// outcome is the result of carrying out a plan.
type outcome struct {
	inventory.Plan
	// failures are the objects that could not be written.
	failures []failure
	// applied and deleted are the numbers of objects that were written.
	applied, deleted int
}

// failure is an object that could not be written.
type failure struct {
	inventory.ID
	err error
}

// isComplete reports whether all objects are as the tree declares them, but for namespaces that wait for a
// confirmation.
func (o outcome) isComplete() bool { return len(o.failures) == 0 && len(o.Conflicts) == 0 }

// force makes the objects in the cluster those that a tree declares.
func (r *Repositories) force(
	ctx context.Context, repository *v1alpha1.PolicyRepository, tree *vetted,
) (outcome, error) {
	rec, err := readRecord(ctx, r.Live, repository)
	if err != nil {
		return outcome{}, err
	}
	if err := r.resolvePending(ctx, rec, tree.root); err != nil {
		return outcome{}, err
	}
	live, err := r.Cluster.live(ctx)
	if err != nil {
		return outcome{}, err
	}
	o := outcome{Plan: inventory.NewPlan(tree.declared, inventory.State{Live: live, Created: rec.created},
		inventory.Options{
			Tree: tree.root, Adopt: repository.Spec.ExistingNamespaces == v1alpha1.ExistingAdopt,
			Limit:     repository.Spec.DeletionLimit,
			Confirmed: repository.Annotations[v1alpha1.ConfirmedCommitAnnotation] == tree.commit,
		})}
	rec.forgetGone(live)
	for _, change := range o.Applies {
		if change.Live == nil {
			rec.pending[inventory.IDOf(change.Declared)] = true
		}
	}
	if err := rec.write(ctx, r.Client, repository); err != nil {
		return outcome{}, err
	}
	created := r.applyAll(ctx, &o)
	for _, object := range created {
		rec.created[object.GetUID()] = true
		delete(rec.pending, inventory.IDOf(object))
	}
	if err := rec.write(ctx, r.Client, repository); err != nil {
		return o, err
	}
	if o.isComplete() {
		r.deleteAll(ctx, &o)
	}
	return o, nil
}

// resolvePending records the objects that an earlier pass may have created, if it has.
func (r *Repositories) resolvePending(ctx context.Context, rec *record, tree string) error {
	for id := range rec.pending {
		uid, err := r.Cluster.createdBySync(ctx, id, tree)
		if err != nil {
			return err
		}
		if uid != "" {
			rec.created[uid] = true
		}
		delete(rec.pending, id)
	}
	return nil
}

// forgetGone removes the UIDs of objects that do not exist any more.
func (r *record) forgetGone(live map[inventory.ID]*unstructured.Unstructured) {
	known := r.created
	r.created = make(map[types.UID]bool, len(known))
	for _, object := range live {
		if known[object.GetUID()] {
			r.created[object.GetUID()] = true
		}
	}
}

// applyAll applies the objects of a plan, phase by phase. After a phase with a failure, it stops: the objects of later
// phases may depend on those that failed. It returns the objects that it created.
func (r *Repositories) applyAll(ctx context.Context, o *outcome) []*unstructured.Unstructured {
	var created []*unstructured.Unstructured
	for _, phase := range inventory.Phases {
		var changes []inventory.Apply
		for _, change := range o.Applies {
			if inventory.PhaseOf(inventory.IDOf(change.Declared).GroupKind) == phase {
				changes = append(changes, change)
			}
		}
		var mu sync.Mutex
		each(changes, func(change inventory.Apply) {
			object, err := r.Cluster.apply(ctx, change)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				o.failures = append(o.failures, failure{inventory.IDOf(change.Declared), err})
				return
			}
			o.applied++
			if change.Live == nil {
				created = append(created, object)
			}
		})
		if len(o.failures) > 0 {
			break
		}
	}
	slices.SortFunc(o.failures, byID)
	return created
}

func byID(a, b failure) int { return strings.Compare(a.String(), b.String()) }

// deleteAll deletes the objects of a plan that the tree no longer declares, phase by phase.
func (r *Repositories) deleteAll(ctx context.Context, o *outcome) {
	var mu sync.Mutex
	try := func(object *unstructured.Unstructured, do func(context.Context, *unstructured.Unstructured) error) {
		err := do(ctx, object)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			o.failures = append(o.failures, failure{inventory.IDOf(object), err})
			return
		}
		o.deleted++
	}
	each(o.Releases, func(ns *unstructured.Unstructured) { try(ns, r.Cluster.release) })
	for _, phase := range slices.Backward(inventory.Phases) {
		if len(o.failures) > 0 {
			break
		}
		var objects []*unstructured.Unstructured
		for _, object := range o.Deletes {
			if inventory.PhaseOf(inventory.IDOf(object).GroupKind) == phase {
				objects = append(objects, object)
			}
		}
		each(objects, func(object *unstructured.Unstructured) { try(object, r.Cluster.delete) })
	}
	slices.SortFunc(o.failures, byID)
}

// each calls do for all items, several at a time, and returns when all calls have returned.
func each[T any](items []T, do func(T)) {
	var running sync.WaitGroup
	slots := make(chan struct{}, writes)
	for _, item := range items {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			do(item)
		})
	}
	running.Wait()
}
