package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SecurityContextConstraints say what pods may ask for, and who may use them: the users and groups that are listed, and
// those with the verb use on them in the pod's namespace ("Security context constraints"). The fields are those of
// OpenShift's security.openshift.io/v1, with the same names, meanings and defaults.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=scc,path=securitycontextconstraints,singular=securitycontextconstraints
// +kubebuilder:printcolumn:name="Priv",type=boolean,JSONPath=`.allowPrivilegedContainer`
// +kubebuilder:printcolumn:name="Caps",type=string,JSONPath=`.allowedCapabilities`
// +kubebuilder:printcolumn:name="SELinux",type=string,JSONPath=`.seLinuxContext.type`
// +kubebuilder:printcolumn:name="RunAsUser",type=string,JSONPath=`.runAsUser.type`
// +kubebuilder:printcolumn:name="FSGroup",type=string,JSONPath=`.fsGroup.type`
// +kubebuilder:printcolumn:name="SupGroup",type=string,JSONPath=`.supplementalGroups.type`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.priority`
// +kubebuilder:printcolumn:name="ReadOnlyRootFS",type=boolean,JSONPath=`.readOnlyRootFilesystem`,priority=1
// +kubebuilder:printcolumn:name="Volumes",type=string,JSONPath=`.volumes`,priority=1
// +kubebuilder:validation:XValidation:rule="!has(self.requiredDropCapabilities) || !has(self.defaultAddCapabilities) || !self.requiredDropCapabilities.exists(c, c in self.defaultAddCapabilities)",message="a capability can't be both required to be dropped and added by default",fieldPath=".requiredDropCapabilities"
// +kubebuilder:validation:XValidation:rule="!has(self.requiredDropCapabilities) || !has(self.allowedCapabilities) || !self.requiredDropCapabilities.exists(c, c in self.allowedCapabilities || '*' in self.allowedCapabilities)",message="a capability can't be both required to be dropped and allowed, and with * all are allowed",fieldPath=".requiredDropCapabilities"
// +kubebuilder:validation:XValidation:rule="!has(self.defaultAllowPrivilegeEscalation) || self.defaultAllowPrivilegeEscalation != true || !has(self.allowPrivilegeEscalation) || self.allowPrivilegeEscalation != false",message="the default can't be to allow what allowPrivilegeEscalation: false forbids",fieldPath=".defaultAllowPrivilegeEscalation"
// +kubebuilder:validation:XValidation:rule="!has(self.volumes) || !('none' in self.volumes) || size(self.volumes) == 1",message="none must stand alone",fieldPath=".volumes"
// +kubebuilder:validation:XValidation:rule="!has(self.allowedFlexVolumes) || size(self.allowedFlexVolumes) == 0 || !has(self.volumes) || self.volumes.exists(v, v == 'flexVolume' || v == '*')",message="allowedFlexVolumes need flexVolume or * in volumes",fieldPath=".allowedFlexVolumes"
// +kubebuilder:validation:XValidation:rule="!has(self.allowedUnsafeSysctls) || !has(self.forbiddenSysctls) || !self.allowedUnsafeSysctls.exists(a, self.forbiddenSysctls.exists(f, a == f || a.endsWith('*') && f.startsWith(a.substring(0, size(a) - 1)) || f.endsWith('*') && a.startsWith(f.substring(0, size(f) - 1))))",message="allowedUnsafeSysctls and forbiddenSysctls must not overlap",fieldPath=".forbiddenSysctls"
type SecurityContextConstraints struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// priority orders the constraints that somebody may use: the highest is tried first, and among equals the most
	// restrictive. Without one it is 0.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	Priority *int32 `json:"priority,omitempty"`

	// allowPrivilegedContainer lets containers be privileged.
	// +optional
	AllowPrivilegedContainer bool `json:"allowPrivilegedContainer,omitempty"`

	// defaultAddCapabilities are added to every container that does not drop them, and may be added.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	DefaultAddCapabilities []Capability `json:"defaultAddCapabilities,omitempty"`

	// requiredDropCapabilities are dropped from every container.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	RequiredDropCapabilities []Capability `json:"requiredDropCapabilities,omitempty"`

	// allowedCapabilities may be added by containers; * is all.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	AllowedCapabilities []Capability `json:"allowedCapabilities,omitempty"`

	// allowHostDirVolumePlugin lets pods mount directories of the host, whatever volumes says.
	// +optional
	AllowHostDirVolumePlugin bool `json:"allowHostDirVolumePlugin,omitempty"`

	// volumes are the types of volumes that pods may have, by the name of the volume's field; * is all, none is none.
	// Without it, all but hostPath are.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	Volumes []FSType `json:"volumes,omitempty"`

	// allowedFlexVolumes are the drivers of flexVolumes that pods may have; none listed is all.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	AllowedFlexVolumes []AllowedFlexVolume `json:"allowedFlexVolumes,omitempty"`

	// allowHostNetwork lets pods use the host's network.
	// +optional
	AllowHostNetwork bool `json:"allowHostNetwork,omitempty"`

	// allowHostPorts lets containers have ports of the host.
	// +optional
	AllowHostPorts bool `json:"allowHostPorts,omitempty"`

	// allowHostPID lets pods see the host's processes.
	// +optional
	AllowHostPID bool `json:"allowHostPID,omitempty"`

	// allowHostIPC lets pods use the host's IPC.
	// +optional
	AllowHostIPC bool `json:"allowHostIPC,omitempty"`

	// userNamespaceLevel RequirePodLevel makes pods say hostUsers: false.
	// +optional
	// +kubebuilder:default=AllowHostLevel
	UserNamespaceLevel UserNamespaceLevel `json:"userNamespaceLevel,omitempty"`

	// defaultAllowPrivilegeEscalation is what containers get that don't say whether they may gain privileges.
	// +optional
	// +nullable
	DefaultAllowPrivilegeEscalation *bool `json:"defaultAllowPrivilegeEscalation,omitempty"`

	// allowPrivilegeEscalation lets containers gain privileges. It is true unless it says false.
	// +optional
	// +nullable
	AllowPrivilegeEscalation *bool `json:"allowPrivilegeEscalation,omitempty"`

	// seLinuxContext says which SELinux options pods get and may have.
	// +required
	SELinuxContext SELinuxContextStrategyOptions `json:"seLinuxContext"`

	// runAsUser says which user ids containers get and may have.
	// +required
	RunAsUser RunAsUserStrategyOptions `json:"runAsUser"`

	// supplementalGroups says which supplemental groups pods get and may have.
	// +optional
	SupplementalGroups GroupStrategyOptions `json:"supplementalGroups,omitempty"`

	// fsGroup says which group owns the volumes of pods.
	// +optional
	FSGroup GroupStrategyOptions `json:"fsGroup,omitempty"`

	// readOnlyRootFilesystem makes containers have one.
	// +optional
	ReadOnlyRootFilesystem bool `json:"readOnlyRootFilesystem,omitempty"`

	// users may use the constraints.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=1024
	Users []string `json:"users,omitempty"`

	// groups may use the constraints.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=1024
	Groups []string `json:"groups,omitempty"`

	// seccompProfiles may be used: runtime/default, unconfined, localhost/ and the name of a file, or * for all. Pods
	// without one get the first. Without any, pods may have none.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:XValidation:rule="self != 'localhost/'",message="localhost/ needs the name of a file"
	SeccompProfiles []string `json:"seccompProfiles,omitempty"`

	// allowedUnsafeSysctls may be set besides the safe ones; a * at the end is any ending.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(s, s == '*' || s.matches('^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*([a-z0-9]([-_a-z0-9]*[a-z0-9])?|[a-z0-9][-_a-z0-9]*[*]|[*])$')) && (!('*' in self) || size(self) == 1)",message="a sysctl is a name such as net.core.somaxconn, or the beginning of one and a *; a * without a name stands alone"
	// +kubebuilder:validation:items:MaxLength=253
	AllowedUnsafeSysctls []string `json:"allowedUnsafeSysctls,omitempty"`

	// forbiddenSysctls may not be set, safe or not; a * at the end is any ending.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(s, s == '*' || s.matches('^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*([a-z0-9]([-_a-z0-9]*[a-z0-9])?|[a-z0-9][-_a-z0-9]*[*]|[*])$')) && (!('*' in self) || size(self) == 1)",message="a sysctl is a name such as net.core.somaxconn, or the beginning of one and a *; a * without a name stands alone"
	// +kubebuilder:validation:items:MaxLength=253
	ForbiddenSysctls []string `json:"forbiddenSysctls,omitempty"`
}

