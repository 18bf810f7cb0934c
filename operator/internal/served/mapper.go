// Package served finds out how the API server serves kinds.
package served

import (
	"net/http"
	"sync"
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

	mu sync.Mutex
	// latest is the mapper that was made last, at asked.
	latest meta.RESTMapper
	asked  time.Time
}

// NewMapper returns a Mapper for an API server.
func NewMapper(config *rest.Config, connections *http.Client) (meta.RESTMapper, error) {
	ask := func() (meta.RESTMapper, error) { return apiutil.NewDynamicRESTMapper(config, connections) }
	first, err := ask()
	if err != nil {
		return nil, err
	}
	return &Mapper{RESTMapper: first, ask: ask, latest: first}, nil
}

// RESTMapping implements meta.RESTMapper.
func (m *Mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(versions) > 0 {
		return m.RESTMapper.RESTMapping(kind, versions...)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	mapping, err := m.latest.RESTMapping(kind)
	if !meta.IsNoMatchError(err) || time.Since(m.asked) < askAgain {
		return mapping, err
	}
	next, err := m.ask()
	if err != nil {
		return nil, err
	}
	mapping, err = next.RESTMapping(kind) // asks the API server
	m.latest, m.asked = next, time.Now()
	return mapping, err
}
