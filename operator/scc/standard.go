package scc

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// checkStandard denies what the constraint's podSecurityStandard does not allow in fields that nothing else in a
// constraint concerns.
func (p *provider) checkStandard(pod *corev1.Pod) {
	if p.PodSecurityStandard == "" {
		return
	}
	p.checkAppArmor("spec.securityContext", podContext(pod).AppArmorProfile)
	p.checkAppArmorAnnotations(pod.Annotations)
	masks := p.PodSecurityStandard == v1alpha1.StandardRestricted || pod.Spec.HostUsers == nil || *pod.Spec.HostUsers
	eachContainer(&pod.Spec, func(path string, c *container) {
		context := path + ".securityContext"
		p.checkAppArmor(context, c.get().AppArmorProfile)
		if mount := c.get().ProcMount; masks && mount != nil && *mount != corev1.DefaultProcMount {
			p.deny(context+".procMount", "it must be Default: podSecurityStandard is %s", p.PodSecurityStandard)
		}
		for _, handler := range c.handlers {
			if handler.host != "" {
				p.deny(path+"."+handler.path+".host", "it must be empty: podSecurityStandard is %s", p.PodSecurityStandard)
			}
		}
	})
}

func (p *provider) checkAppArmor(path string, profile *corev1.AppArmorProfile) {
	if profile != nil && profile.Type != corev1.AppArmorProfileTypeRuntimeDefault &&
		profile.Type != corev1.AppArmorProfileTypeLocalhost {
		p.deny(path+".appArmorProfile.type", "%q is not allowed: podSecurityStandard is %s", profile.Type,
			p.PodSecurityStandard)
	}
}

// checkAppArmorAnnotations denies profiles in annotations, which name a container.
func (p *provider) checkAppArmorAnnotations(annotations map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		profile := annotations[key]
		if strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) && profile != "" &&
			profile != corev1.DeprecatedAppArmorBetaProfileRuntimeDefault &&
			!strings.HasPrefix(profile, corev1.DeprecatedAppArmorBetaProfileNamePrefix) {
			p.deny("metadata.annotations["+key+"]", "%q is not allowed: podSecurityStandard is %s", profile,
				p.PodSecurityStandard)
		}
	}
}

// handler is a request that the kubelet sends for a container, and the host to which it sends it. The host is empty for
// the pod itself.
type handler struct{ path, host string }

// handlersOf returns the requests of the probes and of the lifecycle hooks of a container.
func handlersOf(c *corev1.Container) []handler {
	var handlers []handler
	add := func(path string, http *corev1.HTTPGetAction, tcp *corev1.TCPSocketAction) {
		if http != nil {
			handlers = append(handlers, handler{path + ".httpGet", http.Host})
		}
		if tcp != nil {
			handlers = append(handlers, handler{path + ".tcpSocket", tcp.Host})
		}
	}
	for _, probe := range []struct {
		path string
		*corev1.Probe
	}{
		{"livenessProbe", c.LivenessProbe}, {"readinessProbe", c.ReadinessProbe}, {"startupProbe", c.StartupProbe},
	} {
		if probe.Probe != nil {
			add(probe.path, probe.HTTPGet, probe.TCPSocket)
		}
	}
	if c.Lifecycle == nil {
		return handlers
	}
	for _, hook := range []struct {
		path string
		*corev1.LifecycleHandler
	}{{"lifecycle.postStart", c.Lifecycle.PostStart}, {"lifecycle.preStop", c.Lifecycle.PreStop}} {
		if hook.LifecycleHandler != nil {
			add(hook.path, hook.HTTPGet, hook.TCPSocket)
		}
	}
	return handlers
}
