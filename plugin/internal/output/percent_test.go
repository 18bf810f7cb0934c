package output_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"nstpl.dev/nstpl/plugin/internal/output"
)

func TestPercent(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		used, limit string
		want        int
	}{
		{"0", "10", 0}, {"10", "10", 100}, {"11", "10", 110}, {"996", "1000", 99}, {"999999999", "1G", 99},
		{"1Gi", "1Gi", 100},
		{"29", "100", 29}, {"290m", "1", 29}, {"0", "0", 100}, {"1", "0", 100}, {"1", "3", 33}, {"4Ei", "8Ei", 50},
		{"1n", "1", 0},
	} {
		require.Equal(t, test.want, output.Percent(resource.MustParse(test.used), resource.MustParse(test.limit)),
			"%s of %s", test.used, test.limit)
	}
}
