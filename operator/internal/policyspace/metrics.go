package policyspace

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
)

// Metrics report the usage and the limits of policy spaces.
type Metrics struct {
	quotas *prometheus.GaugeVec
}

// NewMetrics returns metrics registered with registerer.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	return &Metrics{
		quotas: promauto.With(registerer).NewGaugeVec(prometheus.GaugeOpts{
			Name: "nstpl_policyspace_quota",
			Help: "Usage (used) and limit (hard) of a resource, summed over all namespaces in and below a policyspace.",
		}, []string{"policyspace", "resource", "type"}),
	}
}

// setQuota replaces the reported usage and limits of a policy space.
func (m *Metrics) setQuota(space string, hard, used corev1.ResourceList) {
	m.deleteQuota(space)
	for name, limit := range hard {
		total := used[name]
		m.quotas.WithLabelValues(space, string(name), "hard").Set(limit.AsApproximateFloat64())
		m.quotas.WithLabelValues(space, string(name), "used").Set(total.AsApproximateFloat64())
	}
}

func (m *Metrics) deleteQuota(space string) {
	m.quotas.DeletePartialMatch(prometheus.Labels{"policyspace": space})
}
