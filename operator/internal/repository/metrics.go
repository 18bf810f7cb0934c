package repository

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// The phases of a synchronization, as label values of the metric.
const (
	phaseFetch = "fetch"
	phaseVet   = "vet"
	phaseApply = "apply"
	phasePrune = "prune"
)

// Metrics measure the phases of synchronizations. Only the leader has any. A nil *Metrics measures nothing.
type Metrics struct {
	phases *prometheus.HistogramVec
}

// NewMetrics returns metrics that are registered with registerer. It also registers what the statuses of
// PolicyRepositories say, for which it reads them from a cache.
func NewMetrics(registerer prometheus.Registerer, cached client.Reader) *Metrics {
	registerer.MustRegister(statuses{cached})
	return &Metrics{phases: promauto.With(registerer).NewHistogramVec(prometheus.HistogramOpts{
		Name: "nstpl_sync_phase_seconds",
		Help: "Seconds that a phase of a synchronization took, if there was something to do: " +
			"fetch, vet, apply, prune.",
		Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
	}, []string{"repository", "phase"})}
}

// measure begins a phase, and returns a function that ends it.
type measure func(phase string) (end func())

// of returns what measures the phases of a PolicyRepository.
func (m *Metrics) of(repository string) measure {
	return func(phase string) func() {
		if m == nil {
			return func() {}
		}
		begin := time.Now()
		return func() { m.phases.WithLabelValues(repository, phase).Observe(time.Since(begin).Seconds()) }
	}
}

// forget drops the series of a deleted PolicyRepository.
func (m *Metrics) forget(repository string) {
	if m != nil {
		m.phases.DeletePartialMatch(prometheus.Labels{"repository": repository})
	}
}

// statuses is a prometheus.Collector. It reports what the statuses of all PolicyRepositories say when it is asked. So
// all replicas report the same, and no series is left of a deleted PolicyRepository.
type statuses struct {
	cached client.Reader
}

// collectTimeout is how long a scrape waits for the cache of a process that has just begun.
const collectTimeout = 5 * time.Second

var (
	byRepository    = []string{"repository"}
	lastSuccessDesc = prometheus.NewDesc("nstpl_sync_last_success_timestamp_seconds",
		"When the newest commit was last found to be in force as a whole.", byRepository, nil)
	intervalDesc = prometheus.NewDesc("nstpl_sync_interval_seconds",
		"How often a repository is asked for a new commit. Suspended ones have no series.", byRepository, nil)
	readyDesc = prometheus.NewDesc("nstpl_sync_ready",
		"1 if the condition Ready is True, and 0 otherwise, with the reason.", []string{"repository", "reason"}, nil)
	pendingDesc = prometheus.NewDesc("nstpl_sync_pending_deletions",
		"Number of namespaces whose deletion waits for a confirmation.", byRepository, nil)
	contestedDesc = prometheus.NewDesc("nstpl_sync_contested_objects",
		"Number of objects, at most 20, that do not stay as they are declared: another client changes them again and "+
			"again, or admission changes them.", byRepository, nil)
	violationsDesc = prometheus.NewDesc("nstpl_sync_violations",
		"Number of violations in the newest commit.", byRepository, nil)
	commitDesc = prometheus.NewDesc("nstpl_sync_commit_info",
		"1, with the commit that is in force.", []string{"repository", "commit"}, nil)
)

// Describe implements prometheus.Collector.
func (statuses) Describe(descriptions chan<- *prometheus.Desc) {
	for _, description := range []*prometheus.Desc{
		lastSuccessDesc, intervalDesc, readyDesc, pendingDesc, contestedDesc, violationsDesc,
		commitDesc,
	} {
		descriptions <- description
	}
}

// Collect implements prometheus.Collector. It reports nothing before the cache is filled.
func (s statuses) Collect(metrics chan<- prometheus.Metric) {
	ctx, stop := context.WithTimeout(context.Background(), collectTimeout)
	defer stop()
	list := &v1alpha1.PolicyRepositoryList{}
	if err := s.cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	for i := range list.Items {
		collect(&list.Items[i], func(description *prometheus.Desc, value float64, labels ...string) {
			metrics <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, value, labels...)
		})
	}
}

// collect reports what the status of a PolicyRepository says.
func collect(
	repository *v1alpha1.PolicyRepository, report func(description *prometheus.Desc, value float64, labels ...string),
) {
	name, status := repository.Name, &repository.Status
	if !repository.Spec.Suspend {
		report(intervalDesc, intervalOf(repository).Seconds(), name)
	}
	ready := apimeta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if ready != nil {
		value := 0.0
		if ready.Status == metav1.ConditionTrue {
			value = 1
		}
		report(readyDesc, value, name, ready.Reason)
	}
	if at := lastSuccess(status, ready); at != nil {
		report(lastSuccessDesc, float64(at.Unix()), name)
	}
	var pending int32
	if status.PendingDeletions != nil {
		pending = status.PendingDeletions.Total
	}
	report(pendingDesc, float64(pending), name)
	report(contestedDesc, float64(len(status.Contested)), name)
	report(violationsDesc, float64(status.ViolationCount), name)
	if status.Commits.Applied != "" {
		report(commitDesc, 1, name, status.Commits.Applied)
	}
}

// lastSuccess returns when the newest commit was last known to be in force, or nil if it never was. The tree is also
// compared with the cluster while a newer commit is not followed, and that does not count.
func lastSuccess(status *v1alpha1.PolicyRepositoryStatus, ready *metav1.Condition) *metav1.Time {
	last := status.LastSyncTime
	if last != nil && ready != nil && ready.Status != metav1.ConditionTrue && ready.LastTransitionTime.Before(last) {
		return &ready.LastTransitionTime
	}
	return last
}
