package scc

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// effective returns the value that applies to a container: its own, or else the pod's.
func effective[T any](own, of *T) *T {
	if own != nil {
		return own
	}
	return of
}

func (p *provider) generateUser(of corev1.PodSecurityContext, c *container) {
	if effective(c.get().RunAsUser, of.RunAsUser) != nil {
		return
	}
	switch p.RunAsUser.Type {
	case v1alpha1.MustRunAs, v1alpha1.MustRunAsRange, v1alpha1.MustRunAsServiceAccount:
		c.set(func(s *corev1.SecurityContext) { s.RunAsUser = new(p.uids.Min) })
	}
}

// generateNonRoot sets runAsNonRoot if the container must not run as root. The kubelet enforces it, because it knows
// the user of the image.
func (p *provider) generateNonRoot(of corev1.PodSecurityContext, c *container) {
	given := c.get()
	if effective(given.RunAsNonRoot, of.RunAsNonRoot) != nil {
		return
	}
	uid := effective(given.RunAsUser, of.RunAsUser)
	if uid != nil && *uid > 0 || uid == nil && p.RunAsUser.Type == v1alpha1.MustRunAsNonRoot {
		c.set(func(s *corev1.SecurityContext) { s.RunAsNonRoot = new(true) })
	}
}

func (p *provider) checkUser(path string, of corev1.PodSecurityContext, given corev1.SecurityContext) {
	uid, nonRoot := effective(given.RunAsUser, of.RunAsUser), effective(given.RunAsNonRoot, of.RunAsNonRoot)
	switch p.RunAsUser.Type {
	case v1alpha1.MustRunAs, v1alpha1.MustRunAsServiceAccount:
		if uid == nil || *uid != p.uids.Min {
			p.deny(path+".runAsUser", "%s: it must be %d", describeID(uid), p.uids.Min)
		}
	case v1alpha1.MustRunAsRange:
		if uid == nil || *uid < p.uids.Min || *uid > p.uids.Max {
			p.deny(path+".runAsUser", "%s: it must be in %d-%d", describeID(uid), p.uids.Min, p.uids.Max)
		}
	case v1alpha1.MustRunAsNonRoot:
		switch {
		case nonRoot != nil && !*nonRoot:
			p.deny(path+".runAsNonRoot", "it must be true")
		case uid != nil && *uid == 0:
			p.deny(path+".runAsUser", "0 is not allowed: it must not be root")
		case uid == nil && nonRoot == nil:
			p.deny(path+".runAsNonRoot", "it must be true")
		}
	}
}

func describeID(id *int64) string {
	if id == nil {
		return "it is not set"
	}
	return strconv.FormatInt(*id, 10) + " is not allowed"
}
