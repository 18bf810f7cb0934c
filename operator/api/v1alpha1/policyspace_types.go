package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PolicySpace groups namespaces and other policy spaces into a hierarchy. A namespace is in a space by the label
// policy.nstpl.dev/policyspace. It inherits the policies of the space and of all spaces above it, and shares their
// quotas. The operator labels the namespace with SPACE.tree.policy.nstpl.dev/depth for each of these spaces, and
// NamespaceTemplates select that label.
//
// Example:
//
//	apiVersion: policy.nstpl.dev/v1alpha1
//	kind: PolicySpace
//	metadata:
//	  name: payments
//	spec:
//	  parent: company
//	  quota:
//	    hard:
//	      pods: "100"
//	      requests.cpu: "40"
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

	// spec is the place of the space in the hierarchy, and its quota. A space without spec is a root without quota.
	// +optional
	Spec PolicySpaceSpec `json:"spec,omitempty,omitzero"`
	// status is what the operator observed, and the usage it accounts for. The operator writes it.
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

// PolicySpaceSpec is the place of a space in the hierarchy, and its quota.
type PolicySpaceSpec struct {
	// parent is the name of the PolicySpace that this space is in, for example company. By default the space has no
	// parent and is a root. The parent may be created later. Until it exists, new namespaces of this space wait, and
	// older ones keep what they have.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Parent string `json:"parent,omitempty"`

	// quota limits the total usage of all namespaces in this space and in the spaces below it. By default nothing is
	// limited.
	// +optional
	Quota *PolicySpaceQuota `json:"quota,omitempty"`

	// selfService is which namespaces users may create or put in this space and in the spaces below it, for example
	// {namePattern: sandbox-*, maxAge: 720h}. They also need the verb use on the space of the namespace, and the right
	// to create namespaces. The rules of all spaces above a namespace hold. They do not hold for users who may patch
	// the space. By default users may choose every name.
	// +optional
	SelfService *SelfService `json:"selfService,omitempty"`
}

// SelfService is which namespaces users may create in a policy space, and how long these live.
type SelfService struct {
	// namePattern is what the name of a namespace must be, for example payments-*. A * stands for any number of
	// characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9*]([-a-z0-9*]*[a-z0-9*])?$`
	NamePattern string `json:"namePattern"`

	// labels are those that a namespace must have, for example {cost-center: "*", tier: dev}. In a value, a * stands
	// for any number of characters. A namespace without the label is refused also if the value is *.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, self[k].matches('^[A-Za-z0-9*]([-A-Za-z0-9_.*]*[A-Za-z0-9*])?$'))",message="a value is a label value in which * stands for any number of characters, and is not empty"
	Labels map[string]LabelPattern `json:"labels,omitempty"`

	// maxAge is how long a namespace lives, for example 720h. The operator writes the end of that time to the
	// annotation policy.nstpl.dev/expires of namespaces that lack it. Before and after that time, the condition
	// policy.nstpl.dev/Expired of the namespace and Events say so. A namespace is deleted then only if it has the
	// annotation policy.nstpl.dev/delete-when-expired: "true". By default namespaces do not expire.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(s|m|h))+$') && duration(self) >= duration('1m')",message="must be a duration of at least one minute, such as 720h"
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
}

// LabelPattern is the value of a label, in which a * stands for any number of characters.
// +kubebuilder:validation:MaxLength=63
type LabelPattern string

// PolicySpaceQuota limits the total usage of many namespaces, and their number.
//
// +kubebuilder:validation:XValidation:rule="has(self.hard) || has(self.namespacesPerCreator)",message="set hard, namespacesPerCreator, or both"
type PolicySpaceQuota struct {
	// hard is the limit for each resource, for example {pods: "100", requests.cpu: "40"}. The resources are those of a
	// ResourceQuota, with the same names. You may set a limit below the current usage: then new usage is denied until
	// enough is deleted. As with a ResourceQuota, a limit on cpu or memory makes it mandatory for every pod to declare
	// that request or limit. In addition, count/namespaces limits how many namespaces are in this space and in the
	// spaces below it, by their label or because they have not left.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Hard corev1.ResourceList `json:"hard,omitempty"`

	// namespacesPerCreator limits how many namespaces in this space and in the spaces below it the same user has
	// created. The annotation authorization.k8s.io/creator, which admission keeps, names that user. Namespaces without
	// it are not counted.
	// +optional
	NamespacesPerCreator *NamespacesPerCreator `json:"namespacesPerCreator,omitempty"`
}

// NamespacesPerCreator limits the number of namespaces that the same user has created.
type NamespacesPerCreator struct {
	// hard is the largest number of namespaces per creator. 0 allows only those of the exceptions. A ServiceAccount
	// creates none unless an exception matches it.
	// +required
	// +kubebuilder:validation:Minimum=0
	Hard int32 `json:"hard"`

	// exceptions are creators with another limit. If several exceptions match a creator, the largest limit applies.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Exceptions []CreatorException `json:"exceptions,omitempty"`
}

