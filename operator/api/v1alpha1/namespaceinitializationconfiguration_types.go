package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NamespaceInitializationConfiguration names controllers that must finish their work in a new namespace before others
// may write into it ("Extending Initializers" of the Namespace Population proposal). Each takes its name from the
// namespace's annotation policy/namespace-initializers-pending when it is done, for which it needs the verb initialize
// on namespaces.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=nsinit
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Initializers",type=string,JSONPath=`.initializers[*].name`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NamespaceInitializationConfiguration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// initializers are the controllers, in no order: they work at the same time.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Initializers []Initializer `json:"initializers,omitempty"`
	// +optional
	Status NamespaceInitializationConfigurationStatus `json:"status,omitempty"`
}

// NamespaceInitializationConfigurationList is a list of NamespaceInitializationConfigurations.
//
// +kubebuilder:object:root=true
type NamespaceInitializationConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NamespaceInitializationConfiguration `json:"items"`
}

// Initializer is a controller that a new namespace waits for.
type Initializer struct {
	// name is what stands in the pending list: a DNS name that tells whose controller it is, such as
	// network.example.com.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +kubebuilder:validation:XValidation:rule="self != 'namespace-template'",message="namespace-template is the initializer that populates namespaces: choose another name"
	Name string `json:"name"`

	// namespaceSelector selects the new namespaces that wait for it; {} selects every one.
	// +required
	// +kubebuilder:validation:XValidation:rule="(!has(self.matchLabels) || size(self.matchLabels) <= 16) && (!has(self.matchExpressions) || size(self.matchExpressions) <= 16)",message="a selector has at most 16 matchLabels and 16 matchExpressions"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15].map(i, i < size(self.matchExpressions) && has(self.matchExpressions[i].values) ? size(self.matchExpressions[i].values) : 0).sum() <= 128",message="the matchExpressions of a selector have at most 128 values together"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector"`

	// timeoutSeconds is how long a namespace waits, from its creation.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// failurePolicy says what a timeout does: Fail keeps the namespace closed until the initializer finishes, Ignore
	// opens it as if it had.
	// +optional
	// +kubebuilder:default=Fail
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`
}

// NamespaceInitializationConfigurationStatus is what the operator saw.
type NamespaceInitializationConfigurationStatus struct {
	// observedGeneration is the generation that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Accepted.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// InitializationAccepted is the condition of a NamespaceInitializationConfiguration that says whether its selectors can
// be read, and why not.
const InitializationAccepted = "Accepted"
