// Package scc decides which SecurityContextConstraints admit a pod and which values they set on it, and allocates user
// IDs and SELinux levels to namespaces. It decides as OpenShift's admission does.
//
// Review takes a pod, the annotations of its namespace and all constraints, and tries the constraints in the order of
// Sort: the highest priority first, then the most restrictive. A constraint first sets defaults on a copy of the pod,
// such as a user ID from the namespace's range, and then checks every field. The first constraint that denies nothing
// admits the pod.
//
// Allocate takes the annotations of all namespaces, and returns those that must be added so that every namespace has
// user IDs, groups and an SELinux level that no other namespace has. RemoveStale removes references to deleted
// ServiceAccounts and Namespaces from a constraint, so that a new object of the same name does not inherit a
// permission.
//
// These invariants hold:
//
//   - The result depends on the arguments only. A constraint that does not admit the pod does not change it.
//   - Reviewing an admitted pod again with the same constraint changes nothing.
//   - While a namespace lacks an annotation, no constraint is used that comes after one that waits for it: the
//     constraint of a pod does not depend on how early the pod is created.
//   - Two namespaces never share a user ID or a level after Allocate, and a second call allocates nothing.
package scc

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// volumeTypes are all volume types that a constraint can name, except hostPath.
var volumeTypes = []v1alpha1.FSType{
	"awsElasticBlockStore", "azureDisk", "azureFile", "cephFS", "cinder", "configMap", "csi", "downwardAPI", "emptyDir",
	"ephemeral",
	"fc", "flexVolume", "flocker", "gcePersistentDisk", "gitRepo", "glusterfs", "image", "iscsi", "nfs",
	"persistentVolumeClaim",
	"photonPersistentDisk", "portworxVolume", "projected", "quobyte", "rbd", "scaleIO", "secret", "storageOS",
	"vsphere",
}

// ExemptNamespaces are the namespaces whose pods are not subject to constraints.
var ExemptNamespaces = []string{metav1.NamespaceSystem, v1alpha1.OperatorNamespace}

// Defaulted returns a copy of a constraint with all defaults set.
func Defaulted(constraint *v1alpha1.SecurityContextConstraints) *v1alpha1.SecurityContextConstraints {
	c := constraint.DeepCopy()
	c.FSGroup.Type = cmp.Or(c.FSGroup.Type, v1alpha1.RunAsAny)
	c.SupplementalGroups.Type = cmp.Or(c.SupplementalGroups.Type, v1alpha1.RunAsAny)
	c.UserNamespaceLevel = cmp.Or(c.UserNamespaceLevel, v1alpha1.AllowHostLevel)
	if c.AllowPrivilegeEscalation == nil {
		c.AllowPrivilegeEscalation = new(true)
	}
	c.Volumes = defaultedVolumes(c.Volumes, c.AllowHostDirVolumePlugin)
	return c
}

// defaultedVolumes returns the allowed volume types. For hostPath, allowHostDirVolumePlugin overrides the list.
func defaultedVolumes(volumes []v1alpha1.FSType, hostPath bool) []v1alpha1.FSType {
	switch {
	case volumes == nil:
		volumes = []v1alpha1.FSType{v1alpha1.FSTypeAll}
	case len(volumes) == 0 && hostPath:
		volumes = []v1alpha1.FSType{v1alpha1.FSTypeHostPath}
	case len(volumes) == 0:
		volumes = []v1alpha1.FSType{v1alpha1.FSTypeNone}
	}
	all := slices.Contains(volumes, v1alpha1.FSTypeAll)
	switch {
	case hostPath && !all && !slices.Contains(volumes, v1alpha1.FSTypeHostPath):
		volumes = append(volumes, v1alpha1.FSTypeHostPath)
	case !hostPath:
		volumes = slices.DeleteFunc(volumes, func(v v1alpha1.FSType) bool {
			return v == v1alpha1.FSTypeHostPath || v == v1alpha1.FSTypeAll
		})
		if all {
			volumes = append(volumes, volumeTypes...)
		}
	}
	slices.Sort(volumes)
	return slices.Compact(volumes)
}

