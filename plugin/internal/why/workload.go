package why

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// addDeniedPods explains why the API server denies the pods of a Deployment or a ReplicaSet: the controller copies the
// message to the condition ReplicaFailure.
func (e *explainer) addDeniedPods(ctx context.Context, a *answer, live *unstructured.Unstructured) {
	conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	for _, item := range conditions {
		condition, _ := item.(map[string]any)
		message, _ := condition["message"].(string)
		if condition["type"] != "ReplicaFailure" || condition["status"] != "True" || message == "" {
			continue
		}
		a.Summary += ". Its pods are denied"
		a.replace(labelRemedy, "")
		a.includeDenial(e.denial(ctx, a, message))
	}
}
