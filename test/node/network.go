package node

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// linkBits is the prefix length of a link's network.
const linkBits = "/30"

// MachineAddress returns the IP address at which pods reach this machine.
func (c *Cluster) MachineAddress() string { return c.slot.machineAddress() }

// connect connects the node's network, with the bridge of the pods, to this machine's, with the control plane. The link
// is deleted with the node's network.
func (c *Cluster) connect(ctx context.Context) error {
	if err := c.slot.disconnect(); err != nil {
		return err
	}
	link, machineAddress, nodeAddress := c.slot.name(), c.slot.machineAddress(), c.slot.nodeAddress()
	outside := [][]string{
		{"ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(c.inside)},
		{"ip", "address", "add", machineAddress + linkBits, "dev", link},
		{"ip", "link", "set", link, "up"},
		// the API server calls webhooks at the addresses of their pods
		{"ip", "route", "add", c.slot.podSubnet(), "via", nodeAddress},
	}
	for _, args := range outside {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
		}
		if args[2] != "add" || args[1] != "link" {
			continue
		}
		// The other end must be up before a route is added.
		for _, line := range []string{
			"ip link set lo up", "ip address add " + nodeAddress + linkBits + " dev eth0", "ip link set eth0 up",
			"ip route add default via " + machineAddress,
		} {
			if err := c.command(ctx, strings.Fields(line)...); err != nil {
				return err
			}
		}
		if err := c.command(ctx, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"); err != nil {
			return err
		}
	}
	return nil
}
