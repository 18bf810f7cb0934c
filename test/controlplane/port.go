package controlplane

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// port is a reserved TCP port. The kernel gives it only to processes that request its number with SO_REUSEPORT, as the
// API server does. So no other process can take it before the API server starts.
type port struct {
	address net.IP
	number  int
	socket  *os.File
}

func reservePort(address net.IP) (*port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	unix.CloseOnExec(fd)
	socket := os.NewFile(uintptr(fd), "reserved port")
	number, err := bindPort(fd, address)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reserve a port: %w", err), socket.Close())
	}
	return &port{address: address, number: number, socket: socket}, nil
}

func (p *port) release() error {
	return p.socket.Close()
}

func (p *port) url() string {
	return fmt.Sprintf("https://%s:%d", p.address, p.number)
}

// bindPort binds a socket to a free port. It does not listen, so that only the API server gets connections.
func bindPort(fd int, address net.IP) (number int, err error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte(address.To4())}); err != nil {
		return 0, err
	}
	addr, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	return addr.(*unix.SockaddrInet4).Port, nil
}
