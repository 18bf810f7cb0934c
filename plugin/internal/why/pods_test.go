package why

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The API server does not decode the template of another project's kind.
func TestPodOfParsesNoExcessiveQuantity(t *testing.T) {
	t.Parallel()
	for field, refusal := range map[string]string{
		"limits": `spec.containers[0].resources.limits[cpu] is "1e-100": a quantity has at most`,
		"Limits": "", // pods have no field of this name
	} {
		_, err := podOf(&unstructured.Unstructured{Object: map[string]any{}}, map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"resources": map[string]any{field: map[string]any{"cpu": "1e-100"}}}},
		}}, "team-a")
		if refusal == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, refusal)
		}
	}
}
