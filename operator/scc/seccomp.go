package scc

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const localhost = "localhost/"

func defaultProfile(profiles []string) *corev1.SeccompProfile {
	i := slices.IndexFunc(profiles, func(profile string) bool { return profile != "*" })
	if i < 0 {
		return nil
	}
	switch file, local := strings.CutPrefix(profiles[i], localhost); {
	case local:
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: &file}
	case profiles[i] == "unconfined":
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
	case normalizeProfile(profiles[i]) == runtimeDefault:
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	return nil
}

const runtimeDefault = "runtime/default"

// normalizeProfile returns the name of a profile, and runtime/default for its old name.
func normalizeProfile(profile string) string {
	if profile == "docker/default" {
		return runtimeDefault
	}
	return profile
}

// profileName returns the name of a profile in constraints.
func profileName(profile *corev1.SeccompProfile) string {
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

// checkProfile denies a profile that is not listed. If profiles are listed, a profile must be set.
func (p *provider) checkProfile(field string, given *corev1.SeccompProfile) {
	switch {
	case slices.Contains(p.SeccompProfiles, "*"):
	case given == nil && defaultProfile(p.SeccompProfiles) == nil: // no profile is required
	case given == nil:
		p.deny(field, "it must be set%s", onlyAllowed(p.SeccompProfiles))
	case !slices.ContainsFunc(p.SeccompProfiles, func(listed string) bool {
		return normalizeProfile(listed) == profileName(given)
	}):
		p.deny(field, "profile %q is not allowed%s", profileName(given), onlyAllowed(p.SeccompProfiles))
	}
}
