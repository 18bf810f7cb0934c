package survey

import (
	"context"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// Sides are the two sides of a change: the object in the cluster, and the object that the API server would store. A
// side without an object is nil.
type Sides struct {
	Live, Stored *unstructured.Unstructured
	// Refusal is why the API server rejected the dry run. Stored is an estimate then. It is nil if the API server
	// accepted it.
	Refusal error
	// Replaced reports whether the object can't be changed in place, so that the operator deletes it and creates
	// another.
	Replaced bool
}

// DryRun reads the object of a change in a namespace and asks the API server, by a dry run, what it would store.
func DryRun(ctx context.Context, c *cluster.Cluster, namespace string, change populate.Change) (Sides, error) {
	objects, err := c.Objects(change.Kind, namespace)
	if meta.IsNoMatchError(err) && change.Declared != nil {
		return Sides{Stored: change.Declared.Unstructured, Refusal: err}, nil
	}
	if err != nil {
		return Sides{}, err
	}
	live, err := objects.Get(ctx, change.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		live, err = nil, nil
	}
	if err != nil || change.Declared == nil {
		return Sides{Live: live}, err
	}
	return dryRunApply(ctx, objects, change, live)
}

// dryRunApply applies the declaration as the operator would. If the API server rejects that, it finds out what the
// operator would do then.
func dryRunApply(
	ctx context.Context, objects dynamic.ResourceInterface, change populate.Change, live *unstructured.Unstructured,
) (Sides, error) {
	var existing metav1.Object // not a nil pointer in an interface
	if live != nil {
		existing = live
	}
	body, err := populate.Body(change.Declared, existing)
	if err != nil {
		return Sides{}, err
	}
	force := true
	stored, refusal := objects.Patch(ctx, change.Name, types.ApplyPatchType, body, metav1.PatchOptions{
		FieldManager: v1alpha1.FieldManager, Force: &force, DryRun: []string{metav1.DryRunAll},
	})
	if refusal == nil {
		return Sides{Live: live, Stored: stored}, nil
	}
	if apierrors.IsInvalid(refusal) && live != nil && replaceable(change, live) {
		if stored, err := dryRunCreate(ctx, objects, change.Name, body); err == nil {
			return Sides{Live: live, Stored: stored, Replaced: true}, nil
		}
	}
	stored, err = estimate(live, body)
	return Sides{Live: live, Stored: stored, Refusal: refusal}, err
}

// replaceable reports whether the operator deletes an object that it can't change in place.
func replaceable(change populate.Change, live *unstructured.Unstructured) bool {
	return (populate.Ours(live) || change.Occupied) &&
		(change.Kind.Group == rbacv1.GroupName ||
			change.Declared.GetAnnotations()[v1alpha1.ReplaceAnnotation] == "true")
}

// dryRunCreate asks what would be stored if the object did not exist. It creates one with another name, since the name
// is taken.
func dryRunCreate(
	ctx context.Context, objects dynamic.ResourceInterface, name string, body []byte,
) (*unstructured.Unstructured, error) {
	trial := &unstructured.Unstructured{}
	if err := trial.UnmarshalJSON(body); err != nil {
		return nil, err
	}
	trial.SetName("")
	trial.SetGenerateName("nstpl-trial-")
	stored, err := objects.Create(ctx, trial, metav1.CreateOptions{
		FieldManager: v1alpha1.FieldManager, DryRun: []string{metav1.DryRunAll},
	})
	if err != nil {
		return nil, err
	}
	stored.SetName(name)
	stored.SetGenerateName("")
	return stored, nil
}

// estimate merges the declared fields into the live object. It does not know the schema, so it replaces lists as a
// whole.
func estimate(live *unstructured.Unstructured, body []byte) (*unstructured.Unstructured, error) {
	base := []byte("{}")
	if live != nil {
		var err error
		if base, err = live.MarshalJSON(); err != nil {
			return nil, err
		}
	}
	data, err := jsonpatch.MergePatch(base, body)
	if err != nil {
		return nil, err
	}
	merged := &unstructured.Unstructured{}
	return merged, merged.UnmarshalJSON(data)
}
