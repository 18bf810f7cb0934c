package policyspace

import (
	"context"
	"fmt"
	"maps"
	"slices"
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

// managedByLabel has the value managedBy on usage quotas.
const (
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "nstpl"
)

// uncountableTime is how long after a requested recount a resource without a count is treated as one that Kubernetes
// never counts, if it mayBeUncountable.
const uncountableTime = 5 * time.Second

// mayBeUncountable reports whether Kubernetes may never count a resource: an object count (count/…) of a resource that
// no API serves, or an extended resource without the prefix "requests.". Kubernetes counts all others, sooner or later.
func mayBeUncountable(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
}

// uncountedExtended returns a warning for each limit of a policy space on an extended resource that Kubernetes does not
// count, because its name has no prefix "requests.". The names of others end in a domain of Kubernetes.
func uncountedExtended(space *v1alpha1.PolicySpace) []string {
	var warnings []string
	for _, name := range slices.Sorted(maps.Keys(quota.Objects(space))) {
		domain, _, _ := strings.Cut(string(name), "/")
		if !mayBeUncountable(name) || domain == "count" || strings.HasSuffix(domain, ".k8s.io") {
			continue
		}
		warnings = append(warnings, fmt.Sprintf(
			"policyspace %s limits %s, which Kubernetes does not count: limit %s%s instead", space.Name, name,
			corev1.DefaultResourceRequestsPrefix, strings.TrimPrefix(string(name), "limits.")))
	}
	return warnings
}

func usageQuotaKey(namespace string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: v1alpha1.QuotaName}
}

// recountedAt returns when the operator wrote a usage quota last, so that the API server counts again. It is the
// creation time if the annotation is missing, malformed or in the future.
func recountedAt(usageQuota *corev1.ResourceQuota) time.Time {
	at, err := time.Parse(time.RFC3339Nano, usageQuota.Annotations[v1alpha1.RecountAnnotation])
	if err != nil || time.Until(at) > 0 {
		return usageQuota.CreationTimestamp.Time
	}
	return at
}

// recountTimestamp returns the value of the RecountAnnotation in a usage quota that is written now.
func recountTimestamp() string { return time.Now().UTC().Format(time.RFC3339Nano) }

// renewUsageQuota gives the usage quota of a namespace a new resourceVersion and returns it. The API server can no
// longer write usage that goes on from an earlier one. The write changes no limit, so it does no harm if it arrives
// late.
func renewUsageQuota(ctx context.Context, writer client.Writer, namespace string) (*corev1.ResourceQuota, error) {
	usageQuota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.QuotaName}}
	body := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, v1alpha1.RecountAnnotation, recountTimestamp())
	return usageQuota, writer.Patch(ctx, usageQuota, client.RawPatch(types.MergePatchType, []byte(body)))
}

// isIntact reports whether a usage quota is as the operator writes it. Any resources may be limited, because they
// change with the policy spaces. If it is not intact, its status may be the usage of something else than the namespace.
func isIntact(usageQuota *corev1.ResourceQuota) bool {
	_, isAnnotated := usageQuota.Annotations[v1alpha1.RecountAnnotation]
	return isAnnotated && !mustBeReplaced(usageQuota) && usageQuota.Labels[managedByLabel] == managedBy &&
		limitsNothing(usageQuota.Spec.Hard) && limitsNothing(usageQuota.Status.Hard)
}

// mustBeReplaced reports whether a usage quota cannot be repaired by a patch. Scopes are immutable, and the usage
// within them is not that of the namespace. A template that declares the ResourceQuota would overwrite or prune it.
func mustBeReplaced(usageQuota *corev1.ResourceQuota) bool {
	_, isDeclared := usageQuota.Labels[v1alpha1.TemplateNameLabel]
	return isDeclared || len(usageQuota.Spec.Scopes) > 0 || usageQuota.Spec.ScopeSelector != nil
}

// limitsNothing reports whether all limits are those of a usage quota.
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

// countedUsage returns the usage of a namespace from its usage quota. Resources that have not been counted are missing.
// Nothing is counted if the usage quota is not intact. The caller must not change the result.
func countedUsage(usageQuota *corev1.ResourceQuota) corev1.ResourceList {
	switch {
	case !isIntact(usageQuota):
		return corev1.ResourceList{}
	case containsAll(usageQuota.Status.Used, usageQuota.Spec.Hard) &&
		containsAll(usageQuota.Status.Hard, usageQuota.Status.Used):
		return usageQuota.Status.Used // without a copy, since this is so in nearly all namespaces
	}
	used := corev1.ResourceList{}
	if time.Since(recountedAt(usageQuota)) >= uncountableTime {
		for name := range usageQuota.Spec.Hard {
			if mayBeUncountable(name) {
				used[name] = resource.Quantity{}
			}
		}
	}
	maps.Copy(used, usageQuota.Status.Used)
	maps.DeleteFunc(used, func(name corev1.ResourceName, _ resource.Quantity) bool {
		_, isCharged := usageQuota.Status.Hard[name] // the API server no longer updates the usage of other resources
		return !isCharged
	})
	return used
}

// assumed returns the resources in the countedUsage of a namespace that Kubernetes does not count.
func assumed(used corev1.ResourceList, usageQuota *corev1.ResourceQuota) []corev1.ResourceName {
	var names []corev1.ResourceName
	for name := range used {
		if _, isCounted := usageQuota.Status.Used[name]; !isCounted {
			names = append(names, name)
		}
	}
	return names
}

// untilUncountable returns how long until the uncounted resources of a usage quota are treated as uncountable: 0 if all
// are counted, or none may be uncountable.
func untilUncountable(usageQuota *corev1.ResourceQuota) time.Duration {
	used := countedUsage(usageQuota)
	for name := range usageQuota.Spec.Hard {
		if _, isCounted := used[name]; !isCounted && mayBeUncountable(name) {
			return max(uncountableTime-time.Since(recountedAt(usageQuota)), 0) + time.Millisecond
		}
	}
	return 0
}
