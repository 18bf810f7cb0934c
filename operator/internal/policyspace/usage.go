// Package counters reads the ResourceQuota in which the API server counts what a namespace uses of what policyspaces
// limit.
package policyspace

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
)

// ManagedByLabel has the value ManagedBy on the operator's own ResourceQuotas.
const (
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedBy      = "nstpl"
)

// Uncountable is after how long a resource that MayBeUncountable and is not counted is taken for one that Kubernetes
// never counts.
const Uncountable = 5 * time.Second

// MayBeUncountable reports whether Kubernetes may never count a resource: count/ of a resource that no API has, or an
// extended resource without the prefix requests. It counts all others, however late.
func MayBeUncountable(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
}

// ToldAt is when the API server was told last what to count; long ago if that is not known.
func ToldAt(counter *corev1.ResourceQuota) time.Time {
	at, err := time.Parse(time.RFC3339Nano, counter.Annotations[v1alpha1.RecountAnnotation])
	if err != nil || time.Until(at) > 0 {
		return counter.CreationTimestamp.Time
	}
	return at
}

// Now returns the value of the annotation that says when the API server was told.
func RecountNow() string { return time.Now().UTC().Format(time.RFC3339Nano) }

// Renew writes the ResourceQuota of a namespace anew and returns it: a write that goes on from an earlier state of it
// fails. It decides nothing else, so it does no harm if it comes late.
func RenewCounter(ctx context.Context, writer client.Writer, namespace string) (*corev1.ResourceQuota, error) {
	counter := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.QuotaName}}
	body := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, v1alpha1.RecountAnnotation, RecountNow())
	return counter, writer.Patch(ctx, counter, client.RawPatch(types.MergePatchType, []byte(body)))
}

// Intact reports whether a ResourceQuota is as the operator writes it. The resources that it counts may be any: they
// change with the policyspaces. What another one has counted is not what the namespace uses.
func IsIntact(counter *corev1.ResourceQuota) bool {
	_, told := counter.Annotations[v1alpha1.RecountAnnotation]
	return told && !MustBeReplaced(counter) && counter.Labels[ManagedByLabel] == ManagedBy &&
		limitsNothing(counter.Spec.Hard) && limitsNothing(counter.Status.Hard)
}

// MustBeReplaced reports whether no patch can make a ResourceQuota what the operator writes. Scopes are immutable, and
// what was counted within them is not what the namespace uses; what a template declares is populated again, and pruned.
func MustBeReplaced(counter *corev1.ResourceQuota) bool {
	_, populated := counter.Labels[v1alpha1.TemplateNameLabel]
	return populated || len(counter.Spec.Scopes) > 0 || counter.Spec.ScopeSelector != nil
}

func limitsNothing(hard corev1.ResourceList) bool {
	for name, limit := range hard {
		if name == v1alpha1.RecountResource && limit.IsZero() {
			continue
		}
		if limit.Cmp(quota.Unlimited) != 0 {
			return false
		}
	}
	return true
}

// Used returns what is used: nothing of what the API server doesn't count, and nothing at all if somebody changed what
// it counts.
func CountedUsage(counter *corev1.ResourceQuota) corev1.ResourceList {
	used := corev1.ResourceList{}
	if !IsIntact(counter) {
		return used
	}
	if time.Since(ToldAt(counter)) >= Uncountable {
		for name := range counter.Spec.Hard {
			if MayBeUncountable(name) {
				used[name] = resource.Quantity{}
			}
		}
	}
	maps.Copy(used, counter.Status.Used)
	maps.DeleteFunc(used, func(name corev1.ResourceName, _ resource.Quantity) bool {
		_, charged := counter.Status.Hard[name] // of other resources the API server writes down nothing more
		return !charged
	})
	return used
}

// newSpace is how old a policyspace is at most while it is taken for one that takes the place of another, though it has
// namespaces.
const newSpace = 2 * time.Minute

// MayReplace reports whether a policyspace may take the place of another one when a namespace moves there: it has no
// namespaces, or is new.
func MayReplace(space *v1alpha1.PolicySpace, namespaces int) bool {
	return namespaces == 0 || time.Since(space.CreationTimestamp.Time) < newSpace
}
