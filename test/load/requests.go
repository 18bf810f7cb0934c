package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
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

// sum adds up the counters or gauges of a name whose labels are as wanted.
func (f families) sum(name string, wanted map[string]string) float64 {
	var sum float64
	for _, metric := range f[name].GetMetric() {
		labels := labelsOf(metric)
		matches := true
		for label, value := range wanted {
			matches = matches && labels[label] == value
		}
		if matches {
			sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return sum
}

func labelsOf(metric *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, pair := range metric.GetLabel() {
		labels[pair.GetName()] = pair.GetValue()
	}
	return labels
}

// request is a kind of request: "APPLY roles", "PATCH namespaces/status".
type request struct{ verb, resource string }

// requests counts requests that the API server has answered.
type requests map[request]float64

// work is what the API server has done so far, by its own account.
type work struct {
	requests requests
	cpu      time.Duration
}

func (b *bench) work(ctx context.Context) (work, error) {
	text, err := b.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return work{}, fmt.Errorf("read the API server's metrics: %w", err)
	}
	all, err := parse(bytes.NewReader(text))
	if err != nil {
		return work{}, fmt.Errorf("read the API server's metrics: %w", err)
	}
	counted := requests{}
	for _, metric := range all["apiserver_request_total"].GetMetric() {
		labels := labelsOf(metric)
		resource := labels["resource"]
		if labels["subresource"] != "" {
			resource += "/" + labels["subresource"]
		}
		counted[request{labels["verb"], resource}] += metric.GetCounter().GetValue()
	}
	return work{counted, all.cpu()}, nil
}

// cpu returns the processor time of a program that tells its metrics.
func (f families) cpu() time.Duration {
	return time.Duration(f.sum("process_cpu_seconds_total", nil) * float64(time.Second))
}

func (r requests) since(before requests) requests {
	since := requests{}
	for kind, count := range r {
		if count != before[kind] {
			since[kind] = count - before[kind]
		}
	}
	return since
}

// toPopulate leaves what is asked or written to populate namespaces: all that the operator may write but its Lease, and
// what the floor writes. Left out are watches, the creation of namespaces, and what the API server's own controllers do:
// they put a ServiceAccount and a ConfigMap into each namespace and keep the status of ResourceQuotas.
func (r requests) toPopulate() requests {
	wanted := requests{}
	for kind, count := range r {
		resource, _, _ := strings.Cut(kind.resource, "/")
		switch {
		case kind.verb == "WATCH", kind.resource == "resourcequotas/status", kind.verb == "POST" && kind.resource == "namespaces":
		case slices.Contains([]string{
			"networkpolicies", "resourcequotas", "limitranges", "roles", "rolebindings", "namespaces", "namespacetemplates", "events",
		}, resource):
			wanted[kind] = count
		}
	}
	return wanted
}

func (r requests) writes() float64 {
	var sum float64
	for kind, count := range r {
		if slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}, kind.verb) {
			sum += count
		}
	}
	return sum
}

func (r requests) total() float64 {
	var sum float64
	for _, count := range r {
		sum += count
	}
	return sum
}

func (r requests) String() string {
	var parts []string
	for kind, count := range r {
		parts = append(parts, fmt.Sprintf("%s %s %.0f", kind.verb, kind.resource, count))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// settle returns once nobody has written anything for two seconds.
func (b *bench) settle(ctx context.Context) (work, error) {
	last, err := b.work(ctx)
	if err != nil {
		return work{}, err
	}
	for {
		if err := pause(ctx, 2*time.Second); err != nil {
			return work{}, err
		}
		now, err := b.work(ctx)
		if err != nil {
			return work{}, err
		}
		changed := now.requests.since(last.requests)
		maps.DeleteFunc(changed, func(kind request, _ float64) bool { return kind.resource == "leases" })
		if changed.writes() == 0 {
			return now, nil
		}
		last = now
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
