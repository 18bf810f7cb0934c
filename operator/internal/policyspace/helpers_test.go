package policyspace

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
)

// resourceList returns the resources with these names and quantities.
func resourceList(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// countedSpace returns the policy space s, which enforces all its limits.
func countedSpace(hard, used corev1.ResourceList, reservations ...v1alpha1.QuotaReservation) *v1alpha1.PolicySpace {
	return &v1alpha1.PolicySpace{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec:       v1alpha1.PolicySpaceSpec{Quota: &v1alpha1.PolicySpaceQuota{Hard: hard}},
		Status:     v1alpha1.PolicySpaceStatus{Hard: hard, Used: used, Reservations: reservations},
	}
}

func reserved(namespace, pods, since string) v1alpha1.QuotaReservation {
	return v1alpha1.QuotaReservation{Namespace: namespace, Used: resourceList("pods", pods), Since: since}
}

// podsChange returns a change of the number of pods in a namespace.
func podsChange(namespace, before, after, since string) quota.Change {
	return quota.Change{
		Namespace: namespace, Old: resourceList("pods", before), New: resourceList("pods", after), Since: since,
	}
}

// countingQuota returns an intact usage quota whose status enforces its limits.
func countingQuota(recounted time.Time, limits, used corev1.ResourceList) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{managedByLabel: managedBy},
			Annotations: map[string]string{v1alpha1.RecountAnnotation: recounted.Format(time.RFC3339Nano)},
		},
		Spec:   corev1.ResourceQuotaSpec{Hard: limits},
		Status: corev1.ResourceQuotaStatus{Hard: limits.DeepCopy(), Used: used},
	}
}

// errorStrings returns the messages of errors, which are empty for nil.
func errorStrings(errs []error) []string {
	messages := make([]string, 0, len(errs))
	for _, err := range errs {
		if err == nil {
			messages = append(messages, "")
		} else {
			messages = append(messages, err.Error())
		}
	}
	return messages
}

// noObjects is a client of an API server without objects.
type noObjects struct{ client.Client }

func (noObjects) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}
