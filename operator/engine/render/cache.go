package render

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Cache compiles a template once for each generation and set of overlays. It is safe for concurrent use. NewCache
// returns a Cache; the zero value cannot be used.
type Cache struct {
	mu          sync.Mutex
	generations map[string]*generation
}

type generation struct {
	uid    types.UID
	number int64
	builds func() error
	// compiled holds, by overlays, a function that compiles at its first call. Concurrent callers wait for that call
	// only.
	compiled map[string]func() (*Compiled, error)
}

// NewCache returns an empty cache.
func NewCache() *Cache {
	return &Cache{generations: map[string]*generation{}}
}

// Compile returns a template compiled with the named overlays. If any overlay of the template is invalid, Compile
// returns an error for every set of overlays, so that a template fails in all namespaces alike. There is no context,
// because other callers may wait for the compilation.
func (c *Cache) Compile(template *v1alpha1.NamespaceTemplate, overlays []string) (*Compiled, error) {
	key := strings.Join(overlays, "\x00")
	c.mu.Lock()
	current := c.generations[template.Name]
	if current == nil || current.uid != template.UID || current.number != template.Generation {
		current = &generation{
			uid: template.UID, number: template.Generation,
			builds: sync.OnceValue(func() error {
				return withTemplateName(template, checkOverlays(notCanceled, template))
			}),
			compiled: map[string]func() (*Compiled, error){},
		}
		c.generations[template.Name] = current
	}
	compiled, ok := current.compiled[key]
	if !ok {
		compiled = sync.OnceValues(func() (*Compiled, error) {
			compiled, err := compile(notCanceled, template, overlays)
			return compiled, withTemplateName(template, err)
		})
		current.compiled[key] = compiled
	}
	c.mu.Unlock()
	if err := current.builds(); err != nil {
		return nil, err
	}
	return compiled()
}

// Forget removes a template from the cache.
func (c *Cache) Forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.generations, name)
}
