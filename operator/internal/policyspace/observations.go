package policyspace

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
)

// observe returns the namespaces that are counted in a policy space, and their counted usage. A namespace that is being
// deleted is counted until its usage quota is deleted. The usage of a namespace is unknown if its usage quota is
// missing, was changed or has not been counted yet. New namespaces, in which usage was never counted, are the
// exception: they use nothing that the policy space limits. For a policy space without a quota, which may have
// thousands of namespaces, observe returns nothing, so that reservations from before end.
func (r *Spaces) observe(
	ctx context.Context, space *v1alpha1.PolicySpace,
) ([]string, map[string]quota.Usage, error) {
	if len(quota.Objects(space)) == 0 {
		return nil, nil, nil
	}
	namespaces := r.counted(space)
	observed, names := make(map[string]quota.Usage, len(namespaces)), make([]string, 0, len(namespaces))
	usageQuota := &corev1.ResourceQuota{}
	for _, ns := range namespaces {
		*usageQuota = corev1.ResourceQuota{}
		err := r.Client.Get(ctx, usageQuotaKey(ns.Name), usageQuota, client.UnsafeDisableDeepCopy)
		switch {
		case err != nil && !apierrors.IsNotFound(err):
			return nil, nil, err
		case err != nil && ns.DeletionTimestamp != nil:
			continue
		}
		used := countedUsage(usageQuota)
		observation := quota.Usage{
			Used: used, Assumed: assumed(used, usageQuota), ResourceVersion: usageQuota.ResourceVersion,
		}
		if countsAll(observation.Used, space) {
			r.firstCounts.add(space, ns)
		} else {
			observation.Unknown = ns.DeletionTimestamp == nil && !r.firstCounts.isNew(space, ns)
		}
		observed[ns.Name] = observation
		names = append(names, ns.Name)
	}
	return names, observed, nil
}

// countsAll reports whether the counted usage of a namespace contains every resource for which a policy space enforces
// a limit.
func countsAll(used corev1.ResourceList, space *v1alpha1.PolicySpace) bool {
	for name := range quota.Objects(space) {
		_, isEnforced := space.Status.Hard[name]
		if _, isCounted := used[name]; isEnforced && !isCounted {
			return false
		}
	}
	return true
}

// uncountedNamespaces returns the namespaces in which some resource that a policy space limits has not been counted.
func uncountedNamespaces(
	space *v1alpha1.PolicySpace, namespaces []string, observed map[string]quota.Usage,
) []string {
	var uncounted []string
	for _, ns := range namespaces {
		if !containsAll(observed[ns].Used, quota.Objects(space)) {
			uncounted = append(uncounted, ns)
		}
	}
	return uncounted
}

// assumedLimits returns the names of the limits of a policy space on resources of which Kubernetes counts no usage in
// some namespace, in ascending order.
func assumedLimits(space *v1alpha1.PolicySpace, observed map[string]quota.Usage) []string {
	var names []string
	for name := range quota.Objects(space) {
		for _, usage := range observed {
			if slices.Contains(usage.Assumed, name) {
				names = append(names, string(name))
				break
			}
		}
	}
	slices.Sort(names)
	return names
}

// containsAll reports whether a list contains every resource of another list.
func containsAll(list, other corev1.ResourceList) bool {
	for name := range other {
		if _, isContained := list[name]; !isContained {
			return false
		}
	}
	return true
}
