package measure

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPercentile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i))
	}
	for name, test := range map[string]struct {
		values []time.Duration
		p      int
		want   time.Duration
	}{
		"none":                      {nil, 50, 0},
		"one":                       {[]time.Duration{7}, 99, 7},
		"the lower of two":          {[]time.Duration{2, 1}, 50, 1},
		"the middle of three":       {[]time.Duration{3, 1, 2}, 50, 2},
		"p50 of a hundred":          {hundred, 50, 50},
		"p95 of a hundred":          {hundred, 95, 95},
		"p99 of a hundred":          {hundred, 99, 99},
		"p99 of few is the longest": {hundred[:50], 99, 100},
		"all":                       {hundred, 100, 100},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, Percentile(test.values, test.p))
		})
	}
}

func TestPercentileKeepsTheOrder(t *testing.T) {
	values := []time.Duration{3, 1, 2}
	Percentile(values, 50)
	require.Equal(t, []time.Duration{3, 1, 2}, values)
}
