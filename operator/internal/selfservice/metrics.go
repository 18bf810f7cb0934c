package selfservice

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"nstpl.dev/nstpl/operator/selfservice"
)

// metrics count the namespaces that expired, and those that soon will.
type metrics struct {
	deleted prometheus.Counter
	states  *prometheus.GaugeVec

	mu sync.Mutex
	of map[string]selfservice.State
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		deleted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nstpl_namespaces_expired_deleted_total", Help: "Expired namespaces that the operator deleted.",
		}),
		states: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nstpl_namespaces_expiring", Help: "Namespaces that have expired or soon will, by state.",
		}, []string{"state"}),
		of: map[string]selfservice.State{},
	}
	for _, collector := range []prometheus.Collector{m.deleted, m.states} {
		if err := registerer.Register(collector); err != nil {
			return nil, err
		}
	}
	return m, nil
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
