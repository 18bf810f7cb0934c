package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SecurityContextConstraints limit the security-relevant fields of pods. The fields, their defaults and the decisions
// are those of OpenShift's security.openshift.io/v1. A pod is admitted by the first constraint that its service account
// or its creator may use and that allows every field of the pod. Fields that the pod leaves open are set. A user or
// service account may use a constraint if users or groups list it, or if it has the verb use on the constraint in the
// pod's namespace. While no SecurityContextConstraints exist, pods are not limited.
//
// Example:
//
//	apiVersion: policy.nstpl.dev/v1alpha1
//	kind: SecurityContextConstraints
//	metadata:
//	  name: web
//	priority: 10
//	runAsUser:
//	  type: MustRunAsRange
//	seLinuxContext:
//	  type: MustRunAs
//	fsGroup:
//	  type: MustRunAs
//	supplementalGroups:
//	  type: RunAsAny
//	requiredDropCapabilities: [ALL]
//	allowedCapabilities: [NET_BIND_SERVICE]
//	allowPrivilegeEscalation: false
//	seccompProfiles: [runtime/default]
//	volumes: [configMap, emptyDir, persistentVolumeClaim, projected, secret]
//	groups: [web-operators]
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=scc,path=securitycontextconstraints,singular=securitycontextconstraints
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Priv",type=boolean,JSONPath=`.allowPrivilegedContainer`
// +kubebuilder:printcolumn:name="SELinux",type=string,JSONPath=`.seLinuxContext.type`
// +kubebuilder:printcolumn:name="RunAsUser",type=string,JSONPath=`.runAsUser.type`
// +kubebuilder:printcolumn:name="FSGroup",type=string,JSONPath=`.fsGroup.type`
// +kubebuilder:printcolumn:name="SupGroup",type=string,JSONPath=`.supplementalGroups.type`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.priority`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="ReadOnlyRootFS",type=boolean,JSONPath=`.readOnlyRootFilesystem`,priority=1
// +kubebuilder:validation:XValidation:rule="!has(self.requiredDropCapabilities) || !has(self.defaultAddCapabilities) || !self.requiredDropCapabilities.exists(c, c in self.defaultAddCapabilities)",message="a capability can't be both required to be dropped and added by default",fieldPath=".requiredDropCapabilities"
// +kubebuilder:validation:XValidation:rule="!has(self.requiredDropCapabilities) || !has(self.allowedCapabilities) || !self.requiredDropCapabilities.exists(c, c in self.allowedCapabilities || '*' in self.allowedCapabilities)",message="a capability can't be both required to be dropped and allowed, and with * all are allowed",fieldPath=".requiredDropCapabilities"
// +kubebuilder:validation:XValidation:rule="!has(self.defaultAllowPrivilegeEscalation) || self.defaultAllowPrivilegeEscalation != true || !has(self.allowPrivilegeEscalation) || self.allowPrivilegeEscalation != false",message="the default can't be to allow what allowPrivilegeEscalation: false forbids",fieldPath=".defaultAllowPrivilegeEscalation"
// +kubebuilder:validation:XValidation:rule="!has(self.volumes) || !('none' in self.volumes) || size(self.volumes) == 1",message="none must stand alone",fieldPath=".volumes"
// +kubebuilder:validation:XValidation:rule="!has(self.allowedFlexVolumes) || size(self.allowedFlexVolumes) == 0 || !has(self.volumes) || self.volumes.exists(v, v == 'flexVolume' || v == '*')",message="allowedFlexVolumes need flexVolume or * in volumes",fieldPath=".allowedFlexVolumes"
// +kubebuilder:validation:XValidation:rule="!has(self.allowedUnsafeSysctls) || !has(self.forbiddenSysctls) || !self.allowedUnsafeSysctls.exists(a, self.forbiddenSysctls.exists(f, a == f || a.endsWith('*') && f.startsWith(a.substring(0, size(a) - 1)) || f.endsWith('*') && a.startsWith(f.substring(0, size(f) - 1))))",message="allowedUnsafeSysctls and forbiddenSysctls must not overlap",fieldPath=".forbiddenSysctls"
type SecurityContextConstraints struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// priority orders the constraints that a pod may be admitted by. The highest is tried first, and among equals the
	// most restrictive. The default is 0.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	Priority *int32 `json:"priority,omitempty"`

	// allowPrivilegedContainer allows privileged containers. The default is false.
	// +optional
	AllowPrivilegedContainer bool `json:"allowPrivilegedContainer,omitempty"`

	// defaultAddCapabilities are added to every container that does not drop them, for example [NET_BIND_SERVICE].
	// Containers may also add them. By default none are added.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	DefaultAddCapabilities []Capability `json:"defaultAddCapabilities,omitempty"`

	// requiredDropCapabilities are dropped from every container, for example [ALL]. By default none are dropped.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	RequiredDropCapabilities []Capability `json:"requiredDropCapabilities,omitempty"`

	// allowedCapabilities may be added by containers, for example [NET_BIND_SERVICE]; [*] allows all. By default none
	// may be added.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	AllowedCapabilities []Capability `json:"allowedCapabilities,omitempty"`

	// allowHostDirVolumePlugin allows hostPath volumes, whatever volumes contains. The default is false.
	// +optional
	AllowHostDirVolumePlugin bool `json:"allowHostDirVolumePlugin,omitempty"`

	// volumes are the types of volumes that pods may have, named as the fields of a pod's volume, for example
	// [configMap, emptyDir]; [*] allows all, and [none] allows none. By default all types but hostPath are allowed.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	Volumes []FSType `json:"volumes,omitempty"`

	// allowedFlexVolumes are the drivers of flexVolumes that pods may have. By default all drivers are allowed if
	// volumes allows flexVolume.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	AllowedFlexVolumes []AllowedFlexVolume `json:"allowedFlexVolumes,omitempty"`

	// allowHostNetwork allows pods in the host's network. The default is false.
	// +optional
	AllowHostNetwork bool `json:"allowHostNetwork,omitempty"`

	// allowHostPorts allows containers to use ports of the host. The default is false.
	// +optional
	AllowHostPorts bool `json:"allowHostPorts,omitempty"`

	// allowHostPID allows pods in the host's process namespace. The default is false.
	// +optional
	AllowHostPID bool `json:"allowHostPID,omitempty"`

	// allowHostIPC allows pods in the host's IPC namespace. The default is false.
	// +optional
	AllowHostIPC bool `json:"allowHostIPC,omitempty"`

	// userNamespaceLevel is whether pods must have a user namespace of their own. RequirePodLevel requires hostUsers:
	// false. AllowHostLevel, the default, does not.
	// +optional
	// +kubebuilder:default=AllowHostLevel
	UserNamespaceLevel UserNamespaceLevel `json:"userNamespaceLevel,omitempty"`

	// podSecurityStandard also judges fields that OpenShift's constraints do not judge, as the Pod Security Standard of
	// that name does: the host of probes and lifecycle hooks must be empty, the AppArmor profile must not be
	// Unconfined, and procMount must be Default. Baseline allows every procMount with hostUsers: false, and Restricted
	// does not. By default, these fields are not judged, as in OpenShift.
	// +optional
	PodSecurityStandard PodSecurityStandard `json:"podSecurityStandard,omitempty"`

	// defaultAllowPrivilegeEscalation is set in containers that do not set allowPrivilegeEscalation. By default, false
	// is set if the constraint has allowPrivilegeEscalation: false, and otherwise the field stays unset.
	// +optional
	// +nullable
	DefaultAllowPrivilegeEscalation *bool `json:"defaultAllowPrivilegeEscalation,omitempty"`

	// allowPrivilegeEscalation allows containers with allowPrivilegeEscalation: true. The default is true.
	// +optional
	// +nullable
	AllowPrivilegeEscalation *bool `json:"allowPrivilegeEscalation,omitempty"`

	// seLinuxContext is which SELinux options pods may have, and which are set if a pod has none.
	// +required
	SELinuxContext SELinuxContextStrategyOptions `json:"seLinuxContext"`

	// runAsUser is which user IDs containers may have, and which is set if a container has none.
	// +required
	RunAsUser RunAsUserStrategyOptions `json:"runAsUser"`

	// supplementalGroups is which supplemental groups pods may have, and which are set if a pod has none. The default
	// is RunAsAny.
	// +optional
	SupplementalGroups GroupStrategyOptions `json:"supplementalGroups,omitempty"`

	// fsGroup is which fsGroup, the group that owns volumes, pods may have, and which is set if a pod has none. The
	// default is RunAsAny.
	// +optional
	FSGroup GroupStrategyOptions `json:"fsGroup,omitempty"`

	// readOnlyRootFilesystem requires a read-only root file system in every container. It is set where a container
	// leaves it open. The default is false.
	// +optional
	ReadOnlyRootFilesystem bool `json:"readOnlyRootFilesystem,omitempty"`

	// users are the users and service accounts that may use the constraint, for example [jane,
	// "system:serviceaccount:builds:default"].
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=1024
	Users []string `json:"users,omitempty"`

	// groups are the groups whose members may use the constraint, for example ["system:serviceaccounts:builds"].
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=1024
	Groups []string `json:"groups,omitempty"`

	// seccompProfiles are the profiles that pods may have: runtime/default, unconfined, localhost/FILE, or * for all. A
	// pod without a profile gets the first. By default pods may not set a profile.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:XValidation:rule="self != 'localhost/'",message="localhost/ needs the name of a file"
	SeccompProfiles []string `json:"seccompProfiles,omitempty"`

	// allowedUnsafeSysctls may be set in addition to the safe sysctls, for example [net.core.somaxconn, "net.ipv4.*"].
	// A * at the end matches any ending. By default only safe sysctls may be set.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(s, s == '*' || s.matches('^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*([a-z0-9]([-_a-z0-9]*[a-z0-9])?|[a-z0-9][-_a-z0-9]*[*]|[*])$')) && (!('*' in self) || size(self) == 1)",message="a sysctl is a name such as net.core.somaxconn, or the beginning of one and a *; a * without a name stands alone"
	// +kubebuilder:validation:items:MaxLength=253
	AllowedUnsafeSysctls []string `json:"allowedUnsafeSysctls,omitempty"`

	// forbiddenSysctls may not be set, whether they are safe or not, for example ["kernel.*"]. A * at the end matches
	// any ending. By default none are forbidden.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(s, s == '*' || s.matches('^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*([a-z0-9]([-_a-z0-9]*[a-z0-9])?|[a-z0-9][-_a-z0-9]*[*]|[*])$')) && (!('*' in self) || size(self) == 1)",message="a sysctl is a name such as net.core.somaxconn, or the beginning of one and a *; a * without a name stands alone"
	// +kubebuilder:validation:items:MaxLength=253
	ForbiddenSysctls []string `json:"forbiddenSysctls,omitempty"`

	// status is what the operator observed. The operator writes it. OpenShift's SecurityContextConstraints have none.
	// +optional
	Status SecurityContextConstraintsStatus `json:"status,omitempty,omitzero"`
}