// CreatorException gives some creators another limit on the number of their namespaces.
//
// +kubebuilder:validation:XValidation:rule="has(self.__namespace__) == (self.kind == 'ServiceAccount')",message="a ServiceAccount has a namespace, and only a ServiceAccount does"
type CreatorException struct {
	// kind is what name names: a User, a Group or a ServiceAccount. The groups of a user are known only while the user
	// makes a request. A Group therefore applies to namespaces that its members create, or move themselves, and not to
	// those that another user moves into the space.
	// +required
	// +kubebuilder:validation:Enum=User;Group;ServiceAccount
	Kind string `json:"kind"`

	// name is the name of the user, the group or the ServiceAccount.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// namespace is the namespace of the ServiceAccount.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// hard is the largest number of namespaces. By default there is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Hard *int32 `json:"hard,omitempty"`
}

// Conditions of a PolicySpace.
const (
	// PolicySpaceReady reports whether the space is in the hierarchy, and whether the usage that it limits is known for
	// all its namespaces.
	PolicySpaceReady = ConditionReady
	// PolicySpaceExceeded reports whether the usage is above the quota.
	PolicySpaceExceeded = "Exceeded"
)

// PolicySpaceStatus is what the operator observed, and the usage that it accounts for.
type PolicySpaceStatus struct {
	// observedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// path lists the spaces from the root to this one, for example company/payments.
	// +optional
	Path string `json:"path,omitempty"`

	// namespaces is the number of namespaces in this space and in the spaces below it.
	// +optional
	Namespaces int32 `json:"namespaces"`

	// quota shows usage and limit of each resource for kubectl get, for example pods: 3/100.
	// +optional
	Quota string `json:"quota,omitempty"`

	// hard contains the limits that are enforced: those of spec.quota whose usage is counted in all namespaces.
	// +optional
	Hard corev1.ResourceList `json:"hard,omitempty"`

	// used is the total usage of all namespaces, including reservations.
	// +optional
	Used corev1.ResourceList `json:"used,omitempty"`

	// uncounted names up to ten namespaces whose usage is unknown, because their ResourceQuota nstpl-policyspace is
	// missing or was changed. The operator repairs it. Until then, requests that the quota limits are denied.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Uncounted []string `json:"uncounted,omitempty"`

	// sharedWith names policy spaces that share their usage with this one, because namespaces move between the two, as
	// when a space is replaced by one of another name. Usage in either space counts in both, so both together use no
	// more than either allows.
	// +optional
	// +listType=map
	// +listMapKey=name
	SharedWith []PolicySpaceShare `json:"sharedWith,omitempty"`

	// reservations are usage that admission allowed and that the API server has not recorded yet.
	// +optional
	// +listType=atomic
	Reservations []QuotaReservation `json:"reservations,omitempty"`

	// namespaceReservations are reservations for namespaces that admission allowed and that the operator has not seen
	// yet. Only a space that limits the number of namespaces has them.
	// +optional
	// +listType=atomic
	NamespaceReservations []NamespaceReservation `json:"namespaceReservations,omitempty"`

	// namespacesAsOf is the resourceVersion of the newest namespace whose reservation has ended. A replica decides
	// about namespaces only once its cache is at least that new.
	// +optional
	NamespacesAsOf string `json:"namespacesAsOf,omitempty"`

	// conditions contains Ready, Reconciling and Stalled, as kstatus defines them for every kind, and Exceeded for a
	// space with a quota.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PolicySpaceShare names another policy space that usage is shared with.
type PolicySpaceShare struct {
	// name is the name of the other policy space.
	Name string `json:"name"`
	// until is when the sharing ends, unless another namespace moves before then.
	Until metav1.Time `json:"until"`
}

// QuotaReservation reserves usage before the API server records it, so that two requests cannot use the same room.
type QuotaReservation struct {
	// namespace is the namespace of the request.
	Namespace string `json:"namespace"`
	// used is the total usage of the namespace, including the request.
	Used corev1.ResourceList `json:"used"`
	// since is the resourceVersion of the namespace's ResourceQuota on which the reservation is based.
	Since string `json:"since"`
}

// NamespaceReservation reserves room for a namespace that is about to be created in the space, or to be moved there.
type NamespaceReservation struct {
	// name is the name of the namespace.
	Name string `json:"name"`
	// uid is the UID of the namespace. The API server chooses it before it asks admission.
	UID types.UID `json:"uid"`
	// creator is the user who created the namespace, or empty if that is unknown.
	// +optional
	Creator string `json:"creator,omitempty"`
	// since is the resourceVersion from which the namespace is changed. It is empty for a namespace that is created.
	// +optional
	Since string `json:"since,omitempty"`
}
