package scc

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// provider is a constraint together with the user IDs, groups and level that it takes from a namespace.
type provider struct {
	*v1alpha1.SecurityContextConstraints
	uids                         v1alpha1.IDRange
	seLinux                      corev1.SELinuxOptions
	fsGroups, supplementalGroups []v1alpha1.IDRange
	reasons                      []Reason
}

// newProvider returns a provider from the annotations of the pod's namespace and service account. It returns an error
// if the constraint or an annotation is invalid, and a *Missing if an annotation does not exist yet.
func newProvider(
	constraint *v1alpha1.SecurityContextConstraints, annotations map[string]string,
	ofAccount func() (map[string]string, error),
) (*provider, error) {
	if err := Check(constraint); err != nil {
		return nil, err
	}
	p := &provider{
		SecurityContextConstraints: constraint, fsGroups: constraint.FSGroup.Ranges,
		supplementalGroups: constraint.SupplementalGroups.Ranges,
	}
	var err error
	switch user := constraint.RunAsUser; {
	case user.Type == v1alpha1.MustRunAs:
		p.uids = v1alpha1.IDRange{Min: *user.UID, Max: *user.UID}
	case user.Type == v1alpha1.MustRunAsRange && user.UIDRangeMin != nil:
		p.uids = v1alpha1.IDRange{Min: *user.UIDRangeMin, Max: *user.UIDRangeMax}
	case user.Type == v1alpha1.MustRunAsRange:
		if p.uids, err = uidRange(annotations); err != nil {
			return nil, err
		}
	case user.Type == v1alpha1.MustRunAsServiceAccount:
		if p.uids, err = accountRange(annotations, ofAccount); err != nil {
			return nil, err
		}
	}
	if constraint.SELinuxContext.Type == v1alpha1.MustRunAs {
		if options := constraint.SELinuxContext.SELinuxOptions; options != nil {
			p.seLinux = *options
		}
		if p.seLinux.Level == "" {
			if p.seLinux.Level = annotations[v1alpha1.MCSAnnotation]; p.seLinux.Level == "" {
				return nil, missingInNamespace(v1alpha1.MCSAnnotation)
			}
		}
	}
	if constraint.FSGroup.Type == v1alpha1.MustRunAs && len(p.fsGroups) == 0 {
		blocks, err := groupRanges(annotations)
		if err != nil {
			return nil, err
		}
		p.fsGroups = []v1alpha1.IDRange{{Min: blocks[0].Min, Max: blocks[0].Min}}
	}
	if constraint.SupplementalGroups.Type == v1alpha1.MustRunAs && len(p.supplementalGroups) == 0 {
		if p.supplementalGroups, err = groupRanges(annotations); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// admit sets the defaults of the constraint on a pod, and returns the reasons why the constraint does not allow the
// pod.
func (p *provider) admit(pod *corev1.Pod) []Reason {
	p.checkStandard(pod)
	if isWindows(pod) {
		p.admitWindows(pod)
		return p.reasons
	}
	p.generatePod(pod)
	p.validatePod(pod)
	eachContainer(&pod.Spec, func(path string, c *container) {
		p.generateContainer(pod, c)
		p.validateContainer(path, pod, c)
	})
	return p.reasons
}

// deny records that the value of a field is not allowed.
func (p *provider) deny(field, format string, args ...any) {
	p.reasons = append(p.reasons, Reason{Constraint: p.Name, Field: field, Message: fmt.Sprintf(format, args...)})
}

// container has the fields of a container, init container or ephemeral container that constraints concern.
type container struct {
	context  **corev1.SecurityContext
	ports    []corev1.ContainerPort
	handlers []handler
}

// get returns the security context, or an empty one if there is none.
func (c *container) get() corev1.SecurityContext {
	if *c.context == nil {
		return corev1.SecurityContext{}
	}
	return **c.context
}

func (c *container) set(change func(*corev1.SecurityContext)) {
	if *c.context == nil {
		*c.context = &corev1.SecurityContext{}
	}
	change(*c.context)
}

func eachContainer(spec *corev1.PodSpec, do func(path string, c *container)) {
	each := func(list string, i int, c *corev1.Container) {
		do(fmt.Sprintf("spec.%s[%d]", list, i), &container{&c.SecurityContext, c.Ports, handlersOf(c)})
	}
	for i := range spec.InitContainers {
		each("initContainers", i, &spec.InitContainers[i])
	}
	for i := range spec.Containers {
		each("containers", i, &spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		each("ephemeralContainers", i, (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

// podContext returns the security context of a pod, or an empty one if there is none.
func podContext(pod *corev1.Pod) corev1.PodSecurityContext {
	if pod.Spec.SecurityContext == nil {
		return corev1.PodSecurityContext{}
	}
	return *pod.Spec.SecurityContext
}

func (p *provider) generatePod(pod *corev1.Pod) {
	given := podContext(pod)
	set := func(change func(*corev1.PodSecurityContext)) {
		if pod.Spec.SecurityContext == nil {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{}
		}
		change(pod.Spec.SecurityContext)
	}
	if given.SupplementalGroups == nil && p.SupplementalGroups.Type == v1alpha1.MustRunAs {
		set(func(c *corev1.PodSecurityContext) { c.SupplementalGroups = []int64{p.supplementalGroups[0].Min} })
	}
	if given.FSGroup == nil && p.FSGroup.Type == v1alpha1.MustRunAs {
		set(func(c *corev1.PodSecurityContext) { c.FSGroup = new(p.fsGroups[0].Min) })
	}
	if given.SELinuxOptions == nil && p.SELinuxContext.Type == v1alpha1.MustRunAs {
		set(func(c *corev1.PodSecurityContext) { c.SELinuxOptions = new(p.seLinux) })
	}
	if profile := defaultProfile(p.SeccompProfiles); given.SeccompProfile == nil && profile != nil {
		set(func(c *corev1.PodSecurityContext) { c.SeccompProfile = profile })
	}
}

func (p *provider) validatePod(pod *corev1.Pod) {
	const path = "spec.securityContext"
	given := podContext(pod)
	if p.FSGroup.Type == v1alpha1.MustRunAs {
		var groups []int64
		if given.FSGroup != nil {
			groups = []int64{*given.FSGroup}
		}
		p.checkGroups(path+".fsGroup", groups, p.fsGroups)
	}
	if p.SupplementalGroups.Type == v1alpha1.MustRunAs {
		p.checkGroups(path+".supplementalGroups", given.SupplementalGroups, p.supplementalGroups)
	}
	p.checkProfile(path+".seccompProfile", given.SeccompProfile)
	p.checkSELinux(path+".seLinuxOptions", given.SELinuxOptions)
	p.checkHost(pod)
	if p.UserNamespaceLevel == v1alpha1.RequirePodLevel && (pod.Spec.HostUsers == nil || *pod.Spec.HostUsers) {
		p.deny("spec.hostUsers", "it must be false")
	}
	p.checkSysctls(path+".sysctls", given.Sysctls)
	p.checkVolumes(pod.Spec.Volumes)
	p.checkHostProcess(path, given.WindowsOptions)
}

// checkHost denies the namespaces of the host that the constraint does not allow.
func (p *provider) checkHost(pod *corev1.Pod) {
	for _, feature := range []struct {
		name           string
		set, isAllowed bool
	}{
		{"hostNetwork", pod.Spec.HostNetwork, p.AllowHostNetwork},
		{"hostPID", pod.Spec.HostPID, p.AllowHostPID},
		{"hostIPC", pod.Spec.HostIPC, p.AllowHostIPC},
	} {
		if feature.set && !feature.isAllowed {
			p.deny("spec."+feature.name, "it is not allowed to be true")
		}
	}
}

func (p *provider) checkGroups(field string, groups []int64, allowed []v1alpha1.IDRange) {
	if len(groups) == 0 {
		p.deny(field, "it must have a group in %s", formatRanges(allowed))
	}
	for _, group := range groups {
		if !slices.ContainsFunc(allowed, func(r v1alpha1.IDRange) bool { return r.Min <= group && group <= r.Max }) {
			p.deny(field, "%d is not an allowed group: it must be in %s", group, formatRanges(allowed))
		}
	}
}

func formatRanges(ranges []v1alpha1.IDRange) string {
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = fmt.Sprintf("%d-%d", r.Min, r.Max)
	}
	return strings.Join(texts, ", ")
}

func (p *provider) generateContainer(pod *corev1.Pod, c *container) {
	of := podContext(pod)
	p.generateUser(of, c)
	if p.SELinuxContext.Type == v1alpha1.MustRunAs && of.SELinuxOptions == nil && c.get().SELinuxOptions == nil {
		c.set(func(s *corev1.SecurityContext) { s.SELinuxOptions = new(p.seLinux) })
	}
	p.generateNonRoot(of, c)
	p.generateCapabilities(c)
	if p.ReadOnlyRootFilesystem && c.get().ReadOnlyRootFilesystem == nil {
		c.set(func(s *corev1.SecurityContext) { s.ReadOnlyRootFilesystem = new(true) })
	}
	p.generateEscalation(c)
}

func (p *provider) validateContainer(path string, pod *corev1.Pod, c *container) {
	given, of := c.get(), podContext(pod)
	path += ".securityContext"
	p.checkUser(path, of, given)
	p.checkSELinux(path+".seLinuxOptions", effective(given.SELinuxOptions, of.SELinuxOptions))
	p.checkProfile(path+".seccompProfile", effective(given.SeccompProfile, of.SeccompProfile))
	privileged := given.Privileged != nil && *given.Privileged
	p.checkPrivileged(path, of, given)
	p.checkCapabilities(path+".capabilities", given.Capabilities)
	p.checkHostPorts(strings.TrimSuffix(path, ".securityContext"), c.ports)
	if p.ReadOnlyRootFilesystem && (given.ReadOnlyRootFilesystem == nil || !*given.ReadOnlyRootFilesystem) {
		p.deny(path+".readOnlyRootFilesystem", "it must be true")
	}
	// A privileged container gains nothing by privilege escalation, and the API server rejects false for it.
	escalates := given.AllowPrivilegeEscalation == nil && !privileged || given.AllowPrivilegeEscalation != nil &&
		*given.AllowPrivilegeEscalation
	if escalates && !*p.AllowPrivilegeEscalation {
		p.deny(path+".allowPrivilegeEscalation", "privilege escalation is not allowed: it must be false")
	}
}
