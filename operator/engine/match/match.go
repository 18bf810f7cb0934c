// Package match decides which NamespaceTemplates select a namespace, in which order they apply, and why the others do
// not.
//
// Its inputs are templates and a namespace with its labels; it reads nothing else. Index finds the matching templates
// among thousands, and Explain gives the reason for a single template. UnpopulatedReason returns a reason that holds
// for a namespace whatever the template is, and DisabledReason one that holds for a template in every namespace. These
// rules hold:
//
//   - Templates apply in ascending order of their names.
//   - Index.Match and Explain always agree.
//   - A missing or invalid selector selects nothing. The empty selector {} selects every namespace.
//   - The namespaces of Kubernetes and of the operator are never populated, so that no template can break the cluster.
//   - The label kubernetes.io/metadata.name always has the namespace's name as its value, as the API server enforces.
package match

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// systemNamespaces belong to Kubernetes. They exist from the start, so no user can create them to avoid population.
// Other names that begin with kube- are ordinary names. manifests/admission lists the same namespaces.
var systemNamespaces = []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}

// UnpopulatedReason returns the reason why no template populates a namespace, or "" if templates may. exclude are the
// names of further namespaces that are not populated.
func UnpopulatedReason(ns *corev1.Namespace, exclude ...string) string {
	switch {
	case slices.Contains(systemNamespaces, ns.Name):
		return "the namespaces of Kubernetes are never populated"
	case ns.Name == v1alpha1.OperatorNamespace:
		return "the operator's own namespace is never populated"
	case ns.Name == v1alpha1.TrialNamespace:
		return "the namespace in which templates are tried is never populated"
	case ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating:
		return "the namespace is being deleted"
	case OptedOut(ns):
		return fmt.Sprintf("the namespace is opted out (annotation %s)", v1alpha1.OptOutAnnotation)
	}
	if slices.Contains(exclude, ns.Name) {
		return "the operator excludes the namespace (flag --exclude-namespaces)"
	}
	return ""
}

// IsSystemNamespace reports whether a namespace belongs to Kubernetes or to the operator. Such namespaces are never
// initialized and never belong to a policy space.
func IsSystemNamespace(name string) bool {
	return slices.Contains(systemNamespaces, name) || name == v1alpha1.OperatorNamespace ||
		name == v1alpha1.TrialNamespace
}

// OptedOut reports whether a namespace is opted out of all templates. Objects that were populated before stay as they
// are.
func OptedOut(ns *corev1.Namespace) bool {
	return ns.Annotations[v1alpha1.OptOutAnnotation] == "true"
}

// OptedOutOf reports whether a namespace is opted out of a template, or of all.
func OptedOutOf(ns *corev1.Namespace, template string) bool {
	return OptedOut(ns) || slices.Contains(OptedOutTemplates(ns), template)
}

// OptedOutTemplates returns the names of the templates that a namespace is opted out of, in ascending order. It returns
// none if the namespace is opted out of all templates.
func OptedOutTemplates(ns *corev1.Namespace) []string {
	value := ns.Annotations[v1alpha1.OptOutAnnotation]
	if value == "" || value == "true" || value == "false" {
		return nil
	}
	var names []string
	for name := range strings.SplitSeq(value, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// OptedOutReason is the reason why a template that selects a namespace does not populate it.
func OptedOutReason(template string) string {
	return fmt.Sprintf("the namespace is opted out of template %s (annotation %s)", template, v1alpha1.OptOutAnnotation)
}

// RequiresPermission reports whether only users with the verb use may let a template select a namespace. A misspelled
// "true" must not open the template to every user.
func RequiresPermission(template *v1alpha1.NamespaceTemplate) bool {
	value, exists := template.Annotations[v1alpha1.RequirePermissionAnnotation]
	return exists && value != "false"
}

// DisabledReason returns the reason why a template selects no namespace at all, or "" if it may select some.
func DisabledReason(template *v1alpha1.NamespaceTemplate) string {
	if template.DeletionTimestamp != nil {
		return "the template is being deleted"
	}
	if template.Annotations[v1alpha1.TemplateApplyAnnotation] == v1alpha1.TemplateApplyDisable {
		return fmt.Sprintf("the template is disabled (annotation %s: %s)",
			v1alpha1.TemplateApplyAnnotation, v1alpha1.TemplateApplyDisable)
	}
	return ""
}

// Selector parses the selector of a template or of an overlay. A missing selector is an error: it must not select every
// namespace by accident.
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

// labelsOf returns the labels that selectors are matched against. The API server labels every namespace with its name
// and ignores any other value. A namespace that does not exist yet gets that label here.
func labelsOf(ns *corev1.Namespace) labels.Set {
	if ns.Labels[corev1.LabelMetadataName] == ns.Name {
		return ns.Labels
	}
	set := labels.Set{}
	maps.Copy(set, ns.Labels)
	set[corev1.LabelMetadataName] = ns.Name
	return set
}
