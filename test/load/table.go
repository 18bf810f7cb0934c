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

// table is what was measured.
type table []row

// latencies are how long namespaces took to be populated.
type latencies map[side][]time.Duration

// row is a figure of the operator, beside the floor's where there is one and the goal where there is one.
type row struct {
	Measure  string   `json:"measure"`
	Unit     string   `json:"unit,omitempty"`
	Floor    *float64 `json:"floor,omitempty"`
	Operator float64  `json:"operator"`
	Ratio    *float64 `json:"ratio,omitempty"` // operator to floor
	Goal     string   `json:"goal,omitempty"`
}

// add adds a figure that has no floor.
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

// latencies adds the percentiles of both sides, which have their goals.
func (t *table) latencies(measure string, all latencies, goals map[int]string) {
	for _, p := range []int{50, 95, 99} {
		t.compare(fmt.Sprintf("%s: p%d", measure, p), "ms",
			milliseconds(percentile(all[floorSide], p)), milliseconds(percentile(all[operatorSide], p)), goals[p])
	}
}

// print writes the table for people.
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

// figure writes a number with as many digits as are worth reading.
func figure(number float64) string {
	if number == math.Trunc(number) || number >= 100 {
		return strconv.FormatFloat(number, 'f', 0, 64)
	}
	return strconv.FormatFloat(number, 'f', 2, 64)
}

// percentile returns the smallest value that is not exceeded by p percent of the values; zero if there are none.
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
