package render

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// reservedObjects are those that the operator itself keeps in namespaces. Nothing of its own namespace is populated.
var reservedObjects = []identity{
	{schema.GroupKind{Kind: "ResourceQuota"}, v1alpha1.QuotaName},
}

// reservedName says for which object of the operator's another may stand, or returns "".
func reservedName(object *unstructured.Unstructured) string {
	id := identityOf(object)
	i := slices.IndexFunc(reservedObjects, func(reserved identity) bool {
		return reserved.GroupKind == id.GroupKind && MayCoincide(id.name, reserved.name)
	})
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("the name %s is reserved for the %s that nstpl keeps in namespaces", reservedObjects[i].name,
		id.Kind)
}

// checkName refuses a name that is reserved in some namespace.
func checkName(object *unstructured.Unstructured) error {
	if reason := reservedName(object); reason != "" {
		return fmt.Errorf("%s: metadata.name: %s: choose a name that can't become this one", identityOf(object), reason)
	}
	return nil
}

// isReservedKey reports whether a label or an annotation is one of those that nstpl sets, or may set one day.
func isReservedKey(key string) bool {
	if key == v1alpha1.CreatorAnnotation {
		return true
	}
	prefix, name, found := strings.Cut(key, "/")
	return found && (prefix == "policy" && strings.HasPrefix(name, "namespace-") ||
		prefix == v1alpha1.GroupVersion.Group || strings.HasSuffix(prefix, "."+v1alpha1.GroupVersion.Group))
}

// removedVersions are versions of built-in groups that no supported Kubernetes serves any more.
var removedVersions = map[string][]string{
	"apps":              {"v1beta1", "v1beta2"},
	"autoscaling":       {"v2beta1", "v2beta2"},
	"batch":             {"v1beta1", "v2alpha1"},
	"discovery.k8s.io":  {"v1beta1"},
	"events.k8s.io":     {"v1beta1"},
	"networking.k8s.io": {"v1beta1"},
	"policy":            {"v1beta1"},
}

// checkVersion refuses versions of Kubernetes' own kinds that no API server takes: the object would not be populated.
// Of RBAC there is one, and a Role that is not populated leaves its name to others.
func checkVersion(kind schema.GroupVersionKind) error {
	served := "v1"
	switch {
	case kind.Group == "" || kind.Group == rbacGroup:
		if kind.Version == served {
			return nil
		}
	case !slices.Contains(removedVersions[kind.Group], kind.Version):
		return nil
	case kind.Group == "autoscaling":
		served = "v2"
	}
	return fmt.Errorf("apiVersion %s is not served by Kubernetes: write %s", kind.GroupVersion(),
		schema.GroupVersion{Group: kind.Group, Version: served})
}
