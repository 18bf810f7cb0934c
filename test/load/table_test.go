package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func someTable() table {
	var t table
	t.latencies("new namespace", latencies{
		floorSide:    {10 * time.Millisecond, 20 * time.Millisecond},
		operatorSide: {15 * time.Millisecond, 20*time.Millisecond + 123*time.Microsecond},
	}, map[int]string{50: "at most 1.5x"})
	t.compare("reads", "", 0, 2, "")
	t.add("memory", "MiB", 123.4, "at most 256")
	return t
}

func TestTableForPeople(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, someTable().print(&out))
	require.Equal(t, `                    UNIT  FLOOR  OPERATOR  RATIO  GOAL
new namespace: p50  ms    10     15        1.50x  at most 1.5x
new namespace: p95  ms    20     20.12     1.01x  -
new namespace: p99  ms    20     20.12     1.01x  -
reads               -     0      2         -      -
memory              MiB   -      123       -      at most 256
`, out.String())
}
