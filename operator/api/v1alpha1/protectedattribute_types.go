package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AttributeKind says what of an object's metadata an attribute is.
//
// +kubebuilder:validation:Enum=Label;Annotation
type AttributeKind string

// The kinds of attributes.
const (
	LabelAttribute      AttributeKind = "Label"
	AnnotationAttribute AttributeKind = "Annotation"
)

// The kinds of roles.
const (
	ClusterRoleKind = "ClusterRole"
	RoleKind        = "Role"
)

// ProtectedAttribute says which role a requester must hold to set, change or remove a label or an annotation on the
// objects of its namespace, and on the pod templates in them ("Protected attributes"). Where several rules protect the
// same attribute, each one opens it to the role that it names; what no rule opens is closed.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=pattr
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.attributeKind`
// +kubebuilder:printcolumn:name="Attribute",type=string,JSONPath=`.attributeName`
// +kubebuilder:printcolumn:name="Values",type=string,JSONPath=`.protectedValues`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.roleRef.name`
// +kubebuilder:printcolumn:name="Enforced",type=string,JSONPath=`.status.conditions[?(@.type=="Enforced")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ProtectedAttribute struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	AttributeRule     `json:",inline"`

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

// ClusterProtectedAttribute says which ClusterRole a requester must hold to set, change or remove a label or an
// annotation on any object, in namespaces and outside of them, and on the pod templates in them ("Protected
// attributes"). A RoleBinding to the ClusterRole counts in its own namespace. Where several rules protect the same
// attribute, each one opens it to the role that it names; what no rule opens is closed.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=cpattr
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.attributeKind`
// +kubebuilder:printcolumn:name="Attribute",type=string,JSONPath=`.attributeName`
// +kubebuilder:printcolumn:name="Values",type=string,JSONPath=`.protectedValues`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.roleRef.name`
// +kubebuilder:printcolumn:name="Enforced",type=string,JSONPath=`.status.conditions[?(@.type=="Enforced")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.roleRef.kind == 'ClusterRole'",message="a ClusterProtectedAttribute applies in every namespace: roleRef.kind can only be ClusterRole",fieldPath=".roleRef"
type ClusterProtectedAttribute struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	AttributeRule     `json:",inline"`

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

// AttributeRule opens an attribute to those who hold a role, and closes it to all others.
//
// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self.attributeKind == 'Label' ? self.attributeName : self.attributeName.lowerAscii()).hasValue()",message="attributeName must be a name of at most 63 letters, digits, '-', '_' and '.', that begins and ends with a letter or digit, and may follow a DNS name and a '/', such as env or example.com/env",fieldPath=".attributeName"
// +kubebuilder:validation:XValidation:rule="self.attributeKind != 'Label' || !has(self.protectedValues) || self.protectedValues.all(value, !format.labelValue().validate(value).hasValue())",message="protectedValues of a label must be valid label values: at most 63 letters, digits, '-', '_' and '.', that begin and end with a letter or digit",fieldPath=".protectedValues"
type AttributeRule struct {
	// attributeKind says whether a label or an annotation is protected.
	// +required
	AttributeKind AttributeKind `json:"attributeKind"`

	// attributeName is the key of the label or annotation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	AttributeName string `json:"attributeName"`

	// roleRef names the role whose holders may set, change and remove the attribute. It need not exist yet.
	// +required
	RoleRef RoleReference `json:"roleRef"`

	// protectedValues are the values that the role opens: its holders may set them, change one of them into another,
	// and remove them. Without any, they may do so with every value.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	ProtectedValues []string `json:"protectedValues,omitempty"`

	// guardDeletion says that objects with the attribute may only be deleted by those who may remove it.
	// +optional
	GuardDeletion bool `json:"guardDeletion,omitempty"`
}

// RoleReference names a role of RBAC.
type RoleReference struct {
	// apiGroup is that of RBAC.
	// +optional
	// +kubebuilder:default=rbac.authorization.k8s.io
	// +kubebuilder:validation:Enum=rbac.authorization.k8s.io
	APIGroup string `json:"apiGroup,omitempty"`

	// kind is ClusterRole, or, in a ProtectedAttribute, Role for one of its namespace.
	// +required
	// +kubebuilder:validation:Enum=ClusterRole;Role
	Kind string `json:"kind"`

	// name of the role.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!(self in ['.', '..']) && !self.contains('/') && !self.contains('%')",message="no role can have this name: it must not be . or .. and hold no / and no %"
	Name string `json:"name"`
}

// ProtectedAttributeStatus is what the operator saw.
type ProtectedAttributeStatus struct {
	// observedGeneration is the generation that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Enforced.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AttributeEnforced is the condition of rules that says whether the API server asks about the attribute.
const AttributeEnforced = "Enforced"
