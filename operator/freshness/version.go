// Package freshness answers what a process knows about objects that it has written and that its caches do not have yet.
// All comparisons of resourceVersions are in this package.
package freshness

import "k8s.io/apimachinery/pkg/util/resourceversion"

// Newer reports whether a resourceVersion is newer than another one of the same kind. A resourceVersion that is empty
// or not a number counts as older than every number, and of two of these none is newer. The API server gives numbers to
// everything it stores. Only aggregated API servers may do otherwise.
func Newer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	if err != nil {
		return isNumber(version) && !isNumber(than)
	}
	return order > 0
}

// AtLeast reports whether a resourceVersion is equal to another one of the same kind, or newer.
func AtLeast(version, than string) bool {
	return version == than || Newer(version, than)
}

// Newest returns the newer of two resourceVersions of the same kind, and the first if neither is newer.
func Newest(a, b string) string {
	if Newer(b, a) {
		return b
	}
	return a
}

func isNumber(version string) bool {
	_, err := resourceversion.CompareResourceVersion(version, version)
	return err == nil
}
