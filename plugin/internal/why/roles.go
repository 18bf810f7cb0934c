package why

import (
	"slices"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// The roles of nstpl that let a user read its resources.
const (
	viewerRole  = "the ClusterRole nstpl-viewer"
	auditorRole = "the ClusterRole nstpl-auditor"
)

// viewed are the resources of nstpl that viewerRole grants.
var viewed = []string{
	v1alpha1.NamespaceTemplates.Resource, v1alpha1.PolicySpaces.Resource, v1alpha1.ClusterProtectedAttributes.Resource,
	v1alpha1.TemplateExemptions.Resource, v1alpha1.SecurityContextConstraintses.Resource,
	v1alpha1.NamespaceInitializationConfigurations.Resource,
}

// viewedInNamespace are the resources of nstpl that the role view grants in a namespace.
var viewedInNamespace = []string{v1alpha1.ProtectedAttributes.Resource, v1alpha1.TemplateExemptions.Resource}

// readerRole returns the role that lets a user read a resource of nstpl. Namespace is empty for all namespaces, and for
// a cluster-scoped resource.
func readerRole(resource, namespace string) string {
	switch {
	case namespace != "" && slices.Contains(viewedInNamespace, resource):
		return "the ClusterRole view in namespace " + namespace
	case slices.Contains(viewed, resource):
		return viewerRole
	}
	return auditorRole
}
