package measure

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"
)

// Families are metrics by name.
type Families map[string]*dto.MetricFamily

// Parse reads metrics in the text format of Prometheus.
func Parse(text io.Reader) (Families, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(text)
}

// Sum adds up the counters or gauges of a name that have a value in one of their labels. An empty value matches all.
func (f Families) Sum(name, value string) float64 {
	var sum float64
	for _, metric := range f[name].GetMetric() {
		if value == "" || slices.ContainsFunc(metric.GetLabel(), func(l *dto.LabelPair) bool {
			return l.GetValue() == value
		}) {
			sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return sum
}

// CPU returns the processor time of the program that serves the metrics.
func (f Families) CPU() time.Duration {
	return time.Duration(f.Sum("process_cpu_seconds_total", "") * float64(time.Second))
}

// Work is the work of the API server according to its metrics.
type Work struct {
	Requests Requests
	CPU      time.Duration
}

// Requests counts requests by verb and resource, such as "PATCH namespaces/status". Dry runs have the verb DRYRUN.
type Requests map[string]float64

// WorkSoFar returns the work since the API server's start.
func WorkSoFar(ctx context.Context, client kubernetes.Interface) (Work, error) {
	text, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return Work{}, fmt.Errorf("read the API server's metrics: %w", err)
	}
	all, err := Parse(bytes.NewReader(text))
	if err != nil {
		return Work{}, fmt.Errorf("read the API server's metrics: %w", err)
	}
	done := Work{Requests{}, all.CPU()}
	for _, metric := range all["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, pair := range metric.GetLabel() {
			labels[pair.GetName()] = pair.GetValue()
		}
		resource := strings.TrimSuffix(labels["resource"]+"/"+labels["subresource"], "/")
		verb := labels["verb"]
		if labels["dry_run"] != "" {
			verb = "DRYRUN"
		}
		done.Requests[verb+" "+resource] += metric.GetCounter().GetValue()
	}
	return done, nil
}

// Minus returns the work since an earlier measurement.
func (w Work) Minus(before Work) Work {
	since := Work{Requests{}, w.CPU - before.CPU}
	for kind, count := range w.Requests {
		if count != before.Requests[kind] {
			since.Requests[kind] = count - before.Requests[kind]
		}
	}
	return since
}

// Plus adds further work.
func (w Work) Plus(more Work) Work {
	sum := Work{Requests{}, w.CPU + more.CPU}
	for _, part := range []Requests{w.Requests, more.Requests} {
		for kind, count := range part {
			sum.Requests[kind] += count
		}
	}
	return sum
}

// Writes counts the requests that write, without those for leases.
func (r Requests) Writes() float64 {
	return r.count("POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION")
}

// Reads counts the requests that read, without those for leases.
func (r Requests) Reads() float64 {
	return r.count("GET", "LIST")
}

func (r Requests) count(verbs ...string) float64 {
	var sum float64
	for kind, count := range r {
		if verb, resource, _ := strings.Cut(kind, " "); slices.Contains(verbs, verb) && resource != "leases" {
			sum += count
		}
	}
	return sum
}

// During returns the work of the API server from the start of do until no client writes any more.
func During(ctx context.Context, client kubernetes.Interface, do func() error) (Work, error) {
	before, err := Settle(ctx, client)
	if err != nil {
		return Work{}, err
	}
	if err := do(); err != nil {
		return Work{}, err
	}
	after, err := Settle(ctx, client)
	return after.Minus(before), err
}

// Settle returns when no client has written anything for two seconds.
func Settle(ctx context.Context, client kubernetes.Interface) (Work, error) {
	last, err := WorkSoFar(ctx, client)
	for quiet := false; err == nil && !quiet; {
		if err := Pause(ctx, 2*time.Second); err != nil {
			return Work{}, err
		}
		var now Work
		now, err = WorkSoFar(ctx, client)
		quiet = now.Minus(last).Requests.Writes() == 0
		last = now
	}
	return last, err
}

// Pause returns after a duration, or the cause if ctx ends before.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
