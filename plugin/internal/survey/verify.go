package survey

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// Verifier reads the objects that are as declared by their metadata, and compares their contents.
type Verifier struct {
	Cluster *cluster.Cluster
	// Unverified is why some objects could not be compared. It grows as Namespaces is consumed.
	Unverified []error
}

// Namespaces returns the same namespaces. An object whose content differs from the declaration has drifted in them.
func (v *Verifier) Namespaces(ctx context.Context, all iter.Seq[Namespace]) iter.Seq[Namespace] {
	return func(yield func(Namespace) bool) {
		for ns := range all {
			v.verify(ctx, ns)
			if !yield(ns) {
				return
			}
		}
	}
}

func (v *Verifier) verify(ctx context.Context, ns Namespace) {
	type answer struct {
		same bool
		err  error
	}
	var unchanged []int
	for i, change := range ns.Changes {
		if change.Action == populate.Unchanged {
			unchanged = append(unchanged, i)
		}
	}
	answers := cluster.Each(unchanged, func(i int) answer {
		same, err := sameContent(ctx, v.Cluster, ns.Declared.Namespace.Name, ns.Changes[i])
		return answer{same, err}
	})
	for n, i := range unchanged {
		change := &ns.Changes[i]
		switch {
		case answers[n].err != nil:
			v.Unverified = append(v.Unverified, fmt.Errorf("whether the content of %s in namespace %s is as declared: %w",
				change.ID(), ns.Declared.Namespace.Name, answers[n].err))
		case !answers[n].same:
			change.Action, change.Drifted = populate.Configure, true
			change.Reason = "its content differs from the declaration, which its managedFields do not show"
			if change.Declared.Template.Spec.DriftPolicy == v1alpha1.DriftReport {
				change.Action = populate.LeaveAlone
				change.Reason += "; driftPolicy is Report"
			}
		}
	}
}

// sameContent reports whether applying an object would leave it as it is. The answer of a dry run counts only if the object did not
// change since it was read.
func sameContent(ctx context.Context, c *cluster.Cluster, namespace string, change populate.Change) (bool, error) {
	const attempts = 5
	for range attempts {
		sides, err := See(ctx, c, namespace, change)
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

// sameByReading compares without a dry run. A value that the API server may write in another way is not comparable.
func sameByReading(declared map[string]any, sides Sides) (bool, error) {
	if contains(sides.Live.Object, declared) {
		return true, nil
	}
	if apierrors.IsInvalid(sides.Refusal) {
		return false, nil // a field differs that cannot be changed
	}
	return false, sides.Refusal
}

// content returns what a declaration can be about.
func content(object *unstructured.Unstructured) map[string]any {
	object = object.DeepCopy()
	delete(object.Object, "status")
	for _, field := range []string{"managedFields", "generation", "resourceVersion"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	return object.Object
}

// contains reports whether a stored value has everything that is declared, and lists have no more items.
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
