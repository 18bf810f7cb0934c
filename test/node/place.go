package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"

	"golang.org/x/sys/unix"
)

// place has the resources of the machine that a node uses exclusively, besides its folder: a network link with the
// addresses of both its ends, a range of addresses for pods, and a control group. They contain the number of the place,
// so that several nodes can run at a time, also in different processes.
type place struct {
	number int
	// held is a socket whose name contains the number. The kernel closes it when this process ends, even if it is
	// killed.
	held net.Listener
}

// places is the number of places. Their addresses are in one half of the range that RFC 2544 reserves for tests of
// networks.
const places = 128

// takePlace returns a place that no other node has.
func takePlace(ctx context.Context) (*place, error) {
	for number := range places {
		taken, err := takeNumber(ctx, number)
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("take a place for a node: %w", err)
		}
		return taken, nil
	}
	return nil, fmt.Errorf("take a place for a node: %d nodes run on this machine already: end some of them", places)
}

func takeNumber(ctx context.Context, number int) (*place, error) {
	// Abstract socket names belong to the network namespace, like the link and its addresses, and leave no file behind.
	held, err := (&net.ListenConfig{}).Listen(ctx, "unix", fmt.Sprintf("@nstpl-node-%d", number))
	if err != nil {
		return nil, err
	}
	return &place{number, held}, nil
}

func (p *place) release() error { return p.held.Close() }

// name returns the name of the link and of the control group.
func (p *place) name() string { return fmt.Sprintf("nstpl-node-%d", p.number) }

// machineAddress is the address of the end of the link on the control plane's side, and nodeAddress of the other end.
func (p *place) machineAddress() string { return fmt.Sprintf("198.18.%d.1", 2*p.number) }
func (p *place) nodeAddress() string    { return fmt.Sprintf("198.18.%d.2", 2*p.number) }
func (p *place) podSubnet() string      { return fmt.Sprintf("198.18.%d.0/24", 2*p.number+1) }

// linkExists reports whether the link of the place exists.
func (p *place) linkExists() bool {
	_, err := net.InterfaceByName(p.name())
	return err == nil
}

// disconnect deletes the link, if it exists. The kernel also deletes it, some time after the node's network, so that a
// killed process may have left it.
func (p *place) disconnect() error {
	if !p.linkExists() {
		return nil
	}
	out, err := exec.Command("ip", "link", "delete", p.name()).CombinedOutput()
	if err != nil && p.linkExists() {
		return fmt.Errorf("delete the link %s to a node: %w: %s", p.name(), err, out)
	}
	return nil
}
