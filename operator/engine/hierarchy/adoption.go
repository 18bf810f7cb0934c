package hierarchy

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/operator/engine/render"
)

// NotAdoptedError reports that a namespace existed before a tree claimed it and has not been adopted.
type NotAdoptedError struct {
	Namespace string
	// Tree is the name of the tree's root.
	Tree string
}

func (e *NotAdoptedError) Error() string {
	return fmt.Sprintf("namespace %s existed before tree %s and is not adopted, so it is left alone: see what would be deleted with "+
		"kubectl nstpl diff --tree, then annotate the namespace with %s=true, or apply the output of kubectl nstpl hydrate --adopt",
		e.Namespace, e.Tree, v1alpha1.AdoptAnnotation)
}

// InTree reports whether a tree manages a namespace: the namespace was created in one, or was adopted.
func InTree(ns *corev1.Namespace) bool { return ns.Annotations[v1alpha1.InTreeAnnotation] == "true" }

// Adopted reports whether an annotation consents to a tree taking over a namespace.
func Adopted(ns *corev1.Namespace) bool { return ns.Annotations[v1alpha1.AdoptAnnotation] == "true" }

// Adopt adds the annotation that consents to adoption to all Namespaces among compiled objects.
func Adopt(objects []*unstructured.Unstructured) {
	for _, object := range objects {
		if object.GetKind() == kindNamespace {
			render.AddAnnotations(object, map[string]string{v1alpha1.AdoptAnnotation: "true"})
		}
	}
}

// MayBeInTree reports whether a tree may manage a namespace. A namespace that is being initialized is new, so no user
// could write into it yet. A namespace without a UID does not exist yet. Nothing else shows that a namespace was
// created in a tree: users may write managedFields, with any time.
func MayBeInTree(ns *corev1.Namespace) bool {
	return InTree(ns) || Adopted(ns) || ns.UID == "" || initialize.Initializing(ns)
}

// treeName returns the name of the tree that the nearest of some policyspaces belongs to, or "" if none does.
func treeName(lineage []*v1alpha1.PolicySpace) string {
	for _, space := range lineage {
		if tree := space.Labels[v1alpha1.TreeLabel]; tree != "" {
			return tree
		}
	}
	return ""
}
