package namespace

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// annotate sets an annotation of a namespace, or removes it if the value is empty, as --dry-run says. It returns the
// resulting namespace.
func annotate(
	ctx context.Context, c *cluster.Cluster, written *cli.Written, ns *corev1.Namespace, key, value string,
) (*corev1.Namespace, error) {
	if written.IsLocal() {
		if metav1.SetMetaDataAnnotation(&ns.ObjectMeta, key, value); value == "" {
			delete(ns.Annotations, key)
		}
		return ns, nil
	}
	annotations := map[string]any{key: nil}
	if value != "" {
		annotations[key] = value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": ns.UID, "annotations": annotations}})
	if err != nil {
		return nil, err
	}
	options := metav1.PatchOptions{FieldManager: cli.FieldManager, DryRun: written.DryRun()}
	return c.Namespaces.Patch(ctx, ns.Name, types.MergePatchType, patch, options)
}
