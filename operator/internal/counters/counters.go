// Package counters reads the ResourceQuota in which the API server counts what a namespace uses of what policyspaces limit.
package counters

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Uncountable is after how long what is not counted is taken for something that the API server doesn't count, such as what no API has.
// If it only is late, it lets nothing of that in by itself.
const Uncountable = 5 * time.Second

// ToldAt is when the API server was told last what to count; long ago if that is not known.
func ToldAt(counter *corev1.ResourceQuota) time.Time {
	at, err := time.Parse(time.RFC3339Nano, counter.Annotations[v1alpha1.RecountAnnotation])
	if err != nil {
		return counter.CreationTimestamp.Time
	}
	return at
}

// Used returns what is used: nothing of what the API server doesn't count.
func Used(counter *corev1.ResourceQuota) corev1.ResourceList {
	if time.Since(ToldAt(counter)) < Uncountable {
		return counter.Status.Used
	}
	used := corev1.ResourceList{}
	for name := range counter.Spec.Hard {
		used[name] = resource.Quantity{}
	}
	maps.Copy(used, counter.Status.Used)
	return used
}
