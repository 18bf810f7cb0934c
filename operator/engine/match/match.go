// Package match decides which NamespaceTemplates populate a namespace, in which order, and why the others don't.
//
// It follows "Namespace Match" and "Opt-out" of the Namespace Population proposal.
package match

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// systemNamespaces are Kubernetes' own. They exist before anything is installed, so no user can create them to avoid
// population. Other names that begin with kube- are like any other name. manifests/admission lists the same namespaces.
var systemNamespaces = []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}

// Unpopulated returns why no template ever populates a namespace, or "". Besides the namespaces of Kubernetes and of
// the operator, those in exclude are left alone.
func Unpopulated(ns *corev1.Namespace, exclude ...string) string {
	switch {
	case slices.Contains(systemNamespaces, ns.Name):
		return "the namespaces of Kubernetes are never populated"
	case ns.Name == v1alpha1.OperatorNamespace:
		return "the operator's own namespace is never populated"
	case ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating:
		return "the namespace is being deleted"
	case OptedOut(ns):
		return fmt.Sprintf("the namespace is opted out (annotation %s)", v1alpha1.OptOutAnnotation)
	}
	if slices.Contains(exclude, ns.Name) {
		return "the operator is told to leave the namespace alone (--exclude-namespaces)"
	}
	return ""
}

// OfTheSystem reports whether a namespace belongs to Kubernetes or to the operator. These are not initialized and are
// in no policy space.
func OfTheSystem(name string) bool {
	return slices.Contains(systemNamespaces, name) || name == v1alpha1.OperatorNamespace
}

// OptedOut tells whether a namespace is opted out of population. What was populated before stays as it is.
func OptedOut(ns *corev1.Namespace) bool {
	return ns.Annotations[v1alpha1.OptOutAnnotation] == "true"
}

// Off says why a template populates no namespace at all, or returns "".
func Off(template *v1alpha1.NamespaceTemplate) string {
	if template.DeletionTimestamp != nil {
		return "the template is being deleted"
	}
	if template.Annotations[v1alpha1.TemplateApplyAnnotation] == v1alpha1.TemplateApplyDisable {
		return fmt.Sprintf("the template is switched off (annotation %s: %s)",
			v1alpha1.TemplateApplyAnnotation, v1alpha1.TemplateApplyDisable)
	}
	return ""
}

// Selector parses the selector of a template or of one of its overlays. A selector that isn't there is an error, never
// a match of everything.
func Selector(namespaces v1alpha1.NamespaceSelector) (labels.Selector, error) {
	if namespaces.LabelSelector == nil {
		return nil, fmt.Errorf("namespaces.labelSelector is missing: write {} to select every namespace")
	}
	selector, err := metav1.LabelSelectorAsSelector(namespaces.LabelSelector)
	if err != nil {
		return nil, fmt.Errorf("namespaces.labelSelector: %w", err)
	}
	return selector, nil
}

// labelsOf returns the labels that selectors are held against. The API server labels every namespace with its name,
// whatever the request says; one that does not exist yet gets that label here.
func labelsOf(ns *corev1.Namespace) labels.Set {
	if ns.Labels[corev1.LabelMetadataName] == ns.Name {
		return ns.Labels
	}
	set := labels.Set{}
	maps.Copy(set, ns.Labels)
	set[corev1.LabelMetadataName] = ns.Name
	return set
}
