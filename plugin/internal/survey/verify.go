package survey

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/engine/inforce"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// Verifier compares the contents of objects with their declarations, if the objects are unchanged according to their
// metadata.
type Verifier struct {
	Cluster *cluster.Cluster
	// Unverified holds an error for each object that could not be compared. It is complete after the last namespace of
	// Namespaces.
	Unverified []error
}

// Namespaces returns the namespaces of all. Objects whose contents differ from the declaration are marked as drifted.
func (v *Verifier) Namespaces(ctx context.Context, all iter.Seq[Namespace]) iter.Seq[Namespace] {
	return func(yield func(Namespace) bool) {
		for ns := range all {
			if !yield(v.verify(ctx, ns)) {
				return
			}
		}
	}
}

// verify returns the namespace with updated copies of its changes.
func (v *Verifier) verify(ctx context.Context, ns Namespace) Namespace {
	ns.Changes = slices.Clone(ns.Changes)
	type result struct {
		same bool
		// altered is a declared field that is not stored as it is declared although the object would not change.
		altered inforce.Field
		err     error
	}
	var unchanged []int
	for i, change := range ns.Changes {
		if change.Action == populate.Unchanged && change.Metadata == nil {
			unchanged = append(unchanged, i)
		}
	}
	results := cluster.Each(unchanged, func(i int) result {
		same, altered, err := sameContent(ctx, v.Cluster, ns.Declared.Namespace.Name, ns.Changes[i])
		return result{same, altered, err}
	})
	for n, i := range unchanged {
		change := &ns.Changes[i]
		switch {
		case results[n].err != nil:
			v.Unverified = append(v.Unverified,
				fmt.Errorf("content of %s in namespace %s: %w",
					change.ID(), ns.Declared.Namespace.Name, results[n].err))
		case !results[n].same:
			*change = populate.Drift(*change,
				"its content differs from the declaration, but its managedFields show no change")
		case results[n].altered != nil:
			*change = populate.Drift(*change, results[n].altered.String()+
				" is not stored as it is declared: mutating admission changes it whenever the object is applied")
			change.Action = populate.LeaveAlone
		}
	}
	return ns
}

// sameContent reports whether applying the declaration would not change the object, and a declared field that is stored
// otherwise all the same. It repeats the dry run if the object changed between the read and the dry
// run.
func sameContent(
	ctx context.Context, c *cluster.Cluster, namespace string, change populate.Change,
) (same bool, altered inforce.Field, err error) {
	const attempts = 5
	for range attempts {
		sides, err := DryRun(ctx, c, namespace, change)
		switch {
		case err != nil:
			return false, nil, err
		case sides.Live == nil || sides.Replaced:
			return false, nil, nil
		case sides.Refusal != nil:
			same, err := sameWithoutDryRun(change.Declared, sides)
			return same, nil, err
		case sides.Live.GetResourceVersion() == sides.Stored.GetResourceVersion():
			return reflect.DeepEqual(settable(sides.Live), settable(sides.Stored)),
				populate.AlteredField(change.Declared, sides.Live), nil
		}
	}
	return false, nil, fmt.Errorf("the object changed during each of %d dry runs", attempts)
}

// sameWithoutDryRun compares a declaration with the live object after the API server rejected the dry run. If they
// differ, it returns the rejection: only the API server knows which values it would store.
func sameWithoutDryRun(declared *populate.Object, sides Sides) (bool, error) {
	if populate.AlteredField(declared, sides.Live) == nil {
		return true, nil
	}
	if apierrors.IsInvalid(sides.Refusal) {
		return false, nil // an immutable field differs
	}
	return false, sides.Refusal
}

// settable returns the fields of an object that an apply can change, also the records of the operator.
func settable(object *unstructured.Unstructured) map[string]any {
	return Without(WithoutStatus(object), ServerFields...).Object
}
