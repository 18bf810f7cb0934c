package measure

import (
	"bytes"
	"cmp"
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

// OfAPIServer returns the metrics of the API server.
func OfAPIServer(ctx context.Context, client kubernetes.Interface) (Families, error) {
	text, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	return Parse(bytes.NewReader(text))
}

// Sum adds up the counters or gauges of a name that have all labels, each written as name="value". The suffix _count
// stands for the number of values in a histogram.
func (f Families) Sum(name string, labels ...string) float64 {
	sum, _ := f.Find(name, labels...)
	return sum
}

// Find is Sum. It also reports whether there are such counters or gauges.
func (f Families) Find(name string, labels ...string) (sum float64, found bool) {
	for _, metric := range cmp.Or(f[name], f[strings.TrimSuffix(name, "_count")]).GetMetric() {
		var own []string
		for _, label := range metric.GetLabel() {
			own = append(own, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
		}
		if !slices.ContainsFunc(labels, func(label string) bool { return !slices.Contains(own, label) }) {
			sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() +
				float64(metric.GetHistogram().GetSampleCount())
			found = true
		}
	}
	return sum, found
}

// CPU returns the processor time of the program that serves the metrics.
func (f Families) CPU() time.Duration {
	return time.Duration(f.Sum("process_cpu_seconds_total") * float64(time.Second))
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
	all, err := OfAPIServer(ctx, client)
	if err != nil {
		return Work{}, err
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