// SecurityContextConstraintsList is a list of SecurityContextConstraints.
//
// +kubebuilder:object:root=true
type SecurityContextConstraintsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SecurityContextConstraints `json:"items"`
}

// Capability is the name of a Linux capability, without CAP_, or in a list of allowed ones *.
//
// +kubebuilder:validation:MaxLength=64
type Capability string

// AllCapabilities in a list of allowed ones is all of them.
const AllCapabilities Capability = "*"

// FSType is a type of volumes, by the name of its field in a pod's volumes.
//
// +kubebuilder:validation:MaxLength=64
type FSType string

// The types that mean more than themselves.
const (
	FSTypeAll      FSType = "*"
	FSTypeNone     FSType = "none"
	FSTypeHostPath FSType = "hostPath"
)

// AllowedFlexVolume is a driver of flexVolumes.
type AllowedFlexVolume struct {
	// driver is its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Driver string `json:"driver"`
}

// UserNamespaceLevel says whether pods must have a user namespace of their own.
//
// +kubebuilder:validation:Enum=AllowHostLevel;RequirePodLevel
type UserNamespaceLevel string

// The levels.
const (
	AllowHostLevel  UserNamespaceLevel = "AllowHostLevel"
	RequirePodLevel UserNamespaceLevel = "RequirePodLevel"
)

