package survey

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// Verifier compares the contents of the objects that are unchanged by their metadata with the declarations.
type Verifier struct {
	Cluster *cluster.Cluster
	// Unverified holds an error for each object that could not be compared. It is complete once Namespaces was read to
	// its end.
	Unverified []error
}

// Namespaces returns the namespaces with the objects marked as drifted whose contents differ from the declaration.
func (v *Verifier) Namespaces(ctx context.Context, all iter.Seq[Namespace]) iter.Seq[Namespace] {
	return func(yield func(Namespace) bool) {
		for ns := range all {
			if !yield(v.verify(ctx, ns)) {
				return
			}
		}
	}
}

// verify returns a namespace with changed copies of its changes.
func (v *Verifier) verify(ctx context.Context, ns Namespace) Namespace {
	ns.Changes = slices.Clone(ns.Changes)
	type result struct {
		same bool
		err  error
	}
	var unchanged []int
	for i, change := range ns.Changes {
		if change.Action == populate.Unchanged {
			unchanged = append(unchanged, i)
		}
	}
	results := cluster.Each(unchanged, func(i int) result {
		same, err := sameContent(ctx, v.Cluster, ns.Declared.Namespace.Name, ns.Changes[i])
		return result{same, err}
	})
	for n, i := range unchanged {
		change := &ns.Changes[i]
		switch {
		case results[n].err != nil:
			v.Unverified = append(v.Unverified,
				fmt.Errorf("whether the content of %s in namespace %s is as declared: %w",
					change.ID(), ns.Declared.Namespace.Name, results[n].err))
		case !results[n].same:
			change.Action, change.Drifted = populate.Configure, true
			change.Reason = "its content differs from the declaration, which its managedFields do not show"
			if change.Declared.Template.Spec.DriftPolicy == v1alpha1.DriftReport {
				change.Action = populate.LeaveAlone
				change.Reason += "; driftPolicy is Report"
			}
		}
	}
	return ns
}

// sameContent reports whether applying the declaration would leave an object as it is. A dry run counts only if the
// object did not change between reading it and the dry run.
func sameContent(ctx context.Context, c *cluster.Cluster, namespace string, change populate.Change) (bool, error) {
	const attempts = 5
	for range attempts {
		sides, err := DryRun(ctx, c, namespace, change)
		switch {
		case err != nil:
			return false, err
		case sides.Live == nil || sides.Replaced:
			return false, nil
		case sides.Refusal != nil:
			return sameByReading(change.Declared.Object, sides)
		case sides.Live.GetResourceVersion() == sides.Stored.GetResourceVersion():
			return reflect.DeepEqual(content(sides.Live), content(sides.Stored)), nil
		}
	}
	return false, errors.New("the object changes all the time")
}

// sameByReading compares without a dry run. A difference may be another spelling of the same value, which only the API
// server knows: then the refusal is returned.
func sameByReading(declared map[string]any, sides Sides) (bool, error) {
	if contains(sides.Live.Object, declared) {
		return true, nil
	}
	if apierrors.IsInvalid(sides.Refusal) {
		return false, nil // a field differs that can't be changed
	}
	return false, sides.Refusal
}

// content returns the fields of an object that a declaration can set.
func content(object *unstructured.Unstructured) map[string]any {
	object = object.DeepCopy()
	delete(object.Object, "status")
	for _, field := range []string{"managedFields", "generation", "resourceVersion"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	return object.Object
}

// contains reports whether a stored value has every declared field, and its lists have as many items as the declared
// ones.
func contains(stored, declared any) bool {
	switch declared := declared.(type) {
	case map[string]any:
		fields, isMap := stored.(map[string]any)
		for key, value := range declared {
			if !contains(fields[key], value) {
				return false
			}
		}
		return isMap || len(declared) == 0 && stored == nil
	case []any:
		items, _ := stored.([]any)
		if len(items) != len(declared) {
			return false
		}
		for i, value := range declared {
			if !contains(items[i], value) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(stored, declared)
}
