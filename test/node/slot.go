package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"

	"golang.org/x/sys/unix"
)

// slot has the resources of the machine that a node uses exclusively, besides its folder: a network link with the
// addresses of both its ends, a range of addresses for pods, and a control group. They contain the number of the slot,
// so that several nodes can run at a time, also in different processes.
type slot struct {
	number int
	// held is a socket whose name contains the number. The kernel closes it when this process ends, even if it is
	// killed.
	held net.Listener
}

// slots is the number of slots. Their addresses are in one half of the range that RFC 2544 reserves for tests of
// networks.
const slots = 128

// acquireSlot returns a slot that no other node has.
func acquireSlot(ctx context.Context) (*slot, error) {
	for number := range slots {
		acquired, err := acquireNumber(ctx, number)
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("acquire a slot for a node: %w", err)
		}
		return acquired, nil
	}
	return nil, fmt.Errorf("acquire a slot for a node: %d nodes run on this machine already: end some of them", slots)
}

func acquireNumber(ctx context.Context, number int) (*slot, error) {
	// Abstract socket names belong to the network namespace, like the link and its addresses, and leave no file behind.
	held, err := (&net.ListenConfig{}).Listen(ctx, "unix", fmt.Sprintf("@nstpl-node-%d", number))
	if err != nil {
		return nil, err
	}
	return &slot{number, held}, nil
}

func (p *slot) release() error { return p.held.Close() }

// name returns the name of the link and of the control group.
func (p *slot) name() string { return fmt.Sprintf("nstpl-node-%d", p.number) }

// machineAddress is the address of the end of the link on the control plane's side, and nodeAddress of the other end.
func (p *slot) machineAddress() string { return fmt.Sprintf("198.18.%d.1", 2*p.number) }
func (p *slot) nodeAddress() string    { return fmt.Sprintf("198.18.%d.2", 2*p.number) }
func (p *slot) podSubnet() string      { return fmt.Sprintf("198.18.%d.0/24", 2*p.number+1) }

// linkExists reports whether the link of the slot exists.
func (p *slot) linkExists() bool {
	_, err := net.InterfaceByName(p.name())
	return err == nil
}

// disconnect deletes the link, if it exists. The kernel also deletes it, some time after the node's network, so that a
// killed process may have left it.
func (p *slot) disconnect() error {
	if !p.linkExists() {
		return nil
	}
	out, err := exec.Command("ip", "link", "delete", p.name()).CombinedOutput()
	if err != nil && p.linkExists() {
		return fmt.Errorf("delete the link %s to a node: %w: %s", p.name(), err, out)
	}
	return nil
}
