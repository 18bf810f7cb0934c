package measure

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSumOfMetrics(t *testing.T) {
	all, err := Parse(strings.NewReader(`
# TYPE done_total counter
done_total{controller="namespace",result="success"} 3
done_total{controller="namespace",result="error"} 2
done_total{controller="other",result="success"} 10
# TYPE depth gauge
depth 7
# TYPE none_total counter
none_total 0
# TYPE took_seconds histogram
took_seconds_bucket{le="+Inf"} 4
took_seconds_sum 2.5
took_seconds_count 4
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 1.5
`))
	require.NoError(t, err)
	require.Equal(t, 5.0, all.Sum("done_total", `controller="namespace"`))
	require.Equal(t, 15.0, all.Sum("done_total"))
	require.Equal(t, 7.0, all.Sum("depth"))
	require.Equal(t, 3.0, all.Sum("done_total", `controller="namespace"`, `result="success"`))
	require.Equal(t, 4.0, all.Sum("took_seconds_count"))
	sum, found := all.Find("none_total")
	require.Zero(t, sum)
	require.True(t, found)
	for _, absent := range [][]string{{"absent"}, {"done_total", `controller="name"`}} {
		sum, found := all.Find(absent[0], absent[1:]...)
		require.Zero(t, sum)
		require.False(t, found)
	}
	require.Equal(t, 1500*time.Millisecond, all.CPU())
}
