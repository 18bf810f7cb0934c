package process

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// The ports that FreeAddress gives out: below those that the kernel takes for connections, which could take one before it is listened at.
const firstPort, endPort = 20000, 32768

// FreeAddress returns a host:port of this machine at which nobody listens.
func FreeAddress() (string, error) {
	var errs []error
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(endPort-firstPort))
		listener, err := net.Listen("tcp", address)
		if err == nil {
			return address, listener.Close()
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}
