package population

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

func TestTemplatesWithoutExemptionsHaveNoSeries(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	metrics := NewMetrics(registry)
	counts := func() map[string]float64 {
		families, err := registry.Gather()
		require.NoError(t, err)
		found := map[string]float64{}
		for _, family := range families {
			if family.GetName() == "nstpl_template_exemptions" {
				for _, metric := range family.GetMetric() {
					found[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
				}
			}
		}
		return found
	}
	from := func(uid types.UID, template string) *v1alpha1.TemplateExemption {
		exemption := &v1alpha1.TemplateExemption{}
		exemption.UID, exemption.Spec.Template = uid, template
		return exemption
	}
	metrics.exempt("a", match.Exemptions{from("1", "budget"), from("2", "network")})
	metrics.exempt("b", match.Exemptions{from("3", "budget")})
	require.Equal(t, map[string]float64{"budget": 2, "network": 1}, counts())
	metrics.forget("network") // its exemption remains
	metrics.exempt("a", nil)
	require.Equal(t, map[string]float64{"budget": 1}, counts())
}
