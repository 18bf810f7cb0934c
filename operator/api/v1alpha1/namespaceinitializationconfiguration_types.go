package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NamespaceInitializationConfiguration names controllers that a new namespace waits for. Until all of them have
// finished, the namespace has the label policy/namespace-initializing, and writes into it wait. When a controller has
// finished with a namespace, it removes its name from the annotation policy/namespace-initializers-pending. For that it
// needs the verbs patch and initialize on namespaces. The ClusterRole nstpl-initialize grants initialize.
//
// Example:
//
//	apiVersion: policy.nstpl.dev/v1alpha1
//	kind: NamespaceInitializationConfiguration
//	metadata:
//	  name: network
//	initializers:
//	- name: network.example.com
//	  namespaceSelector:
//	    matchLabels:
//	      network: dedicated
//	  timeoutSeconds: 60
//	  failurePolicy: Fail
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=nsinit
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NamespaceInitializationConfiguration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// initializers are the controllers to wait for. They work at the same time, so their order has no meaning. At most
	// 32.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Initializers []Initializer `json:"initializers,omitempty"`
	// status is what the operator observed. The operator writes it.
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

// Initializer is a controller that new namespaces wait for.
type Initializer struct {
	// name is what the controller removes from the annotation policy/namespace-initializers-pending of a namespace when
	// it has finished. It is a DNS name, which should show whose controller it is, such as network.example.com. The
	// name namespace-template is reserved.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +kubebuilder:validation:XValidation:rule="self != 'namespace-template'",message="namespace-template is the initializer that populates namespaces: choose another name"
	Name string `json:"name"`

	// namespaceSelector selects the new namespaces that wait for this initializer, for example {matchLabels: {network:
	// dedicated}}. The empty selector {} selects every new namespace.
	// +required
	// +kubebuilder:validation:XValidation:rule="(!has(self.matchLabels) || size(self.matchLabels) <= 16) && (!has(self.matchExpressions) || size(self.matchExpressions) <= 16)",message="a selector has at most 16 matchLabels and 16 matchExpressions"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15].map(i, i < size(self.matchExpressions) && has(self.matchExpressions[i].values) ? size(self.matchExpressions[i].values) : 0).sum() <= 128",message="the matchExpressions of a selector have at most 128 values together"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector"`

	// timeoutSeconds is how long a namespace waits for this initializer, counted from the creation of the namespace.
	// What happens then depends on failurePolicy. The default is 60, the maximum 86400, which is one day.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// failurePolicy is what happens at the timeout. Fail, the default, keeps writes out of the namespace until the
	// initializer finishes, and records an Event. Ignore opens the namespace as if the initializer had finished.
	// +optional
	// +kubebuilder:default=Fail
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`
}

// NamespaceInitializationConfigurationStatus is what the operator observed.
type NamespaceInitializationConfigurationStatus struct {
	// observedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions contains Accepted: whether the selectors are valid, and the reason if they are not. No namespace waits
	// for an initializer whose selector is invalid. Ready, Reconciling and Stalled are those of every kind, as kstatus
	// defines them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// InitializationAccepted is the condition of a NamespaceInitializationConfiguration that reports whether its selectors
// are valid.
const InitializationAccepted = "Accepted"