// Types of strategies.
const (
	MustRunAs        = "MustRunAs"
	MustRunAsRange   = "MustRunAsRange"
	MustRunAsNonRoot = "MustRunAsNonRoot"
	RunAsAny         = "RunAsAny"
)

// SELinuxContextStrategyOptions say which SELinux options pods get and may have.
type SELinuxContextStrategyOptions struct {
	// type is MustRunAs, for the options below, or RunAsAny.
	// +required
	// +kubebuilder:validation:Enum=MustRunAs;RunAsAny
	Type string `json:"type"`

	// seLinuxOptions are what MustRunAs gives and asks for. Without a level it is the one that the namespace was given.
	// +optional
	// +nullable
	SELinuxOptions *corev1.SELinuxOptions `json:"seLinuxOptions,omitempty"`
}

// RunAsUserStrategyOptions say which user ids containers get and may have.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'MustRunAs' || has(self.uid)",message="MustRunAs needs a uid: give one, or choose MustRunAsRange for those of the namespace",fieldPath=".uid"
// +kubebuilder:validation:XValidation:rule="has(self.uidRangeMin) == has(self.uidRangeMax)",message="a range has both uidRangeMin and uidRangeMax",fieldPath=".uidRangeMax"
// +kubebuilder:validation:XValidation:rule="!has(self.uidRangeMin) || !has(self.uidRangeMax) || self.uidRangeMin <= self.uidRangeMax",message="uidRangeMin must not be greater than uidRangeMax",fieldPath=".uidRangeMin"
type RunAsUserStrategyOptions struct {
	// type is MustRunAs, for uid, MustRunAsRange, MustRunAsNonRoot or RunAsAny.
	// +required
	// +kubebuilder:validation:Enum=MustRunAs;MustRunAsRange;MustRunAsNonRoot;RunAsAny
	Type string `json:"type"`

	// uid is the id for MustRunAs.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	UID *int64 `json:"uid,omitempty"`

	// uidRangeMin is the first id for MustRunAsRange. Without bounds the ids are those that the namespace was given.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	UIDRangeMin *int64 `json:"uidRangeMin,omitempty"`

	// uidRangeMax is the last id for MustRunAsRange.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	UIDRangeMax *int64 `json:"uidRangeMax,omitempty"`
}

// GroupStrategyOptions say which groups pods get and may have.
type GroupStrategyOptions struct {
	// type is MustRunAs, for the ranges below, or RunAsAny, which it is without one.
	// +optional
	// +kubebuilder:validation:Enum="";MustRunAs;RunAsAny
	Type string `json:"type,omitempty"`

	// ranges are the ids for MustRunAs. Without any they are those that the namespace was given.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	Ranges []IDRange `json:"ranges,omitempty"`
}

// IDRange is a range of ids, its ends included.
//
// +kubebuilder:validation:XValidation:rule="!has(self.min) || !has(self.max) || self.min <= self.max",message="min must not be greater than max"
type IDRange struct {
	// min is the first id.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	Min int64 `json:"min,omitempty"`

	// max is the last id.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	Max int64 `json:"max,omitempty"`
}
