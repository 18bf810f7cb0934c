package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"

	"golang.org/x/sys/unix"
)

// place is what a node has of this machine for itself, besides its folder: a network link with the addresses of both
// its ends, a range of addresses for pods, and a control group. All go by a number, so that several nodes can run at a
// time, also those of different processes.
type place struct {
	number int
	// held is a socket whose name holds the number. The kernel lets go of it when this process ends in whatever way.
	held net.Listener
}

// places is how many there are: the addresses are of the half of the range that RFC 2544 sets aside for tests of
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
	// An abstract name is of this network namespace, as the link and its addresses are, and leaves no file behind.
	held, err := (&net.ListenConfig{}).Listen(ctx, "unix", fmt.Sprintf("@nstpl-node-%d", number))
	if err != nil {
		return nil, err
	}
	return &place{number, held}, nil
}

func (p *place) release() error { return p.held.Close() }

// name is that of the link and of the control group.
func (p *place) name() string { return fmt.Sprintf("nstpl-node-%d", p.number) }

// machineAddress is that of the end of the link where the control plane is, and nodeAddress that of the other end.
func (p *place) machineAddress() string { return fmt.Sprintf("198.18.%d.1", 2*p.number) }
func (p *place) nodeAddress() string    { return fmt.Sprintf("198.18.%d.2", 2*p.number) }
func (p *place) podSubnet() string      { return fmt.Sprintf("198.18.%d.0/24", 2*p.number+1) }

// linkExists reports whether there is a link of the place's name.
func (p *place) linkExists() bool {
	_, err := net.InterfaceByName(p.name())
	return err == nil
}

// disconnect deletes the link, if there is one. The kernel deletes it, too, some time after the node's network is gone:
// a process that was killed may have left it.
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