// Check returns why a constraint cannot be evaluated. The API server rejects such a constraint, but it may have been
// stored before the API server did.
func Check(c *v1alpha1.SecurityContextConstraints) error {
	user := c.RunAsUser
	switch {
	case !slices.Contains([]string{
		v1alpha1.MustRunAs, v1alpha1.MustRunAsRange, v1alpha1.MustRunAsServiceAccount, v1alpha1.MustRunAsNonRoot,
		v1alpha1.RunAsAny,
	}, user.Type):
		return fmt.Errorf("runAsUser.type is %q: it must be MustRunAs, MustRunAsRange, MustRunAsServiceAccount, "+
			"MustRunAsNonRoot or RunAsAny", user.Type)
	case user.Type == v1alpha1.MustRunAs && user.UID == nil:
		return fmt.Errorf("runAsUser.uid is missing: MustRunAs needs it")
	case user.Type == v1alpha1.MustRunAsRange && (user.UIDRangeMin == nil) != (user.UIDRangeMax == nil):
		return fmt.Errorf("runAsUser has only one of uidRangeMin and uidRangeMax: set both or none")
	case user.Type == v1alpha1.MustRunAsRange && user.UIDRangeMin != nil && *user.UIDRangeMin > *user.UIDRangeMax:
		return fmt.Errorf("runAsUser.uidRangeMin is greater than uidRangeMax")
	}
	for _, id := range []struct {
		field string
		id    *int64
	}{{"uid", user.UID}, {"uidRangeMin", user.UIDRangeMin}, {"uidRangeMax", user.UIDRangeMax}} {
		if id.id != nil && (*id.id < 0 || *id.id > math.MaxInt32) {
			return fmt.Errorf("runAsUser.%s is %d: it must be from 0 to %d", id.field, *id.id, math.MaxInt32)
		}
	}
	if !slices.Contains([]v1alpha1.PodSecurityStandard{
		"", v1alpha1.StandardBaseline, v1alpha1.StandardRestricted,
	}, c.PodSecurityStandard) {
		return fmt.Errorf("podSecurityStandard is %q: it must be Baseline or Restricted", c.PodSecurityStandard)
	}
	if slices.Contains(c.SeccompProfiles, localhost) {
		return fmt.Errorf("seccompProfiles has %s without the name of a file", localhost)
	}
	for _, strategy := range []struct{ field, is string }{
		{"seLinuxContext", c.SELinuxContext.Type}, {"fsGroup", cmp.Or(c.FSGroup.Type, v1alpha1.RunAsAny)},
		{"supplementalGroups", cmp.Or(c.SupplementalGroups.Type, v1alpha1.RunAsAny)},
	} {
		if strategy.is != v1alpha1.MustRunAs && strategy.is != v1alpha1.RunAsAny {
			return fmt.Errorf("%s.type is %q: it must be MustRunAs or RunAsAny", strategy.field, strategy.is)
		}
	}
	for _, r := range slices.Concat(c.FSGroup.Ranges, c.SupplementalGroups.Ranges) {
		if r.Min < 0 || r.Min > r.Max || r.Max > math.MaxInt32 {
			return fmt.Errorf("%d-%d is not a range of groups", r.Min, r.Max)
		}
	}
	return nil
}

// Sort sorts constraints in the order in which they are tried: the highest priority first, then the most restrictive
// first, then by name. Among those that OpenShift considers equal, those with a podSecurityStandard come first. They
// must be Defaulted.
func Sort(constraints []*v1alpha1.SecurityContextConstraints) {
	slices.SortFunc(constraints, func(a, b *v1alpha1.SecurityContextConstraints) int {
		return cmp.Or(cmp.Compare(priority(b), priority(a)), cmp.Compare(points(a), points(b)),
			cmp.Compare(standardRank(a), standardRank(b)), strings.Compare(a.Name, b.Name))
	})
}

// standardRank is less for a constraint whose podSecurityStandard allows less.
func standardRank(c *v1alpha1.SecurityContextConstraints) int {
	return slices.Index([]v1alpha1.PodSecurityStandard{
		v1alpha1.StandardRestricted, v1alpha1.StandardBaseline, "",
	}, c.PodSecurityStandard)
}

func priority(c *v1alpha1.SecurityContextConstraints) int32 {
	if c.Priority == nil {
		return 0
	}
	return *c.Priority
}

// points returns a score of what a constraint allows, with OpenShift's weights. A more restrictive constraint has fewer
// points.
func points(c *v1alpha1.SecurityContextConstraints) int {
	total := volumePoints(c) + strategyPoints[c.RunAsUser.Type] + strategyPoints[c.SELinuxContext.Type] +
		capabilityPoints(c)
	if c.AllowPrivilegedContainer {
		total += 1_600_000
	}
	if c.AllowHostPorts {
		total += 800_000
	}
	if c.AllowHostNetwork {
		total += 400_000
	}
	return total
}

var strategyPoints = map[string]int{
	v1alpha1.RunAsAny: 40_000, v1alpha1.MustRunAsNonRoot: 30_000, v1alpha1.MustRunAsRange: 20_000,
	v1alpha1.MustRunAs: 10_000, v1alpha1.MustRunAsServiceAccount: 10_000,
}

func volumePoints(c *v1alpha1.SecurityContextConstraints) int {
	harmless := []v1alpha1.FSType{"secret", "configMap", "emptyDir", "downwardAPI", "projected", v1alpha1.FSTypeNone}
	highest := 0
	for _, volume := range c.Volumes {
		switch {
		case volume == v1alpha1.FSTypeHostPath || volume == v1alpha1.FSTypeAll:
			return 200_000
		case !slices.Contains(harmless, volume):
			highest = 100_000
		}
	}
	return highest
}

func capabilityPoints(c *v1alpha1.SecurityContextConstraints) int {
	everything := func(capability v1alpha1.Capability) bool { return strings.EqualFold(string(capability), "ALL") }
	total := 5_000 + 300*len(c.DefaultAddCapabilities)
	if slices.ContainsFunc(c.AllowedCapabilities, func(a v1alpha1.Capability) bool {
		return a == v1alpha1.AllCapabilities || everything(a)
	}) {
		total += 4_000
	} else {
		total += 10 * len(c.AllowedCapabilities)
	}
	if slices.ContainsFunc(c.RequiredDropCapabilities, everything) {
		total -= 3_000
	} else {
		total -= 50 * len(c.RequiredDropCapabilities)
	}
	return min(max(total, 0), 9_999)
}
