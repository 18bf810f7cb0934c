package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
)

// table has the results of the measurements.
type table []row

// latencies has the times until namespaces were populated.
type latencies map[side][]time.Duration

// row is a figure of the operator, with the floor's figure and the goal if there are any.
type row struct {
	Measure  string   `json:"measure"`
	Unit     string   `json:"unit,omitempty"`
	Floor    *float64 `json:"floor,omitempty"`
	Operator float64  `json:"operator"`
	Ratio    *float64 `json:"ratio,omitempty"` // operator divided by floor
	Goal     string   `json:"goal,omitempty"`
}

// add adds a figure without a floor.
func (t *table) add(measure, unit string, operator float64, goal string) {
	*t = append(*t, row{Measure: measure, Unit: unit, Operator: operator, Goal: goal})
}

// compare adds a figure of both sides.
func (t *table) compare(measure, unit string, floor, operator float64, goal string) {
	r := row{Measure: measure, Unit: unit, Floor: &floor, Operator: operator, Goal: goal}
	if floor != 0 {
		r.Ratio = new(operator / floor)
	}
	*t = append(*t, r)
}

// latencies adds percentiles of both sides with their goals.
func (t *table) latencies(measure string, all latencies, goals map[int]string) {
	for _, p := range []int{50, 95, 99} {
		t.compare(fmt.Sprintf("%s: p%d", measure, p), "ms",
			milliseconds(percentile(all[floorSide], p)), milliseconds(percentile(all[operatorSide], p)), goals[p])
	}
}

// print writes the table as text.
func (t table) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tUNIT\tFLOOR\tOPERATOR\tRATIO\tGOAL")
	for _, r := range t {
		floor, ratio := "-", "-"
		if r.Floor != nil {
			floor = figure(*r.Floor)
		}
		if r.Ratio != nil {
			ratio = strconv.FormatFloat(*r.Ratio, 'f', 2, 64) + "x"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Measure, cmp.Or(r.Unit, "-"), floor, figure(r.Operator), ratio,
			cmp.Or(r.Goal, "-"))
	}
	return w.Flush()
}

// figure formats a number with its significant digits.
func figure(number float64) string {
	if number == math.Trunc(number) || number >= 100 {
		return strconv.FormatFloat(number, 'f', 0, 64)
	}
	return strconv.FormatFloat(number, 'f', 2, 64)
}

// percentile returns the smallest value that p percent of the values do not exceed, or zero if there are no values.
func percentile(values []time.Duration, p int) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

func milliseconds(d time.Duration) float64 {
	return float64(d) / float64(time.Millisecond)
}
