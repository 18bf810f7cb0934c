package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PolicySpace is a place in a hierarchy of policies. Namespaces are in one by the label policy.nstpl.dev/policyspace,
// and inherit what is declared for it and for all spaces above it, by NamespaceTemplates that select the label which
// the operator keeps: <space>.tree.policy.nstpl.dev/depth. It follows "Policy Hierarchy Operations" of the Git User
// Guide.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ps
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Path",type=string,JSONPath=`.status.path`
// +kubebuilder:printcolumn:name="Namespaces",type=integer,JSONPath=`.status.namespaces`
// +kubebuilder:printcolumn:name="Quota",type=string,JSONPath=`.status.quota`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 63",message="the name of a PolicySpace is a label value and a part of label keys, so it is a DNS label of at most 63 characters"
// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.parent) || self.spec.parent != self.metadata.name",message="a PolicySpace can't be its own parent"
type PolicySpace struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec PolicySpaceSpec `json:"spec,omitempty,omitzero"`
	// +optional
	Status PolicySpaceStatus `json:"status,omitempty,omitzero"`
}

// PolicySpaceList is a list of PolicySpaces.
//
// +kubebuilder:object:root=true
type PolicySpaceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PolicySpace `json:"items"`
}

// PolicySpaceSpec is what an administrator declares.
type PolicySpaceSpec struct {
	// parent is the space that this one is in. A root has none. It may be created later.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Parent string `json:"parent,omitempty"`

	// quota limits the sum over all namespaces in the space and in those below it.
	// +optional
	Quota *PolicySpaceQuota `json:"quota,omitempty"`
}

// PolicySpaceQuota is a quota for many namespaces together.
type PolicySpaceQuota struct {
	// hard limits each named resource: those that a ResourceQuota knows, by the same names. It may be set below what is
	// used: then nothing new is let in until enough has gone. As with a ResourceQuota, a limit on cpu or memory makes
	// every pod state what it requests.
	// +required
	// +kubebuilder:validation:MaxProperties=64
	Hard corev1.ResourceList `json:"hard"`
}

// Conditions of a PolicySpace.
const (
	// PolicySpaceReady says whether the space is in the hierarchy, and all that it limits is counted.
	PolicySpaceReady = "Ready"
	// PolicySpaceExceeded says whether more is used than the quota allows.
	PolicySpaceExceeded = "Exceeded"
)

// PolicySpaceStatus is what the operator saw.
type PolicySpaceStatus struct {
	// observedGeneration is the generation that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// path leads from the root to the space.
	// +optional
	Path string `json:"path,omitempty"`

	// namespaces is how many there are in the space and in those below it.
	// +optional
	Namespaces int32 `json:"namespaces"`

	// quota is used/hard for each resource, for people.
	// +optional
	Quota string `json:"quota,omitempty"`

	// hard is what is enforced: the limits of spec.quota on resources whose use is counted in all namespaces.
	// +optional
	Hard corev1.ResourceList `json:"hard,omitempty"`

	// used is the sum of what is used in all namespaces, bookings included.
	// +optional
	Used corev1.ResourceList `json:"used,omitempty"`

	// uncounted names some of the namespaces whose usage is unknown, because their ResourceQuota nstpl-policyspace is
	// missing or was changed. The operator repairs it. Until then, everything that the quota limits is denied.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Uncounted []string `json:"uncounted,omitempty"`

	// sharedWith names policyspaces whose namespaces count here too, because namespaces move between the two: one of
	// them takes the place of the other, as if it were renamed. No more is used in both together than either allows.
	// +optional
	// +listType=map
	// +listMapKey=name
	SharedWith []PolicySpaceShare `json:"sharedWith,omitempty"`

	// bookings are what is let in and not seen to be written down yet.
	// +optional
	// +listType=atomic
	Bookings []QuotaBooking `json:"bookings,omitempty"`

	// conditions are Ready and, with a quota, Exceeded.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PolicySpaceShare is another policyspace that usage is shared with.
type PolicySpaceShare struct {
	// name is that of the other policyspace.
	Name string `json:"name"`
	// until is when the sharing ends, unless another namespace moves before.
	Until metav1.Time `json:"until"`
}

// QuotaBooking is room that is taken before the API server writes it down, so that no two requests are let in on the
// same.
type QuotaBooking struct {
	Namespace string `json:"namespace"`
	// used is what the namespace uses with it.
	Used corev1.ResourceList `json:"used"`
	// since is the resourceVersion of the namespace's ResourceQuota that the booking goes on from.
	Since string `json:"since"`
}
