package render

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Cache compiles a template once for each generation and set of overlays. It is safe for concurrent use; the zero
// value is not ready, see NewCache.
type Cache struct {
	mu          sync.Mutex
	generations map[string]*generation
}

type generation struct {
	uid    types.UID
	number int64
	builds func() error
	// compiled holds what sync.OnceValues returns, by overlays: one caller compiles, the others wait for it alone.
	compiled map[string]func() (*Compiled, error)
}

// NewCache returns an empty cache.
func NewCache() *Cache {
	return &Cache{generations: map[string]*generation{}}
}

// Compile returns the template compiled with the named overlays. A template of which an overlay does not build by
// itself is refused for all namespaces alike. It has no context: whoever asks first compiles for all who ask.
func (c *Cache) Compile(template *v1alpha1.NamespaceTemplate, overlays []string) (*Compiled, error) {
	key := strings.Join(overlays, "\x00")
	c.mu.Lock()
	current := c.generations[template.Name]
	if current == nil || current.uid != template.UID || current.number != template.Generation {
		current = &generation{
			uid: template.UID, number: template.Generation,
			builds:   sync.OnceValue(func() error { return named(template, builds(never, template)) }),
			compiled: map[string]func() (*Compiled, error){},
		}
		c.generations[template.Name] = current
	}
	compiled, ok := current.compiled[key]
	if !ok {
		compiled = sync.OnceValues(func() (*Compiled, error) {
			compiled, err := compile(never, template, overlays)
			return compiled, named(template, err)
		})
		current.compiled[key] = compiled
	}
	c.mu.Unlock()
	if err := current.builds(); err != nil {
		return nil, err
	}
	return compiled()
}

// Forget drops what is kept of a template.
func (c *Cache) Forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.generations, name)
}
