package selfservice

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"nstpl.dev/nstpl/operator/selfservice"
)

// metrics count the namespaces that expired, and those that soon will.
type metrics struct {
	deleted prometheus.Counter
	states  *prometheus.GaugeVec

	mu sync.Mutex
	of map[string]selfservice.State
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	register := promauto.With(registerer)
	return &metrics{
		deleted: register.NewCounter(prometheus.CounterOpts{
			Name: "nstpl_namespaces_expired_deleted_total", Help: "Expired namespaces that the operator deleted.",
		}),
		states: register.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nstpl_namespaces_expiring", Help: "Namespaces that have expired or soon will, by state.",
		}, []string{"state"}),
		of: map[string]selfservice.State{},
	}
}

// set records the state of a namespace.
func (m *metrics) set(namespace string, state selfservice.State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.of[namespace]
	if before == state {
		return
	}
	if delete(m.of, namespace); before != "" {
		m.states.WithLabelValues(string(before)).Dec()
	}
	if state != "" && state != selfservice.Lives {
		m.of[namespace] = state
		m.states.WithLabelValues(string(state)).Inc()
	}
}

// forget records that a namespace does not expire.
func (m *metrics) forget(namespace string) { m.set(namespace, "") }
