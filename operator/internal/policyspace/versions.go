package policyspace

import (
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// compareVersions compares two resourceVersions. It returns -1 if a is older than b, 0 if they are equal, and 1 if a is
// newer. An empty resourceVersion is older than all others.
func compareVersions(a, b string) int {
	order, err := resourceversion.CompareResourceVersion(a, b)
	switch {
	case err == nil:
		return order
	case a == "":
		return -1
	}
	return 1
}

// newerVersion returns the newer of two resourceVersions.
func newerVersion(a, b string) string {
	if compareVersions(a, b) < 0 {
		return b
	}
	return a
}

// newerSpace returns the newer of two states of a policy space: the last one that was written, and the cached one.
// Either may be nil. If the cached one has another UID, the policy space was created again, and the cached one is
// returned.
func newerSpace(last, cached *v1alpha1.PolicySpace) *v1alpha1.PolicySpace {
	if last == nil || cached == nil || last.UID != cached.UID ||
		compareVersions(cached.ResourceVersion, last.ResourceVersion) >= 0 {
		return cached
	}
	return last
}
