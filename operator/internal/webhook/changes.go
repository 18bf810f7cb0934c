package webhook

import (
	"slices"
	"sync"
)

// Changes calls functions when the data changes on which webhook configurations or a status depend. It calls them after
// the data's owner has seen the change. A watch of the caller's own could run before that. The zero value is ready for
// use.
type Changes struct {
	mu        sync.Mutex
	listeners []func()
}

// Listen calls a function now and after every change.
func (c *Changes) Listen(listener func()) {
	c.mu.Lock()
	c.listeners = append(c.listeners, listener)
	c.mu.Unlock()
	listener()
}

// Notify calls the functions that were passed to Listen.
func (c *Changes) Notify() {
	c.mu.Lock()
	listeners := slices.Clone(c.listeners)
	c.mu.Unlock()
	for _, listener := range listeners {
		listener()
	}
}
