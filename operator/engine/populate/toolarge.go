package populate

import (
	"encoding/json"
	"strings"
)

// smallSize is a third of what etcd stores of an object, 1.5 MiB, in bytes.
const smallSize = 1 << 19

// isTooLarge reports whether the API server could not store an object because of its size, for which it has no reason
// of its own: etcd limits an object to 1.5 MiB, and its client a message to 2 MiB.
func isTooLarge(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "etcdserver: request is too large") ||
		strings.Contains(err.Error(), "trying to send message larger than max"))
}

// isFilled reports whether an object could not be changed because other clients filled the existing one: the declared
// object itself is small.
func isFilled(declared *Object, err error) bool {
	if !isTooLarge(err) {
		return false
	}
	body, err := json.Marshal(declared.Object)
	return err == nil && len(body) < smallSize
}
