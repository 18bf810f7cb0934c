package webhook

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// The verdicts of plugins, as label values of the metric.
const (
	verdictAllowed   = "allowed"
	verdictChanged   = "changed"
	verdictDenied    = "denied"
	verdictDeferred  = "deferred"
	verdictUndecided = "undecided"
)

// Metrics counts the decisions of plugins. controller-runtime measures durations.
type Metrics struct {
	decisions *prometheus.CounterVec
}

// NewMetrics returns metrics that are registered with registerer.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	return &Metrics{decisions: promauto.With(registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "nstpl_admission_decisions_total", Help: "Number of decisions of admission plugins, by verdict.",
	}, []string{"plugin", "verdict"})}
}

// verdictOf returns the verdict of a plugin that returned err and, if it is a mutator, changed the object.
func verdictOf(err error, changed bool) string {
	var denied *Denied
	var deferred *Deferred
	switch {
	case err == nil && changed:
		return verdictChanged
	case err == nil:
		return verdictAllowed
	case errors.As(err, &denied):
		return verdictDenied
	case errors.As(err, &deferred):
		return verdictDeferred
	}
	return verdictUndecided
}
