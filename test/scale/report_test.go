package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// someReport has a figure that is proportional to the size, one that grows too fast and misses its goal, one whose
// value is always zero, and one of the first size only.
func someReport() *report {
	r := &report{Kubernetes: "1.36", Processors: 2, Sizes: []int{1000, 3000, 10000}}
	for _, size := range r.Sizes {
		times := float64(size) / 1000
		r.add(measurement{Name: "rollout", Unit: "s", Growth: linear}, size, 2*times, new(times))
		r.add(measurement{Name: "request <b>", Unit: "ms", Goal: ratio(1.3)}, size, 3*times*times, new(2.5))
		r.add(measurement{Name: "gaps", Goal: atMost(0)}, size, 0, nil)
	}
	r.add(measurement{Name: "memory", Unit: "MiB", Goal: atMost(300)}, 1000, 120, nil)
	r.Failures = []failure{{10000, "move", "it takes longer than the limit"}}
	r.Conditions = []string{"The operator was restarted in a cgroup."}
	return r
}

func TestReportForPeople(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, someReport().print(&out))
	require.Equal(t, `             UNIT  FLOOR  1000  3000  10000  RATIO    GROWTH       GOAL
rollout      s     10     2     6     20     2.00x    1.00 1.00    -
request <b>  ms    2.50   3     27    300    120.00x  2.00! 2.00!  at most 1.30x, missed
gaps         -     -      0     0     0      -        -            at most 0
memory       MiB   -      120   -     -      -        -            at most 300
The operator was restarted in a cgroup.
GROWTH is the exponent from each size to the next: 0 is constant, 1 is linear; ! is too much.
FAILED with 10000 namespaces: move: it takes longer than the limit
`, out.String())
}

func TestReportForPrograms(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, someReport().writeJSON(&out))
	var read report
	require.NoError(t, json.Unmarshal(out.Bytes(), &read))
	require.Equal(t, someReport(), &read)
	points := read.Measurements[1].Points
	require.InDelta(t, 1.2, *points[0].Ratio, 1e-9)
	require.Nil(t, points[0].Exponent, "the first size has nothing to compare with")
	require.InDelta(t, 2, *points[2].Exponent, 1e-9)
}

func TestExponent(t *testing.T) {
	for name, test := range map[string]struct {
		from, to point
		want     float64
	}{
		"constant":    {point{Size: 10, Value: 7}, point{Size: 100, Value: 7}, 0},
		"linear":      {point{Size: 10, Value: 7}, point{Size: 30, Value: 21}, 1},
		"quadratic":   {point{Size: 10, Value: 1}, point{Size: 100, Value: 100}, 2},
		"less":        {point{Size: 10, Value: 4}, point{Size: 20, Value: 2}, -1},
		"from zero":   {point{Size: 10}, point{Size: 20, Value: 2}, math.NaN()},
		"to zero":     {point{Size: 10, Value: 2}, point{Size: 20}, math.NaN()},
		"of one size": {point{Size: 10, Value: 2}, point{Size: 10, Value: 3}, math.NaN()},
	} {
		t.Run(name, func(t *testing.T) {
			got := exponent(test.from, test.to)
			if math.IsNaN(test.want) {
				require.Nil(t, got)
				return
			}
			require.InDelta(t, test.want, *got, 1e-9)
		})
	}
}

func TestGrowthIsReportedWhereItIsTooMuch(t *testing.T) {
	all := someReport().Measurements
	require.False(t, all[0].Grows(), "in proportion to the size, as expected")
	require.True(t, all[1].Grows())
	require.False(t, all[1].Points[0].excessive(constant))
	require.False(t, all[2].Grows())
	require.False(t, all[0].Missed(), "without a goal")
	require.True(t, all[1].Missed())
	require.False(t, all[2].Missed(), "zero is at most zero")
	all[2].Points[2].Value = 1
	require.True(t, all[2].Missed())
}

func TestPageIsSelfContained(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, someReport().writePage(&out))
	page := out.String()
	require.NotContains(t, page, "<script")
	require.NotContains(t, page, "http://")
	require.NotContains(t, page, "https://")
	require.NotContains(t, page, "<link")
	require.NotContains(t, page, "<b>", "names are escaped")
	require.NotContains(t, page, "NaN")
	require.NotContains(t, page, "Inf")
	require.Contains(t, page, "prefers-color-scheme: dark")
	require.Equal(t, 4, strings.Count(page, "<svg"))
	require.Equal(t, 4, strings.Count(page, ">namespaces</text>"), "each horizontal axis has a label")
	require.Equal(t, 3, strings.Count(page, `class="goal"`))
	require.Equal(t, 2, strings.Count(page, `class="floor"`))
	require.Contains(t, page, "it takes longer than the limit")
	requireWellFormed(t, page)
}

func TestPageOfNothing(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, (&report{Sizes: []int{10}, Failures: []failure{{10, "rollout", "late"}}}).writePage(&out))
	require.Contains(t, out.String(), "10 namespaces: rollout: late")
	requireWellFormed(t, out.String())
}

// requireWellFormed requires that every element of a page is closed.
func requireWellFormed(t *testing.T, page string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(page))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

func TestCurveIsInsideOfItsDrawing(t *testing.T) {
	for _, m := range someReport().Measurements {
		c := newCurve(m)
		require.Len(t, c.Dots, len(m.Points))
		for i, d := range c.Dots {
			require.GreaterOrEqual(t, d.X, float64(c.Left))
			require.LessOrEqual(t, d.X, float64(c.Right))
			require.GreaterOrEqual(t, d.Y, float64(c.Top))
			require.LessOrEqual(t, d.Y, float64(c.Bottom))
			if i > 0 && m.Points[i].Value > m.Points[i-1].Value {
				require.Less(t, d.Y, c.Dots[i-1].Y, "greater values are higher")
			}
		}
		require.NotEmpty(t, c.Up)
	}
}

func TestTicks(t *testing.T) {
	require.Equal(t, []float64{1, 2, 5, 10}, axis{0.9, 12}.ticks())
	require.Equal(t, []float64{0.1, 0.2}, axis{0.09, 0.3}.ticks())
	require.Equal(t, []float64{1, 10, 100, 1000}, axis{0.9, 1200}.ticks())
}

func TestFlags(t *testing.T) {
	o, err := parseFlags(nil, io.Discard)
	require.NoError(t, err)
	require.Equal(t, []int{1000, 3000, 10000}, o.sizes)
	for args, want := range map[string]string{
		"-sizes=10,x":    `-sizes: "x" is not a positive number`,
		"-sizes=0":       `-sizes: "0" is not a positive number`,
		"-sizes=20,10":   "-sizes: 20,10 is not ascending",
		"-sizes=10,10":   "-sizes: 10,10 is not ascending",
		"-rate=0":        "-creations, -floor, -probes, -restarts and -rate must be positive",
		"-creations=0":   "-creations, -floor, -probes, -restarts and -rate must be positive",
		"-unknown=value": "flag provided but not defined: -unknown",
	} {
		_, err := parseFlags([]string{args}, io.Discard)
		require.EqualError(t, err, want)
	}
}
