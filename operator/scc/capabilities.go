package scc

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// generateCapabilities adds the default capabilities that the container does not drop, and drops those that it must
// drop. Names are compared exactly.
func (p *provider) generateCapabilities(c *container) {
	var given corev1.Capabilities
	if capabilities := c.get().Capabilities; capabilities != nil {
		given = *capabilities
	}
	add, drop := slices.Clone(given.Add), slices.Clone(given.Drop)
	for _, capability := range p.DefaultAddCapabilities {
		if name := corev1.Capability(capability); !slices.Contains(given.Drop, name) && !slices.Contains(add, name) {
			add = append(add, name)
		}
	}
	for _, capability := range p.RequiredDropCapabilities {
		if name := corev1.Capability(capability); !slices.Contains(drop, name) {
			drop = append(drop, name)
		}
	}
	if len(add) == len(given.Add) && len(drop) == len(given.Drop) {
		return
	}
	slices.Sort(add)
	slices.Sort(drop)
	c.set(func(s *corev1.SecurityContext) {
		s.Capabilities = &corev1.Capabilities{Add: slices.Compact(add), Drop: slices.Compact(drop)}
	})
}

func (p *provider) checkCapabilities(field string, given *corev1.Capabilities) {
	if slices.Contains(p.AllowedCapabilities, v1alpha1.AllCapabilities) {
		return
	}
	var add, drop []corev1.Capability
	if given != nil {
		add, drop = given.Add, given.Drop
	}
	allowed := slices.Concat(p.DefaultAddCapabilities, p.AllowedCapabilities)
	for _, capability := range add {
		if !slices.Contains(allowed, v1alpha1.Capability(capability)) {
			p.deny(field+".add", "capability %q is not allowed%s", capability, onlyAllowed(allowed))
		}
	}
	for _, capability := range p.RequiredDropCapabilities {
		if !slices.Contains(drop, corev1.Capability(capability)) {
			p.deny(field+".drop", "capability %q must be dropped", capability)
		}
	}
}

// onlyAllowed returns the end of a message that names the allowed values.
func onlyAllowed[T ~string](allowed []T) string {
	if len(allowed) == 0 || len(allowed) == 1 && allowed[0] == T(v1alpha1.FSTypeNone) {
		return ": none may be used"
	}
	texts := make([]string, len(allowed))
	for i, a := range allowed {
		texts[i] = string(a)
	}
	return ": only " + strings.Join(texts, ", ") + " may be used"
}

// generateEscalation sets allowPrivilegeEscalation to its default, or to false if true is not allowed.
func (p *provider) generateEscalation(c *container) {
	given := c.get()
	privileged := given.Privileged != nil && *given.Privileged
	admin := given.Capabilities != nil && slices.Contains(given.Capabilities.Add, "CAP_SYS_ADMIN")
	switch {
	case given.AllowPrivilegeEscalation != nil || privileged:
	case p.DefaultAllowPrivilegeEscalation != nil && !admin:
		c.set(func(s *corev1.SecurityContext) { s.AllowPrivilegeEscalation = new(*p.DefaultAllowPrivilegeEscalation) })
	case !*p.AllowPrivilegeEscalation:
		c.set(func(s *corev1.SecurityContext) { s.AllowPrivilegeEscalation = new(false) })
	}
}