// SecurityContextConstraintsStatus is what the operator observed.
type SecurityContextConstraintsStatus struct {
	// observedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions contains Ready: whether the operator admits pods by the constraint. Reconciling and Stalled are those
	// of every kind, as kstatus defines them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SecurityContextConstraintsList is a list of SecurityContextConstraints.
//
// +kubebuilder:object:root=true
type SecurityContextConstraintsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SecurityContextConstraints `json:"items"`
}

// Capability is the name of a Linux capability without CAP_, for example NET_ADMIN. In allowedCapabilities it may be *.
//
// +kubebuilder:validation:MaxLength=64
type Capability string

// AllCapabilities in allowedCapabilities allows all capabilities.
const AllCapabilities Capability = "*"

// FSType is a type of volumes, named as the field in a pod's volumes, for example configMap.
//
// +kubebuilder:validation:MaxLength=64
type FSType string

// Special types of volumes.
const (
	// FSTypeAll allows all types.
	FSTypeAll FSType = "*"
	// FSTypeNone allows no type.
	FSTypeNone FSType = "none"
	// FSTypeHostPath is allowed by allowHostDirVolumePlugin, too.
	FSTypeHostPath FSType = "hostPath"
)

// AllowedFlexVolume names a driver of flexVolumes.
type AllowedFlexVolume struct {
	// driver is the name of the driver, for example example.com/disk.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Driver string `json:"driver"`
}

