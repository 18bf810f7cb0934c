package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"nstpl.dev/nstpl/test/measure"
)

// table has the results of the measurements.
type table []row

// latencies has the times until namespaces were populated.
type latencies map[side][]time.Duration

// row is a figure of the operator, with the floor's figure and the goal if there are any.
type row struct {
	measure, unit string
	floor         *float64
	operator      float64
	ratio         *float64 // operator divided by floor
	goal          string
}

// add adds a figure without a floor.
func (t *table) add(what, unit string, operator float64, goal string) {
	*t = append(*t, row{measure: what, unit: unit, operator: operator, goal: goal})
}

// compare adds a figure of both sides.
func (t *table) compare(what, unit string, floor, operator float64, goal string) {
	r := row{measure: what, unit: unit, floor: &floor, operator: operator, goal: goal}
	if floor != 0 {
		r.ratio = new(operator / floor)
	}
	*t = append(*t, r)
}

// latencies adds percentiles of both sides with their goals.
func (t *table) latencies(what string, all latencies, goals map[int]string) {
	for _, p := range []int{50, 95, 99} {
		t.compare(fmt.Sprintf("%s: p%d", what, p), "ms",
			measure.Milliseconds(measure.Percentile(all[floorSide], p)),
			measure.Milliseconds(measure.Percentile(all[operatorSide], p)), goals[p])
	}
}

// find returns the row with a figure.
func (t table) find(measure string) (row, bool) {
	for _, r := range t {
		if r.measure == measure {
			return r, true
		}
	}
	return row{}, false
}

// print writes the table as text.
func (t table) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tUNIT\tFLOOR\tOPERATOR\tRATIO\tGOAL")
	for _, r := range t {
		floor, ratio := "-", "-"
		if r.floor != nil {
			floor = measure.Figure(*r.floor)
		}
		if r.ratio != nil {
			ratio = strconv.FormatFloat(*r.ratio, 'f', 2, 64) + "x"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.measure, cmp.Or(r.unit, "-"), floor, measure.Figure(r.operator),
			ratio, cmp.Or(r.goal, "-"))
	}
	return w.Flush()
}
