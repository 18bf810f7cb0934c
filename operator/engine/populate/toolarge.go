package populate

import (
	"encoding/json"

	patches "nstpl.dev/nstpl/operator/internal/patch"
)

// smallSize is a third of what etcd stores of an object, 1.5 MiB, in bytes.
const smallSize = 1 << 19

// isFilled reports whether an object could not be changed because other clients filled the existing one: the declared
// object itself is small.
func isFilled(declared *Object, err error) bool {
	if !patches.IsTooLarge(err) {
		return false
	}
	body, err := json.Marshal(declared.Object)
	return err == nil && len(body) < smallSize
}
