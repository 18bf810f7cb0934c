package scc

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// windowsAdministrators are the accounts of a Windows container that correspond to root, in lower case and without a
// domain.
var windowsAdministrators = map[string]bool{"containeradministrator": true, "system": true, "administrator": true}

// isWindows reports whether a pod declares that it runs on Windows. A kubelet rejects a pod that declares another
// operating system than its own, so no Linux node runs such a pod. A pod that only has a node selector or
// windowsOptions is judged as a Linux pod.
func isWindows(pod *corev1.Pod) bool {
	return pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows
}

// admitWindows is admit for Windows pods. The API server rejects user IDs, groups, SELinux options, seccomp profiles,
// capabilities, read-only root file systems and privilege escalation on them, so those are neither generated nor
// required.
func (p *provider) admitWindows(pod *corev1.Pod) {
	p.checkHost(pod)
	p.checkVolumes(pod.Spec.Volumes)
	given := podContext(pod)
	p.checkHostProcess("spec.securityContext", given.WindowsOptions)
	eachContainer(&pod.Spec, func(path string, c *container) {
		context := path + ".securityContext"
		if p.forbidsRoot() && effective(c.get().RunAsNonRoot, given.RunAsNonRoot) == nil {
			c.set(func(s *corev1.SecurityContext) { s.RunAsNonRoot = new(true) })
		}
		if nonRoot := effective(c.get().RunAsNonRoot, given.RunAsNonRoot); p.forbidsRoot() && !*nonRoot {
			p.deny(context+".runAsNonRoot", "it must be true")
		}
		p.checkPrivileged(context, given, c.get())
		p.checkHostPorts(path, c.ports)
	})
}

// forbidsRoot reports whether the constraint does not allow root.
func (p *provider) forbidsRoot() bool {
	return p.RunAsUser.Type == v1alpha1.MustRunAsNonRoot || p.RunAsUser.Type != v1alpha1.RunAsAny && p.uids.Min > 0
}

// checkHostProcess treats HostProcess containers as privileged ones: they run on the host, with the rights of the
// account that they name.
func (p *provider) checkHostProcess(path string, options *corev1.WindowsSecurityContextOptions) {
	if options != nil && options.HostProcess != nil && *options.HostProcess && !p.AllowPrivilegedContainer {
		p.deny(path+".windowsOptions.hostProcess",
			"HostProcess containers are not allowed: they need a constraint with allowPrivilegedContainer")
	}
}

// checkWindowsUser denies administrators of the container where the constraint denies root.
func (p *provider) checkWindowsUser(path string, of corev1.PodSecurityContext, given corev1.SecurityContext) {
	name := windowsUser(given.WindowsOptions)
	if name == "" {
		name = windowsUser(of.WindowsOptions)
	}
	account := name[strings.LastIndex(name, `\`)+1:]
	if p.forbidsRoot() && windowsAdministrators[strings.ToLower(account)] {
		p.deny(path+".windowsOptions.runAsUserName", "%q is not allowed: it must not be an administrator", name)
	}
}

func windowsUser(options *corev1.WindowsSecurityContextOptions) string {
	if options == nil || options.RunAsUserName == nil {
		return ""
	}
	return *options.RunAsUserName
}

func (p *provider) checkPrivileged(path string, of corev1.PodSecurityContext, given corev1.SecurityContext) {
	if given.Privileged != nil && *given.Privileged && !p.AllowPrivilegedContainer {
		p.deny(path+".privileged", "privileged containers are not allowed")
	}
	p.checkHostProcess(path, given.WindowsOptions)
	p.checkWindowsUser(path, of, given)
}

func (p *provider) checkHostPorts(path string, ports []corev1.ContainerPort) {
	if p.AllowHostPorts {
		return
	}
	for i, port := range ports {
		if port.HostPort > 0 {
			p.deny(fmt.Sprintf("%s.ports[%d].hostPort", path, i), "host ports are not allowed")
		}
	}
}
