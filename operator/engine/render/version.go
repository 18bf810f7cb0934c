package render

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// removedVersions are versions of built-in groups that no supported version of Kubernetes serves any more.
var removedVersions = map[string][]string{
	"apps":              {"v1beta1", "v1beta2"},
	"autoscaling":       {"v2beta1", "v2beta2"},
	"batch":             {"v1beta1", "v2alpha1"},
	"discovery.k8s.io":  {"v1beta1"},
	"events.k8s.io":     {"v1beta1"},
	"networking.k8s.io": {"v1beta1"},
	"policy":            {"v1beta1"},
}

// checkVersion returns a problem for a version of a built-in kind that no API server serves, because the object could
// never be created. For RBAC only v1 is allowed: while a Role cannot be created, users could create one of its name.
func checkVersion(object *unstructured.Unstructured) []Problem {
	kind := object.GroupVersionKind()
	served := "v1"
	switch {
	case kind.Version == "":
		return nil // its absence is reported as such
	case kind.Group == "" || kind.Group == rbacGroup:
		if kind.Version == served {
			return nil
		}
	case !slices.Contains(removedVersions[kind.Group], kind.Version):
		return nil
	case kind.Group == "autoscaling":
		served = "v2"
	}
	return []Problem{{
		Rule: ruleVersion, Path: "apiVersion", Object: IDOf(object).String(),
		Message: kind.GroupVersion().String() + " is not served by Kubernetes",
		Remedy:  "use " + schema.GroupVersion{Group: kind.Group, Version: served}.String(),
	}}
}