// UserNamespaceLevel is whether pods must have a user namespace of their own.
//
// +kubebuilder:validation:Enum=AllowHostLevel;RequirePodLevel
type UserNamespaceLevel string

// The levels.
const (
	// AllowHostLevel allows pods in the host's user namespace.
	AllowHostLevel UserNamespaceLevel = "AllowHostLevel"
	// RequirePodLevel requires hostUsers: false.
	RequirePodLevel UserNamespaceLevel = "RequirePodLevel"
)

// PodSecurityStandard is the Pod Security Standard by which further fields are judged.
//
// +kubebuilder:validation:Enum=Baseline;Restricted
type PodSecurityStandard string

// The standards.
const (
	StandardBaseline   PodSecurityStandard = "Baseline"
	StandardRestricted PodSecurityStandard = "Restricted"
)

// Types of strategies.
const (
	MustRunAs               = "MustRunAs"
	MustRunAsRange          = "MustRunAsRange"
	MustRunAsServiceAccount = "MustRunAsServiceAccount"
	MustRunAsNonRoot        = "MustRunAsNonRoot"
	RunAsAny                = "RunAsAny"
)

// SELinuxContextStrategyOptions is which SELinux options pods may have and are given.
type SELinuxContextStrategyOptions struct {
	// type is MustRunAs, which requires the options in seLinuxOptions, or RunAsAny.
	// +required
	// +kubebuilder:validation:Enum=MustRunAs;RunAsAny
	Type string `json:"type"`

	// seLinuxOptions are the options that MustRunAs requires and sets, for example {level: "s0:c1,c2"}. By default the
	// level is the one that the operator allocated to the namespace.
	// +optional
	// +nullable
	SELinuxOptions *corev1.SELinuxOptions `json:"seLinuxOptions,omitempty"`
}

