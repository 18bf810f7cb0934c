package scc

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const localhost = "localhost/"

// firstProfile is what pods get that ask for none: the first that is one.
func firstProfile(profiles []string) *corev1.SeccompProfile {
	i := slices.IndexFunc(profiles, func(profile string) bool { return profile != "*" })
	if i < 0 {
		return nil
	}
	switch file, local := strings.CutPrefix(profiles[i], localhost); {
	case local:
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: &file}
	case profiles[i] == "unconfined":
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
	case normal(profiles[i]) == runtimeDefault:
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	return nil
}

const runtimeDefault = "runtime/default"

// normal has one name for the default.
func normal(profile string) string {
	if profile == "docker/default" {
		return runtimeDefault
	}
	return profile
}

// nameOf is how constraints call a profile.
func nameOf(profile *corev1.SeccompProfile) string {
	switch profile.Type {
	case corev1.SeccompProfileTypeRuntimeDefault:
		return runtimeDefault
	case corev1.SeccompProfileTypeUnconfined:
		return "unconfined"
	case corev1.SeccompProfileTypeLocalhost:
		if profile.LocalhostProfile != nil {
			return localhost + *profile.LocalhostProfile
		}
	}
	return string(profile.Type)
}

// checkProfile refuses every profile if none is listed, and none if some must be had.
func (p *provider) checkProfile(field string, given *corev1.SeccompProfile) {
	switch {
	case slices.Contains(p.SeccompProfiles, "*"):
	case given == nil && firstProfile(p.SeccompProfiles) == nil: // there is none to be had
	case given == nil:
		p.refuse(field, "it must be set%s", sayAllowed(p.SeccompProfiles))
	case !slices.ContainsFunc(p.SeccompProfiles, func(listed string) bool { return normal(listed) == nameOf(given) }):
		p.refuse(field, "profile %q is not allowed%s", nameOf(given), sayAllowed(p.SeccompProfiles))
	}
}
