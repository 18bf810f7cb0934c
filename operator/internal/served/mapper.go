// Package served finds out how the API server serves kinds.
package served

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// askAgain is the least time after which everything that the API server serves is forgotten again.
const askAgain = 2 * time.Second

// Mapper is a RESTMapper that learns of kinds in every version that the API server begins to serve. That of
// controller-runtime finds a kind without a version only in those versions of its API group that were served when it
// asked for the group first: see issue 3542 of controller-runtime. Mapper is safe for concurrent use.
type Mapper struct {
	meta.RESTMapper
	ask func() (meta.RESTMapper, error)

	// asking is held while a new answer of the API server replaces latest. Who finds a kind in latest does not wait.
	asking sync.Mutex
	latest atomic.Pointer[answer]
}

// answer is a mapper that was made at a time.
type answer struct {
	meta.RESTMapper
	at time.Time
}

// NewMapper returns a Mapper for an API server.
func NewMapper(config *rest.Config, connections *http.Client) (meta.RESTMapper, error) {
	return newMapper(func() (meta.RESTMapper, error) { return apiutil.NewDynamicRESTMapper(config, connections) })
}

// newMapper returns a Mapper whose answers are those that ask makes.
func newMapper(ask func() (meta.RESTMapper, error)) (*Mapper, error) {
	first, err := ask()
	if err != nil {
		return nil, err
	}
	m := &Mapper{RESTMapper: first, ask: ask}
	m.latest.Store(&answer{RESTMapper: first})
	return m, nil
}

// RESTMapping implements meta.RESTMapper.
func (m *Mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(versions) > 0 {
		return m.RESTMapper.RESTMapping(kind, versions...)
	}
	known := m.latest.Load()
	mapping, err := known.RESTMapping(kind)
	if !meta.IsNoMatchError(err) {
		return mapping, err
	}
	m.asking.Lock()
	defer m.asking.Unlock()
	if latest := m.latest.Load(); latest != known {
		known = latest
		mapping, err = known.RESTMapping(kind)
	}
	if !meta.IsNoMatchError(err) || time.Since(known.at) < askAgain {
		return mapping, err
	}
	next, err := m.ask()
	if err != nil {
		return nil, err
	}
	mapping, err = next.RESTMapping(kind) // asks the API server
	m.latest.Store(&answer{RESTMapper: next, at: time.Now()})
	return mapping, err
}
