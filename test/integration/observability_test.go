package integration_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The probes of a running operator succeed repeatedly.
func TestProbesStayReady(t *testing.T) {
	t.Parallel()
	for range 20 {
		for _, path := range []string{"/healthz", "/readyz"} {
			require.NoError(t, sharedCluster.operator.Get(t.Context(), sharedCluster.operator.Probes, path, io.Discard))
		}
	}
}

// The metrics count applied, pruned, drifted and failed objects.
func TestMetricsCountPopulation(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	series := map[string][]string{
		"nstpl_namespace_population_seconds_count": nil,
		"nstpl_objects_applied_total":              {`group=""`, `kind="ConfigMap"`},
		"nstpl_objects_pruned_total":               {`group=""`, `kind="ConfigMap"`},
		"nstpl_objects_drifted_total":              {`group=""`, `kind="ConfigMap"`},
		"nstpl_object_failures_total":              {`reason="Invalid"`},
	}
	before := map[string]float64{}
	for name, labels := range series {
		value, _, err := s.operator.Metric(t.Context(), name, labels...)
		require.NoError(t, err)
		before[name] = value
	}
	template := s.createTemplate("defaults", documents(configMap("settings", "v"), configMap("drop", "v")))
	ns := s.createPopulatedNamespace("a")
	s.delete(s.mustGet(ns, parseYAML(t, configMap("settings", ""))[0]))
	s.waitPresent(ns, configMap("settings", "v"))
	s.updateTemplate(template, withObjects(t, documents(configMap("settings", "v"),
		failingObject)))
	s.waitAbsent(ns, configMap("drop", ""))
	s.eventually(func(c *assert.CollectT) {
		for name, labels := range series {
			value, found, err := s.operator.Metric(t.Context(), name, labels...)
			assert.NoError(c, err)
			assert.True(c, found, name)
			assert.Greater(c, value, before[name], name)
		}
	})
	_, found, err := s.operator.Metric(t.Context(), "workqueue_depth", `name="namespace"`)
	require.NoError(t, err)
	require.True(t, found)
}
