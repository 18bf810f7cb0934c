package render

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// mostCompiled is how many compiled templates a Cache keeps. One with two RoleBindings takes some 6 KiB.
const mostCompiled = 1024

// Cache compiles a template once for each generation and set of overlays, as long as it is among the templates that
// were used last. Several generations of a template may be in use, until Keep or Forget drops them. It is safe for
// concurrent use. NewCache returns a Cache; the zero value cannot be used.
type Cache struct {
	mu sync.Mutex
	// templates are *generations by the names of templates.
	templates *lru.Cache
}

// generations are the compiled generations of a template.
type generations struct {
	uid      types.UID
	byNumber map[int64]*generation
}

type generation struct {
	builds func() error
	// compiled holds, by overlays, a function that compiles at its first call. Concurrent callers wait for that call
	// only.
	compiled map[string]func() (*Compiled, error)
}

// NewCache returns an empty cache.
func NewCache() *Cache {
	return &Cache{templates: lru.New(mostCompiled)}
}

// Compile returns a template compiled with the named overlays. If any overlay of the template is invalid, Compile
// returns an error for every set of overlays, so that a template fails in all namespaces alike. There is no context,
// because other callers may wait for the compilation.
func (c *Cache) Compile(template *v1alpha1.NamespaceTemplate, overlays []string) (*Compiled, error) {
	key := strings.Join(overlays, "\x00")
	c.mu.Lock()
	known := c.known(template.Name)
	if known == nil || known.uid != template.UID {
		known = &generations{uid: template.UID, byNumber: map[int64]*generation{}}
		c.templates.Add(template.Name, known)
	}
	current := known.byNumber[template.Generation]
	if current == nil {
		current = &generation{
			builds: sync.OnceValue(func() error {
				return withTemplateName(template, checkOverlays(notCanceled, template))
			}),
			compiled: map[string]func() (*Compiled, error){},
		}
		known.byNumber[template.Generation] = current
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

// Keep removes all other generations of a template than those given.
func (c *Cache) Keep(name string, numbers ...int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.known(name); known != nil {
		maps.DeleteFunc(known.byNumber, func(number int64, _ *generation) bool {
			return !slices.Contains(numbers, number)
		})
	}
}

// Forget removes a template from the cache.
func (c *Cache) Forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.templates.Remove(name)
}

// known returns the compiled generations of a template, or nil. The caller holds the lock.
func (c *Cache) known(name string) *generations {
	if known, ok := c.templates.Get(name); ok {
		return known.(*generations)
	}
	return nil
}
