package webhook

import (
	"slices"
	"sync"
)

// Changes notify when something changed that the webhook configurations or a status depend on. They notify after those
// who changed it know about it, which a watch of one's own would not wait for. The zero value is ready for use.
type Changes struct {
	mu        sync.Mutex
	listeners []func()
}

// Listen has a function called now and after every change.
func (c *Changes) Listen(listener func()) {
	c.mu.Lock()
	c.listeners = append(c.listeners, listener)
	c.mu.Unlock()
	listener()
}

// Notify calls the listeners.
func (c *Changes) Notify() {
	c.mu.Lock()
	listeners := slices.Clone(c.listeners)
	c.mu.Unlock()
	for _, listener := range listeners {
		listener()
	}
}
