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
	"nstpl.dev/nstpl/operator/engine/render"
)

// ApplyMetadata writes the labels and annotations of the plan's namespace by one merge patch, which also writes their
// record. It decides by the record alone, and not by managedFields: every user who may change the namespace can write
// these, and with server-side apply any such user could keep a value by applying it, too. It returns nil if the plan
// needs no such write. The caller carries out the rest of the plan with Apply, and opens the namespace after that.
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
			outcome.Failure = failure(err, change.Name)
		}
		return outcome
	})
	return &outcomes[0]
}

// applyMetadata writes the labels and annotations of a namespace as it was observed. Clients that change the namespace
// otherwise, in a way that does not change the plan, do not keep it from that.
func (a *Applier) applyMetadata(ctx context.Context, change Change) (*metav1.PartialObjectMetadata, error) {
	namespaces := a.client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces"))
	patch := change.Metadata.patch()
	request := func(version string) (*metav1.PartialObjectMetadata, error) {
		metadata := map[string]any{
			"uid":         change.Observed.UID,
			render.Labels: patch[render.Labels], render.Annotations: patch[render.Annotations],
		}
		if version != "" {
			metadata["resourceVersion"] = version
		}
		body, err := json.Marshal(map[string]any{"metadata": metadata})
		if err != nil {
			return nil, err
		}
		return namespaces.Patch(ctx, change.Name, types.MergePatchType, body,
			metav1.PatchOptions{FieldManager: v1alpha1.NamespaceFieldManager})
	}
	written, err := request(change.Observed.ResourceVersion)
	if !apierrors.IsConflict(err) {
		return written, err
	}
	current, lookupErr := find(ctx, namespaces, change.Name)
	switch {
	case lookupErr != nil || current == nil || !samePlanOf(patch, change.Observed, current):
		return nil, err
	case isInitializing(current):
		return request(current.ResourceVersion)
	}
	return request("")
}

func isInitializing(ns *metav1.PartialObjectMetadata) bool {
	_, is := ns.Labels[v1alpha1.InitializingLabel]
	return is
}

// samePlanOf reports whether the labels and annotations of a namespace are planned alike in two states of it. Of an
// open namespace only those matter that the patch writes, and the record of its objects: its users may change others
// all the time, which the next pass is about. Before a namespace opens, others may decide what it has then, but not the
// operator's own annotations for SecurityContextConstraints and labels of policy spaces.
func samePlanOf(patch map[string]map[string]any, a, b *metav1.PartialObjectMetadata) bool {
	relevant := func(field string, values map[string]string) map[string]string {
		values = maps.Clone(values)
		maps.DeleteFunc(values, func(key, _ string) bool {
			if isInitializing(a) {
				return strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/scc.") ||
					strings.HasSuffix(key, v1alpha1.DepthLabelSuffix)
			}
			_, isWritten := patch[field][key]
			return !isWritten
		})
		return values
	}
	return a.UID == b.UID && b.DeletionTimestamp == nil &&
		maps.Equal(relevant(render.Labels, a.Labels), relevant(render.Labels, b.Labels)) &&
		maps.Equal(relevant(render.Annotations, a.Annotations), relevant(render.Annotations, b.Annotations)) &&
		a.Annotations[v1alpha1.ExistingAnnotation] == b.Annotations[v1alpha1.ExistingAnnotation]
}
