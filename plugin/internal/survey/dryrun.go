package survey

import (
	"context"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// Sides holds the two sides of a change: the object in the cluster, and the object that the API server would store. A
// side without an object is nil.
type Sides struct {
	Live, Stored *unstructured.Unstructured
	// Refusal is the error of the API server if it rejected the dry run, or nil. If it is not nil, Stored is an
	// estimate.
	Refusal error
	// Replaced reports whether the object cannot be updated in place, so that the operator would delete and recreate
	// it.
	Replaced bool
}

// DryRun reads the object of a change in a namespace, and sends a dry run to get the object that the API server would
// store.
func DryRun(ctx context.Context, c *cluster.Cluster, namespace string, change populate.Change) (Sides, error) {
	if change.Metadata != nil {
		return metadataSides(change), nil
	}
	objects, err := c.Objects(ctx, change.Kind, namespace)
	if err == nil {
		var live *unstructured.Unstructured
		if live, err = readLive(ctx, objects, change.Name); err == nil {
			return DryRunOn(ctx, c, namespace, change, live)
		}
	}
	if meta.IsNoMatchError(err) && change.Declared != nil {
		return Sides{Stored: change.Declared.Unstructured, Refusal: err}, nil
	}
	return Sides{}, err
}

// DryRunOn is DryRun for an object that the caller has already read. Live is nil if the object does not exist.
func DryRunOn(
	ctx context.Context, c *cluster.Cluster, namespace string, change populate.Change, live *unstructured.Unstructured,
) (Sides, error) {
	if change.Metadata != nil {
		return metadataSides(change), nil
	}
	if change.Declared == nil {
		return Sides{Live: live}, nil
	}
	objects, err := c.Objects(ctx, change.Kind, namespace)
	if meta.IsNoMatchError(err) {
		return Sides{Live: live, Stored: change.Declared.Unstructured, Refusal: err}, nil
	}
	if err != nil {
		return Sides{}, err
	}
	return dryRunApply(ctx, objects, change, live)
}

// metadataSides returns the labels and annotations of a namespace before and after a change. That needs no dry run.
func metadataSides(change populate.Change) Sides {
	labels, annotations := change.Metadata.After()
	stored := namespaceWith(change.Name, labels, annotations)
	if change.Observed == nil {
		return Sides{Stored: stored}
	}
	live := namespaceWith(change.Name, change.Observed.Labels, change.Observed.Annotations)
	live.SetManagedFields(change.Observed.ManagedFields)
	return Sides{Live: live, Stored: stored}
}

func namespaceWith(name string, labels, annotations map[string]string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(render.NamespaceKind)
	object.SetName(name)
	object.SetLabels(labels)
	object.SetAnnotations(annotations)
	return object
}

// readLive returns an object, or nil if it does not exist.
func readLive(
	ctx context.Context, objects dynamic.ResourceInterface, name string,
) (*unstructured.Unstructured, error) {
	live, err := objects.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, err
}

// dryRunApply applies the declaration with a dry run, as the operator would. If the API server rejects it, dryRunApply
// returns what the operator would do in that case.
func dryRunApply(
	ctx context.Context, objects dynamic.ResourceInterface, change populate.Change, live *unstructured.Unstructured,
) (Sides, error) {
	var existing metav1.Object // not a nil pointer in an interface
	if live != nil {
		existing = live
	}
	body, err := change.Body(existing)
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
	if apierrors.IsInvalid(refusal) && live != nil {
		stored, trial := dryRunCreate(ctx, objects, change.Name, body)
		if populate.MayBeMissing(change, trial) {
			if stored == nil {
				if stored, err = estimate(nil, body); err != nil {
					return Sides{}, err
				}
			}
			obstacle := populate.MayReplace(change, live)
			if obstacle == nil {
				return Sides{Live: live, Stored: stored, Replaced: true}, nil
			}
			refusal = populate.Refused(change, obstacle, refusal)
		}
	}
	stored, err = estimate(live, body)
	return Sides{Live: live, Stored: stored, Refusal: refusal}, err
}

// dryRunCreate returns what the API server would store if the object did not exist. The dry run uses another name,
// since an object with this name exists.
func dryRunCreate(
	ctx context.Context, objects dynamic.ResourceInterface, name string, body []byte,
) (*unstructured.Unstructured, error) {
	probe := &unstructured.Unstructured{}
	if err := probe.UnmarshalJSON(body); err != nil {
		return nil, err
	}
	probe.SetName("")
	probe.SetGenerateName("nstpl-trial-")
	stored, err := objects.Create(ctx, probe, metav1.CreateOptions{
		FieldManager: v1alpha1.FieldManager, DryRun: []string{metav1.DryRunAll},
	})
	if err != nil {
		return nil, err
	}
	stored.SetName(name)
	stored.SetGenerateName("")
	return stored, nil
}

// estimate merges the declared fields into the live object. It replaces whole lists, since it does not know the schema.
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
