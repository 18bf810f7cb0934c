package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AttributeKind is the part of metadata that a rule protects.
//
// +kubebuilder:validation:Enum=Label;Annotation
type AttributeKind string

// The kinds of attributes.
const (
	// LabelAttribute is a label.
	LabelAttribute AttributeKind = "Label"
	// AnnotationAttribute is an annotation.
	AnnotationAttribute AttributeKind = "Annotation"
)

// The kinds of roles.
const (
	ClusterRoleKind = "ClusterRole"
	RoleKind        = "Role"
)

// ProtectedAttribute names the role that users must hold to set, change or remove a label or an annotation on the
// objects of its namespace and on the pod templates in them. If several rules protect the same attribute, each allows
// its own values to its own role. Values that no rule lists are denied to all users.
//
// Example:
//
//	apiVersion: policy.nstpl.dev/v1alpha1
//	kind: ProtectedAttribute
//	metadata:
//	  name: public
//	  namespace: default
//	attributeKind: Label
//	attributeName: public
//	protectedValues: ["true"]
//	roleRef:
//	  kind: Role
//	  name: publisher
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=pattr
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.attributeKind`
// +kubebuilder:printcolumn:name="Attribute",type=string,JSONPath=`.attributeName`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.roleRef.name`
// +kubebuilder:printcolumn:name="Enforced",type=string,JSONPath=`.status.conditions[?(@.type=="Enforced")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ProtectedAttribute struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	AttributeRule     `json:",inline"`

	// status is what the operator observed. The operator writes it.
	// +optional
	Status ProtectedAttributeStatus `json:"status,omitempty"`
}

// ProtectedAttributeList is a list of ProtectedAttributes.
//
// +kubebuilder:object:root=true
type ProtectedAttributeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ProtectedAttribute `json:"items"`
}

// ClusterProtectedAttribute names the ClusterRole that users must hold to set, change or remove a label or an
// annotation on any object, namespaced or not, and on the pod templates in it. A RoleBinding to the ClusterRole counts
// in its own namespace. If several rules protect the same attribute, each allows its own values to its own role. Values
// that no rule lists are denied to all users.
//
// Example:
//
//	apiVersion: policy.nstpl.dev/v1alpha1
//	kind: ClusterProtectedAttribute
//	metadata:
//	  name: env-prod
//	attributeKind: Label
//	attributeName: env
//	protectedValues: [prod]
//	roleRef:
//	  kind: ClusterRole
//	  name: prod-deployer
//	guardDeletion: true
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=cpattr
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.attributeKind`
// +kubebuilder:printcolumn:name="Attribute",type=string,JSONPath=`.attributeName`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.roleRef.name`
// +kubebuilder:printcolumn:name="Enforced",type=string,JSONPath=`.status.conditions[?(@.type=="Enforced")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.roleRef.kind == 'ClusterRole'",message="a ClusterProtectedAttribute applies in every namespace: roleRef.kind can only be ClusterRole",fieldPath=".roleRef"
type ClusterProtectedAttribute struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	AttributeRule     `json:",inline"`

	// status is what the operator observed. The operator writes it.
	// +optional
	Status ProtectedAttributeStatus `json:"status,omitempty"`
}

// ClusterProtectedAttributeList is a list of ClusterProtectedAttributes.
//
// +kubebuilder:object:root=true
type ClusterProtectedAttributeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterProtectedAttribute `json:"items"`
}

// AttributeRule allows the holders of a role to set, change and remove an attribute, and denies it to all other users.
//
// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self.attributeKind == 'Label' ? self.attributeName : self.attributeName.lowerAscii()).hasValue()",message="attributeName must be a name of at most 63 letters, digits, '-', '_' and '.', that begins and ends with a letter or digit, and may follow a DNS name and a '/', such as env or example.com/env",fieldPath=".attributeName"
// +kubebuilder:validation:XValidation:rule="self.attributeKind != 'Label' || !has(self.protectedValues) || self.protectedValues.all(value, !format.labelValue().validate(value).hasValue())",message="protectedValues of a label must be valid label values: at most 63 letters, digits, '-', '_' and '.', that begin and end with a letter or digit",fieldPath=".protectedValues"
type AttributeRule struct {
	// attributeKind is Label or Annotation.
	// +required
	AttributeKind AttributeKind `json:"attributeKind"`

	// attributeName is the key of the label or annotation, for example env or example.com/env.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	AttributeName string `json:"attributeName"`

	// roleRef names the role whose holders may set, change and remove the attribute. The role may be created later.
	// Holding it means being bound to it by a RoleBinding or ClusterRoleBinding: other roles with the same rules do not
	// count, and neither does cluster-admin.
	// +required
	RoleRef RoleReference `json:"roleRef"`

	// protectedValues lists the values that holders of the role may set, change into one another, and remove, for
	// example [staging, test]. By default they may do so with every value.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	ProtectedValues []string `json:"protectedValues,omitempty"`

	// guardDeletion denies the deletion and eviction of objects with the attribute to users who may not remove the
	// attribute. Adding an owner to such an object counts as a deletion. The default is false.
	// +optional
	GuardDeletion bool `json:"guardDeletion,omitempty"`
}

// RoleReference names an RBAC role.
type RoleReference struct {
	// apiGroup is rbac.authorization.k8s.io, which is the default.
	// +optional
	// +kubebuilder:default=rbac.authorization.k8s.io
	// +kubebuilder:validation:Enum=rbac.authorization.k8s.io
	APIGroup string `json:"apiGroup,omitempty"`

	// kind is ClusterRole. In a ProtectedAttribute it may also be Role, for a Role in the same namespace.
	// +required
	// +kubebuilder:validation:Enum=ClusterRole;Role
	Kind string `json:"kind"`

	// name is the name of the role, for example prod-deployer.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!(self in ['.', '..']) && !self.contains('/') && !self.contains('%')",message="no role can have this name: it must not be . or .. and hold no / and no %"
	Name string `json:"name"`
}

// ProtectedAttributeStatus is what the operator observed.
type ProtectedAttributeStatus struct {
	// observedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions contains Enforced: whether the API server asks the operator about the attribute. The rule is in force
	// once it is True. Ready, Reconciling and Stalled are those of every kind, as kstatus defines them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AttributeEnforced is the condition of a rule that reports whether the API server asks the operator about the
// attribute.
const AttributeEnforced = "Enforced"
