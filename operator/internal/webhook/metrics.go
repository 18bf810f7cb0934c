package webhook

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Verdicts of plugins.
const (
	verdictAllowed   = "allowed"
	verdictChanged   = "changed"
	verdictRefused   = "refused"
	verdictLater     = "later"
	verdictUndecided = "undecided"
)

// Metrics count decisions; controller-runtime adds the durations.
type Metrics struct {
	decisions *prometheus.CounterVec
}

// NewMetrics returns metrics registered with registerer.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nstpl_admission_decisions_total", Help: "Decisions on requests.",
	}, []string{"plugin", "verdict"})}
	return m, registerer.Register(m.decisions)
}

func verdictOf(err error, changed bool) string {
	var refused *Denied
	var later *Deferred
	switch {
	case err == nil && changed:
		return verdictChanged
	case err == nil:
		return verdictAllowed
	case errors.As(err, &refused):
		return verdictRefused
	case errors.As(err, &later):
		return verdictLater
	}
	return verdictUndecided
}
