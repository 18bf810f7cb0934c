package policyspace

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
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
			Help: "Usage (used) and limit (hard) of a resource, summed over all namespaces in and below a policyspace. " +
				"Usage is absent until all of these namespaces have counted it.",
		}, []string{"policyspace", "resource", "type"}),
	}
}

// setQuota replaces the reported usage and limits of a policy space with a status. Usage that is not counted in all
// namespaces is not reported.
func (m *Metrics) setQuota(space *v1alpha1.PolicySpace, status v1alpha1.PolicySpaceStatus) {
	m.deleteQuota(space.Name)
	settled := *space
	settled.Status = status
	for name, limit := range quota.Hard(space) {
		m.quotas.WithLabelValues(space.Name, string(name), "hard").Set(limit.AsApproximateFloat64())
		if used, isKnown := quota.Known(&settled, name); isKnown {
			m.quotas.WithLabelValues(space.Name, string(name), "used").Set(used.AsApproximateFloat64())
		}
	}
}

func (m *Metrics) deleteQuota(space string) {
	m.quotas.DeletePartialMatch(prometheus.Labels{"policyspace": space})
}
