package scc

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// safeSysctls may be set unless they are forbidden. They include sysctls of newer kernels, because the kernels of nodes
// are unknown here.
var safeSysctls = []string{
	"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
	"net.ipv4.ip_unprivileged_port_start", "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout",
	"net.ipv4.tcp_keepalive_intvl",
	"net.ipv4.tcp_keepalive_probes", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
}

func (p *provider) checkSysctls(field string, sysctls []corev1.Sysctl) {
	for i, sysctl := range sysctls {
		switch {
		case anyMatches(p.ForbiddenSysctls, strings.ReplaceAll(sysctl.Name, "/", ".")):
			p.deny(fmt.Sprintf("%s[%d]", field, i), "sysctl %q is forbidden", sysctl.Name)
		case slices.Contains(safeSysctls, sysctl.Name), anyMatches(p.AllowedUnsafeSysctls, sysctl.Name):
		default:
			p.deny(fmt.Sprintf("%s[%d]", field, i), "unsafe sysctl %q is not allowed", sysctl.Name)
		}
	}
}

func anyMatches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		pattern = strings.ReplaceAll(pattern, "/", ".")
		if beginning, open := strings.CutSuffix(pattern, "*"); open {
			return strings.HasPrefix(name, beginning)
		}
		return pattern == name
	})
}
