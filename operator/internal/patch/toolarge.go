package patch

import "strings"

// IsTooLarge reports whether the API server could not store an object because of its size, for which it has no reason
// of its own: etcd limits an object to 1.5 MiB, and its client a message to 2 MiB. The API server then drops the
// managedFields and tries again by itself, but not for server-side apply.
func IsTooLarge(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "etcdserver: request is too large") ||
		strings.Contains(err.Error(), "trying to send message larger than max"))
}
