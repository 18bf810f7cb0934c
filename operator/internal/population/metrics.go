package population

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// Metrics are the metrics of the population of namespaces. controller-runtime adds the depth of the queue
// (workqueue_depth{name="namespace"}) and durations.
type Metrics struct {
	population prometheus.Histogram
	applied    *prometheus.CounterVec
	pruned     *prometheus.CounterVec
	drifted    *prometheus.CounterVec
	fought     *prometheus.CounterVec
	failures   *prometheus.CounterVec
	rollouts   *prometheus.GaugeVec
	unknown    *prometheus.GaugeVec
	exemptions *prometheus.GaugeVec
	nextExpiry prometheus.Gauge

	mu sync.Mutex
	// exempted are the exemptions in force, by namespace.
	exempted map[string]match.Exemptions
}

// NewMetrics returns metrics registered with registerer.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	register := promauto.With(registerer)
	byKind := func(name, help string) *prometheus.CounterVec {
		return register.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"group", "kind"})
	}
	return &Metrics{
		population: register.NewHistogram(prometheus.HistogramOpts{
			Name:    "nstpl_namespace_population_seconds",
			Help:    "Seconds from the creation of a namespace, as seen by the operator, until it is populated.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
		}),
		applied: byKind("nstpl_objects_applied_total", "Objects applied."),
		pruned:  byKind("nstpl_objects_pruned_total", "Objects deleted because they are no longer declared."),
		drifted: byKind("nstpl_objects_drifted_total", "Objects that another client changed or deleted."),
		fought: byKind("nstpl_objects_fought_total",
			"Corrections of objects that another client changes again and again."),
		failures: register.NewCounterVec(prometheus.CounterOpts{
			Name: "nstpl_object_failures_total", Help: "Objects that could not be applied or pruned, each try counted.",
		}, []string{"reason"}),
		rollouts: register.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nstpl_template_rollout",
			Help: "1 for each template whose newest revision has not reached every namespace, by the state of its rollout.",
		}, []string{"template", "state"}),
		unknown: register.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nstpl_template_kinds_unavailable",
			Help: "1 for each template with objects of a kind that the operator cannot list, so that they are unknown.",
		}, []string{"template"}),
		exemptions: register.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nstpl_template_exemptions", Help: "TemplateExemptions that are in force, by template.",
		}, []string{"template"}),
		nextExpiry: register.NewGauge(prometheus.GaugeOpts{
			Name: "nstpl_exemption_next_expiry_timestamp_seconds",
			Help: "Unix time at which the next TemplateExemption in force expires, or 0 if none does.",
		}),
		exempted: map[string]match.Exemptions{},
	}
}

func (m *Metrics) drift(finding populate.Finding) {
	m.drifted.WithLabelValues(finding.Object.Group, finding.Object.Kind).Inc()
}

// fight counts a correction of an object that another client changes again and again.
func (m *Metrics) fight(object populate.ObjectID) {
	m.fought.WithLabelValues(object.Group, object.Kind).Inc()
}

// countFailures counts the findings about writes that failed.
func (m *Metrics) countFailures(findings []populate.Finding) {
	for _, finding := range findings {
		if finding.Failure != "" {
			m.failures.WithLabelValues(string(finding.Failure)).Inc()
		}
	}
}

func (m *Metrics) countWrites(result populate.Result) {
	for _, outcome := range result.Outcomes {
		switch {
		case outcome.Failure != nil:
		case outcome.Action == populate.Prune:
			m.pruned.WithLabelValues(outcome.Kind.Group, outcome.Kind.Kind).Inc()
		default:
			m.applied.WithLabelValues(outcome.Kind.Group, outcome.Kind.Kind).Inc()
		}
	}
}

// rollout sets the state of the rollout of a template.
func (m *Metrics) rollout(template *v1alpha1.NamespaceTemplate) {
	m.rollouts.DeletePartialMatch(prometheus.Labels{"template": template.Name})
	if revisions := template.Status.Revisions; len(revisions) > 0 && revisions[0].State != v1alpha1.RolloutComplete {
		m.rollouts.WithLabelValues(template.Name, string(revisions[0].State)).Set(1)
	}
}

// kindsUnavailable sets whether the objects of a template are unknown, because a kind of them cannot be listed.
func (m *Metrics) kindsUnavailable(template string, unavailable bool) {
	if !unavailable {
		m.unknown.DeleteLabelValues(template)
		return
	}
	m.unknown.WithLabelValues(template).Set(1)
}

// exempt replaces the exemptions in force in a namespace.
func (m *Metrics) exempt(namespace string, active match.Exemptions) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.exempted[namespace]
	if slices.EqualFunc(before, active, func(a, b *v1alpha1.TemplateExemption) bool {
		return a.UID == b.UID && a.Generation == b.Generation
	}) {
		return
	}
	if m.exempted[namespace] = active; len(active) == 0 {
		delete(m.exempted, namespace)
	}
	next, count := int64(0), map[string]int{}
	for _, exemptions := range m.exempted {
		for _, exemption := range exemptions {
			count[exemption.Spec.Template]++
			if end := exemption.Spec.Expires; end != nil && (next == 0 || end.Unix() < next) {
				next = end.Unix()
			}
		}
	}
	m.nextExpiry.Set(float64(next))
	// A template without exemptions has no series, since it may be deleted while it has some.
	for _, exemption := range slices.Concat(before, active) {
		if template := exemption.Spec.Template; count[template] > 0 {
			m.exemptions.WithLabelValues(template).Set(float64(count[template]))
		} else {
			m.exemptions.DeleteLabelValues(template)
		}
	}
}

// forget drops the metrics of a deleted template.
func (m *Metrics) forget(template string) {
	m.rollouts.DeletePartialMatch(prometheus.Labels{"template": template})
	m.unknown.DeleteLabelValues(template)
}
