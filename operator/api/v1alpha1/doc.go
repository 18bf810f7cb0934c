// Package v1alpha1 contains the API group policy.nstpl.dev: its kinds, and in keys.go every label, annotation, verb and
// name that nstpl uses on other objects.
//
// +kubebuilder:object:generate=true
// +groupName=policy.nstpl.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "policy.nstpl.dev", Version: "v1alpha1"}

// The resources, by which clients address the kinds.
var (
	NamespaceTemplates                    = GroupVersion.WithResource("namespacetemplates")
	NamespaceInitializationConfigurations = GroupVersion.WithResource("namespaceinitializationconfigurations")
	ProtectedAttributes                   = GroupVersion.WithResource("protectedattributes")
	ClusterProtectedAttributes            = GroupVersion.WithResource("clusterprotectedattributes")
	SecurityContextConstraintses          = GroupVersion.WithResource("securitycontextconstraints")
	PolicySpaces                          = GroupVersion.WithResource("policyspaces")
	PolicyRepositories                    = GroupVersion.WithResource("policyrepositories")
	TemplateExemptions                    = GroupVersion.WithResource("templateexemptions")
)

// AddToScheme registers the kinds of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&NamespaceTemplate{}, &NamespaceTemplateList{},
		&NamespaceInitializationConfiguration{}, &NamespaceInitializationConfigurationList{},
		&ProtectedAttribute{}, &ProtectedAttributeList{},
		&ClusterProtectedAttribute{}, &ClusterProtectedAttributeList{},
		&SecurityContextConstraints{}, &SecurityContextConstraintsList{},
		&PolicySpace{}, &PolicySpaceList{},
		&PolicyRepository{}, &PolicyRepositoryList{},
		&TemplateExemption{}, &TemplateExemptionList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
