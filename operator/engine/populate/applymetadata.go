package populate

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	patches "nstpl.dev/nstpl/operator/internal/patch"
)

// ApplyMetadata writes the labels and annotations of the plan's namespace by one patch, which also writes their record.
// It decides by the record alone, not by managedFields: every user who may change the namespace can write these, and
// with server-side apply any such user could keep a value by applying it, too. It returns nil if the plan needs no such
// write. The caller carries out the rest of the plan with Apply, and opens the namespace after that.
func (a *Applier) ApplyMetadata(ctx context.Context, plan Plan) *Outcome {
	i := slices.IndexFunc(plan.Changes, func(c Change) bool {
		return c.Metadata != nil && (c.Action == Create || c.Action == Configure)
	})
	if i < 0 {
		return nil
	}
	outcomes := a.each(ctx, plan.Changes[i:i+1], func(change Change) Outcome {
		outcome := Outcome{Change: change}
		var err error
		if outcome.Written, err = a.applyMetadata(ctx, change); err != nil {
			outcome.Failure = NewFailure(err, change.Name)
		}
		return outcome
	})
	return &outcomes[0]
}

// applyMetadata writes the labels and annotations of a namespace as it was observed. If it was changed since, those of
// an open namespace are compared again, and written unless a leader has changed what the comparison depends on. Users
// may go on to change the namespace all the time. One that is initializing is written as it is now.
func (a *Applier) applyMetadata(ctx context.Context, change Change) (*metav1.PartialObjectMetadata, error) {
	namespaces := a.client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces"))
	current := change.Observed
	isSame := func(observed, found *metav1.PartialObjectMetadata) bool {
		current = found
		return samePlanOf(observed, found)
	}
	return asObserved(ctx, namespaces, current, isSame,
		func(ctx context.Context, version string) (*metav1.PartialObjectMetadata, error) {
			kind, body := types.MergePatchType, any(change.Metadata.mergePatch(current.ResourceVersion))
			if version == "" && !isInitializing(current) {
				kind, body = types.JSONPatchType, change.Metadata.in(current).testedPatch()
			}
			data, err := json.Marshal(body)
			if err != nil {
				return nil, err
			}
			written, err := namespaces.Patch(ctx, change.Name, kind, data,
				metav1.PatchOptions{FieldManager: v1alpha1.NamespaceFieldManager})
			if patches.IsStale(err) {
				err = apierrors.NewConflict(corev1.Resource("namespaces"), change.Name, err)
			}
			return written, err
		})
}

func isInitializing(ns *metav1.PartialObjectMetadata) bool {
	_, is := ns.Labels[v1alpha1.InitializingLabel]
	return is
}

// samePlanOf reports whether the labels and annotations of a namespace may be written in another state of it: no leader
// has changed a record since. Before a namespace opens, its other labels and annotations may decide what it has then,
// but not the operator's own annotations for SecurityContextConstraints and labels of policy spaces.
func samePlanOf(a, b *metav1.PartialObjectMetadata) bool {
	deciding := func(values map[string]string) map[string]string {
		values = maps.Clone(values)
		maps.DeleteFunc(values, func(key, _ string) bool {
			return strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/scc.") ||
				strings.HasSuffix(key, v1alpha1.DepthLabelSuffix)
		})
		return values
	}
	return a.UID == b.UID && b.DeletionTimestamp == nil &&
		a.Annotations[v1alpha1.ExistingAnnotation] == b.Annotations[v1alpha1.ExistingAnnotation] &&
		a.Annotations[recordKey.Key] == b.Annotations[recordKey.Key] &&
		(!isInitializing(a) && !isInitializing(b) || maps.Equal(deciding(a.Labels), deciding(b.Labels)) &&
			maps.Equal(deciding(a.Annotations), deciding(b.Annotations)))
}
