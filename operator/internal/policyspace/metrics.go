package policyspace

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// QuotaMetrics show how much of the quotas of policy spaces is used.
type Metrics struct {
	quotas *prometheus.GaugeVec
}

// NewQuotaMetrics returns metrics registered with registerer.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		quotas: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nstpl_policyspace_quota",
			Help: "What is used of a resource in the namespaces of a policyspace (used), and what may be (hard).",
		}, []string{"policyspace", "resource", "type"}),
	}
	return m, registerer.Register(m.quotas)
}

// quota says how much of a policyspace's quota is used.
func (m *Metrics) quota(space string, hard, used corev1.ResourceList) {
	m.forgetQuota(space)
	for name, limit := range hard {
		total := used[name]
		m.quotas.WithLabelValues(space, string(name), "hard").Set(limit.AsApproximateFloat64())
		m.quotas.WithLabelValues(space, string(name), "used").Set(total.AsApproximateFloat64())
	}
}

func (m *Metrics) forgetQuota(space string) {
	m.quotas.DeletePartialMatch(prometheus.Labels{"policyspace": space})
}
