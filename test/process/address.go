package process

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// FreeAddresses returns ports below those that the kernel assigns to connections, which could take a port before a
// program listens at it.
const firstPort, endPort = 20000, 32768

// FreeAddresses returns n different host:port pairs of this machine at which no program listens.
func FreeAddresses(n int) ([]string, error) {
	var addresses []string
	for tries := 0; len(addresses) < n; tries++ {
		address := fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(endPort-firstPort))
		listener, busy := net.Listen("tcp", address)
		if busy != nil && tries < 100 {
			continue
		}
		if busy != nil {
			return nil, fmt.Errorf("find a port that is free: %w", busy)
		}
		defer listener.Close() // so that no port is returned twice
		addresses = append(addresses, address)
	}
	return addresses, nil
}
