package main

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
)

// families are metrics by name.
type families map[string]*dto.MetricFamily

func parse(text io.Reader) (families, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(text)
}

// sum adds up the counters or gauges of a name that have a value in one of their labels. An empty value matches all.
func (f families) sum(name, value string) float64 {
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

// cpu returns the processor time of the program that serves the metrics.
func (f families) cpu() time.Duration {
	return time.Duration(f.sum("process_cpu_seconds_total", "") * float64(time.Second))
}

// work is the work of the API server according to its metrics.
type work struct {
	requests requests
	cpu      time.Duration
}

// requests counts requests by verb and resource, such as "PATCH namespaces/status".
type requests map[string]float64

// workSoFar returns the work since the API server's start.
func (b *bench) workSoFar(ctx context.Context) (work, error) {
	text, err := b.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return work{}, fmt.Errorf("read the API server's metrics: %w", err)
	}
	all, err := parse(bytes.NewReader(text))
	if err != nil {
		return work{}, fmt.Errorf("read the API server's metrics: %w", err)
	}
	done := work{requests{}, all.cpu()}
	for _, metric := range all["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, pair := range metric.GetLabel() {
			labels[pair.GetName()] = pair.GetValue()
		}
		resource := strings.TrimSuffix(labels["resource"]+"/"+labels["subresource"], "/")
		done.requests[labels["verb"]+" "+resource] += metric.GetCounter().GetValue()
	}
	return done, nil
}

// minus returns the work since an earlier measurement.
func (w work) minus(before work) work {
	since := work{requests{}, w.cpu - before.cpu}
	for kind, count := range w.requests {
		if count != before.requests[kind] {
			since.requests[kind] = count - before.requests[kind]
		}
	}
	return since
}

// plus adds further work.
func (w work) plus(more work) work {
	sum := work{requests{}, w.cpu + more.cpu}
	for _, part := range []requests{w.requests, more.requests} {
		for kind, count := range part {
			sum.requests[kind] += count
		}
	}
	return sum
}

// comparedResources are the resources that the floor writes, and that the operator may write in namespaces of these
// templates.
var comparedResources = []string{
	"networkpolicies", "resourcequotas", "limitranges", "roles", "rolebindings",
	"namespaces", "namespaces/status", "namespacetemplates", "namespacetemplates/status", "events",
}

// ofBothSides returns the requests of the two sides without their watches. It omits requests of the clients that create
// namespaces, and of Kubernetes itself: in each namespace a ServiceAccount, a ConfigMap and the status of the
// ResourceQuota.
func (r requests) ofBothSides() requests {
	made := requests{}
	for kind, count := range r {
		verb, resource, _ := strings.Cut(kind, " ")
		if slices.Contains(comparedResources, resource) && verb != "WATCH" && kind != "POST namespaces" {
			made[kind] = count
		}
	}
	return made
}

// writes counts the requests that write.
func (r requests) writes() float64 {
	return r.count("POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION")
}

// reads counts the requests that read.
func (r requests) reads() float64 {
	return r.count("GET", "LIST")
}

func (r requests) count(verbs ...string) float64 {
	var sum float64
	for kind, count := range r {
		if verb, resource, _ := strings.Cut(kind, " "); slices.Contains(verbs, verb) && resource != "leases" {
			sum += count
		}
	}
	return sum
}

// during returns the work of the API server from the start of do until no client writes any more.
func (b *bench) during(ctx context.Context, do func() error) (work, error) {
	before, err := b.settle(ctx)
	if err != nil {
		return work{}, err
	}
	if err := do(); err != nil {
		return work{}, err
	}
	after, err := b.settle(ctx)
	return after.minus(before), err
}

// settle returns when no client has written anything for two seconds.
func (b *bench) settle(ctx context.Context) (work, error) {
	last, err := b.workSoFar(ctx)
	for quiet := false; err == nil && !quiet; {
		if err := pause(ctx, 2*time.Second); err != nil {
			return work{}, err
		}
		var now work
		now, err = b.workSoFar(ctx)
		quiet = now.minus(last).requests.writes() == 0
		last = now
	}
	return last, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
