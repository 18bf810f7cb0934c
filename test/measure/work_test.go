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
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 1.5
`))
	require.NoError(t, err)
	require.Equal(t, 5.0, all.Sum("done_total", "namespace"))
	require.Equal(t, 15.0, all.Sum("done_total", ""))
	require.Equal(t, 7.0, all.Sum("depth", ""))
	require.Zero(t, all.Sum("absent", ""))
	require.Equal(t, 1500*time.Millisecond, all.CPU())
}
