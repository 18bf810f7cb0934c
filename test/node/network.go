package node

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
)

// The addresses are of the range that RFC 2544 sets aside for tests of networks. One link connects this machine, where the control
// plane is, with the node, which has a bridge with its pods.
const (
	machineAddress = "198.18.0.1"
	nodeAddress    = "198.18.0.2"
	linkBits       = "/30"
	podSubnet      = "198.18.1.0/24"
	link           = "nstpl-node"
)

// connect links the node's network with this machine's. The link goes when the node's network does.
func (c *Cluster) connect(ctx context.Context) error {
	outside := [][]string{
		{"ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(c.inside)},
		{"ip", "address", "add", machineAddress + linkBits, "dev", link},
		{"ip", "link", "set", link, "up"},
		{"ip", "route", "add", podSubnet, "via", nodeAddress}, // the API server calls webhooks at the addresses of their pods
	}
	for _, args := range outside {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
		}
		if args[2] != "add" || args[1] != "link" {
			continue
		}
		// A route needs the other end to be up.
		for _, line := range []string{
			"ip link set lo up", "ip address add " + nodeAddress + linkBits + " dev eth0", "ip link set eth0 up", "ip route add default via " + machineAddress,
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

// disconnect takes the link away: the kernel does so too, some time after the node's network is gone.
func disconnect() error {
	if _, err := net.InterfaceByName(link); err != nil {
		return nil //nolint:nilerr // it was never there
	}
	if out, err := exec.Command("ip", "link", "delete", link).CombinedOutput(); err != nil {
		return fmt.Errorf("take away the link to the node: %w: %s", err, out)
	}
	return nil
}
