package policyspace

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/quota"
)

// reportedQuotas returns the values of the metric, by resource and type.
func reportedQuotas(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	reported := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := metric.GetLabel() // in the order of their names: policyspace, resource, type
			reported[labels[1].GetValue()+" "+labels[2].GetValue()] = metric.GetGauge().GetValue()
		}
	}
	return reported
}

// A sum over some of the namespaces would be taken for the usage of the policy space.
func TestUsageIsReportedOnceItIsCounted(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	metrics := NewMetrics(registry)
	limits := resourceList("pods", "9", "secrets", "8", "count/namespaces", "3")
	space := countedSpace(limits, resourceList("count/namespaces", "2"))
	space.Status.Hard = nil
	set := func(b quota.Usage) map[string]float64 {
		a := quota.Usage{Used: resourceList("pods", "2", "secrets", "1")}
		space.Status, _ = quota.Settle(space, []string{"a", "b"}, map[string]quota.Usage{"a": a, "b": b})
		metrics.setQuota(space, space.Status)
		return reportedQuotas(t, registry)
	}
	counted := map[string]float64{
		"pods hard": 9, "secrets hard": 8, "count/namespaces hard": 3, "pods used": 3, "count/namespaces used": 2,
	}
	require.Equal(t, counted, set(quota.Usage{Used: resourceList("pods", "1")}), "secrets are not counted in b")
	counted["secrets used"] = 5
	require.Equal(t, counted, set(quota.Usage{Used: resourceList("pods", "1", "secrets", "4")}))
	delete(counted, "secrets used")
	delete(counted, "pods used")
	require.Equal(t, counted, set(quota.Usage{Unknown: true}), "b lost its usage quota")
}