// RunAsUserStrategyOptions is which user IDs containers may have and are given.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'MustRunAs' || has(self.uid)",message="MustRunAs needs a uid: give one, or choose MustRunAsRange for those of the namespace",fieldPath=".uid"
// +kubebuilder:validation:XValidation:rule="has(self.uidRangeMin) == has(self.uidRangeMax)",message="a range has both uidRangeMin and uidRangeMax",fieldPath=".uidRangeMax"
// +kubebuilder:validation:XValidation:rule="!has(self.uidRangeMin) || !has(self.uidRangeMax) || self.uidRangeMin <= self.uidRangeMax",message="uidRangeMin must not be greater than uidRangeMax",fieldPath=".uidRangeMin"
// +kubebuilder:validation:XValidation:rule="self.type != 'MustRunAsServiceAccount' || !has(self.uid) && !has(self.uidRangeMin) && !has(self.uidRangeMax)",message="MustRunAsServiceAccount takes the ID from the service account: leave out uid, uidRangeMin and uidRangeMax",fieldPath=".type"
type RunAsUserStrategyOptions struct {
	// type is MustRunAs, which requires uid; MustRunAsRange, which requires an ID of a range and sets its first;
	// MustRunAsServiceAccount, which requires the ID that the operator allocated to the pod's service account, one of
	// the namespace's that no other service account has; MustRunAsNonRoot, which denies user ID 0; or RunAsAny.
	// OpenShift has no MustRunAsServiceAccount.
	// +required
	// +kubebuilder:validation:Enum=MustRunAs;MustRunAsRange;MustRunAsServiceAccount;MustRunAsNonRoot;RunAsAny
	Type string `json:"type"`

	// uid is the user ID for MustRunAs, for example 1000.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	UID *int64 `json:"uid,omitempty"`

	// uidRangeMin is the first user ID for MustRunAsRange, for example 1000. By default the range is the one that the
	// operator allocated to the namespace.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	UIDRangeMin *int64 `json:"uidRangeMin,omitempty"`

	// uidRangeMax is the last user ID for MustRunAsRange, for example 1999.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	UIDRangeMax *int64 `json:"uidRangeMax,omitempty"`
}

// GroupStrategyOptions is which groups pods may have and are given.
type GroupStrategyOptions struct {
	// type is MustRunAs, which requires groups of ranges and sets the first, or RunAsAny, which is the default.
	// +optional
	// +kubebuilder:validation:Enum="";MustRunAs;RunAsAny
	Type string `json:"type,omitempty"`

	// ranges are the group IDs for MustRunAs, for example [{min: 1000, max: 1999}]. By default the range is the one
	// that the operator allocated to the namespace.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	Ranges []IDRange `json:"ranges,omitempty"`
}

// IDRange is a range of IDs, including both ends.
//
// +kubebuilder:validation:XValidation:rule="!has(self.min) || !has(self.max) || self.min <= self.max",message="min must not be greater than max"
type IDRange struct {
	// min is the first ID.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	Min int64 `json:"min,omitempty"`

	// max is the last ID.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	Max int64 `json:"max,omitempty"`
}
