package render

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// reservedObjects are the objects that the operator itself creates in namespaces.
var reservedObjects = []ObjectID{
	{schema.GroupKind{Kind: "ResourceQuota"}, v1alpha1.QuotaName},
}

// restored is an object that Kubernetes creates in every namespace and restores after each change, so that it and nstpl
// would change it again and again. A ServiceAccount "default" is created and not restored.
var restored = ObjectID{schema.GroupKind{Kind: "ConfigMap"}, "kube-root-ca.crt"}

// reservedName returns why the name of an object is reserved, or may be for some values of its tokens. It returns "" if
// it is not.
func reservedName(object *unstructured.Unstructured) string {
	id := IDOf(object)
	if id == restored { // a name with tokens is compared again when they are replaced
		return fmt.Sprintf("the name %s is reserved for the %s that Kubernetes creates in namespaces", id.Name, id.Kind)
	}
	i := slices.IndexFunc(reservedObjects, func(reserved ObjectID) bool {
		return reserved.GroupKind == id.GroupKind && MayCoincide(id.Name, reserved.Name)
	})
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("the name %s is reserved for the %s that nstpl creates in namespaces", reservedObjects[i].Name,
		id.Kind)
}

// checkName returns a problem for a name that is reserved in some namespaces.
func checkName(object *unstructured.Unstructured) []Problem {
	if reason := reservedName(object); reason != "" {
		return []Problem{{
			Rule: ruleName, Path: "metadata.name", Object: IDOf(object).String(), Message: reason,
			Remedy: "choose a name that is different in every namespace",
		}}
	}
	return nil
}

// IsReservedKey reports whether the key of a label or an annotation is reserved for nstpl.
func IsReservedKey(key string) bool {
	if key == v1alpha1.CreatorAnnotation {
		return true
	}
	prefix, name, found := strings.Cut(key, "/")
	return found && (prefix == "policy" && strings.HasPrefix(name, "namespace-") ||
		prefix == v1alpha1.GroupVersion.Group || strings.HasSuffix(prefix, "."+v1alpha1.GroupVersion.Group))
}
