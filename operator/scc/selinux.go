package scc

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// checkSELinux compares each SELinux option with that of the constraint.
func (p *provider) checkSELinux(field string, given *corev1.SELinuxOptions) {
	if p.SELinuxContext.Type != v1alpha1.MustRunAs {
		return
	}
	if given == nil {
		p.deny(field, "it must be set")
		return
	}
	for _, option := range []struct{ name, given, wanted string }{
		{"user", given.User, p.seLinux.User}, {"role", given.Role, p.seLinux.Role},
		{"type", given.Type, p.seLinux.Type},
	} {
		if option.given != option.wanted {
			p.deny(field+"."+option.name, "%q is not allowed: it must be %q", option.given, option.wanted)
		}
	}
	if normalLevel(given.Level) != normalLevel(p.seLinux.Level) {
		p.deny(field+".level", "%q is not allowed: it must be %q", given.Level, p.seLinux.Level)
	}
}

// normalLevel returns a level with its categories, which come after the colon, in ascending order.
func normalLevel(level string) string {
	sensitivity, categories, found := strings.Cut(level, ":")
	if !found {
		return level
	}
	return sensitivity + ":" + strings.Join(slices.Sorted(strings.SplitSeq(categories, ",")), ",")
}
