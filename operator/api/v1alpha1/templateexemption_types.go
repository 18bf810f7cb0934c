package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TemplateExemption exempts its namespace from a NamespaceTemplate, or from some of the template's objects. The
// operator leaves exempt objects alone: it does not create, correct, report or prune them. Writing a TemplateExemption
// requires the verb exempt on the template. When it expires or is deleted, the operator creates and corrects the
// objects again.
//
// Example:
//
//	apiVersion: policy.nstpl.dev/v1alpha1
//	kind: TemplateExemption
//	metadata:
//	  name: load-test
//	  namespace: team-a
//	spec:
//	  template: team-defaults
//	  objects:
//	  - kind: ResourceQuota
//	    name: budget
//	  reason: load test until the release, agreed in OPS-123
//	  expires: "2030-01-31T18:00:00Z"
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=nstplex
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Template",type=string,JSONPath=`.spec.template`
// +kubebuilder:printcolumn:name="Objects",type=string,JSONPath=`.status.objects`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expires`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TemplateExemption struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the namespace is exempt from.
	// +required
	Spec TemplateExemptionSpec `json:"spec"`
	// status is what the operator observed. The operator writes it.
	// +optional
	Status TemplateExemptionStatus `json:"status,omitempty"`
}

// TemplateExemptionList is a list of TemplateExemptions.
//
// +kubebuilder:object:root=true
type TemplateExemptionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TemplateExemption `json:"items"`
}

// TemplateExemptionSpec is what a namespace is exempt from, why, and until when.
type TemplateExemptionSpec struct {
	// template is the name of the NamespaceTemplate. It need not exist yet.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Template string `json:"template"`

	// objects are the exempt objects of the template, at most 64. If there are none, the namespace is exempt from the
	// whole template, including the labels and annotations that it declares for the namespace. Only objects that the
	// template declares are exempt. If another template declares the same object, its declaration is applied.
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Objects []ExemptObject `json:"objects,omitempty"`

	// reason is why the namespace is exempt, for those who audit the cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.trim() != ''",message="give a reason: those who audit the cluster read it"
	Reason string `json:"reason"`

	// expires is when the exemption ends, such as "2030-01-31T18:00:00Z". By default, it does not end. The operator
	// keeps an exemption that has ended, and shows it as expired.
	// +optional
	Expires *metav1.Time `json:"expires,omitempty"`
}

// ExemptObject names an object of a template, as it is in the namespace.
type ExemptObject struct {
	// group is the API group of the object. The default is the group of Kubernetes' core, as for a LimitRange.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group"`

	// kind is the kind of the object, such as LimitRange. The kind Namespace stands for the labels and annotations that
	// the template declares for the namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*$`
	Kind string `json:"kind"`

	// name is the name of the object. For the kind Namespace, it is that of the namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// TemplateExemptionStatus is what the operator observed.
type TemplateExemptionStatus struct {
	// observedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// objects lists the exempt objects in one line, such as resourcequota/budget. It is "all" for a whole template.
	// +optional
	Objects string `json:"objects,omitempty"`

	// conditions contains Ready. Its reason is Active while the exemption is in force, Expired after its end, and
	// NothingMatches while the namespace has nothing that is exempt: the template does not exist, does not select the
	// namespace, or does not declare the objects. Reconciling and Stalled are those of every kind, as kstatus defines
	// them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Reasons of the condition Ready of a TemplateExemption.
const (
	ExemptionActive         = "Active"
	ExemptionExpired        = "Expired"
	ExemptionNothingMatches = "NothingMatches"
)
