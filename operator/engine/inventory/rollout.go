package inventory

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// Rollout is the rollout of the newest revision of a template. Everyone who may change the template may pause it, or
// give it waves.
type Rollout struct {
	Template string
	State    v1alpha1.RolloutState
}

// Delayed returns the state of the newest rollout of a template if it is paused, stopped or waiting. For other objects,
// it returns "".
func Delayed(object metav1.Object) v1alpha1.RolloutState {
	template, ok := object.(*unstructured.Unstructured)
	if !ok || render.IDOf(template).GroupKind != templateKind {
		return ""
	}
	revisions, _, _ := unstructured.NestedFieldNoCopy(template.Object, "status", "revisions")
	list, _ := revisions.([]any)
	if len(list) == 0 {
		return ""
	}
	newest, _ := list[0].(map[string]any)
	text, _ := newest["state"].(string)
	state := v1alpha1.RolloutState(text)
	if !slices.Contains(delays, state) {
		return ""
	}
	return state
}

// delays are the states of rollouts that do not continue until a person acts or a time has passed.
var delays = []v1alpha1.RolloutState{v1alpha1.RolloutPaused, v1alpha1.RolloutStopped, v1alpha1.RolloutWaiting}
