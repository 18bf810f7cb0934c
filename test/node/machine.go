package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// plugins is the folder in which Debian installs network plugins.
const plugins = "/usr/lib/cni"

// Lacks returns the requirements of a node that this machine does not meet, or an empty string.
func Lacks(ctx context.Context) string {
	if os.Geteuid() != 0 {
		return "a node needs root"
	}
	var missing []string
	for _, program := range []string{
		"containerd", "runc", "ctr", "iptables", "conntrack", "ip", "unshare", "nsenter", "setpriv",
	} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	for _, plugin := range []string{"bridge", "host-local", "loopback"} {
		if _, err := os.Stat(filepath.Join(plugins, plugin)); err != nil {
			missing = append(missing, filepath.Join(plugins, plugin))
		}
	}
	if len(missing) > 0 {
		return "a node needs " + strings.Join(missing, ", ") +
			", which are in the Debian packages containerd, runc, containernetworking-plugins, iptables, conntrack and iproute2"
	}
	if out, err := exec.CommandContext(ctx, "unshare", "--net", "--mount", "--pid", "--fork", "sh", "-ec",
		attempt).CombinedOutput(); err != nil {
		return fmt.Sprintf("a node needs namespaces with mounts, links and firewall rules of its own, which this machine does not give: %s",
			strings.Join(strings.Fields(string(out)), " "))
	}
	slot, err := acquireSlot(ctx)
	if err != nil {
		return err.Error()
	}
	if err := errors.Join(slot.makeControlGroups(), slot.removeControlGroups(), slot.release()); err != nil {
		return fmt.Sprintf("a node needs control groups: %s", err)
	}
	return ""
}

// attempt tries the operations of a node in new namespaces.
const attempt = `
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
ip link add one type veth peer name two
ip link add three type bridge
iptables -t nat -A POSTROUTING -m comment --comment one -j MASQUERADE
echo 1 >/proc/sys/net/ipv4/ip_forward
`
