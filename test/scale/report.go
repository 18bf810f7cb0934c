package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"nstpl.dev/nstpl/test/measure"
)

// growth is how a figure may grow with the size of the cluster: as its power with this exponent.
type growth float64

const (
	constant growth = 0
	linear   growth = 1
)

// tolerance is how much an exponent may exceed the growth without being reported, because measurements vary.
const tolerance = 0.25

// goal is the greatest value that a figure should have. It is nil if there is no limit.
type goal struct {
	AtMost float64 `json:"atMost"`
	// OfFloor reports whether AtMost is a multiple of the floor.
	OfFloor bool `json:"ofFloor,omitempty"`
}

func atMost(value float64) *goal { return &goal{AtMost: value} }
func ratio(value float64) *goal  { return &goal{AtMost: value, OfFloor: true} }

func (g *goal) String() string {
	if g == nil {
		return "-"
	}
	text := "at most " + measure.Figure(g.AtMost)
	if g.OfFloor {
		text += "x"
	}
	return text
}

// measurement is what is measured at each size. Less is better in all of them.
type measurement struct {
	Name   string `json:"name"`
	Unit   string `json:"unit,omitempty"`
	Growth growth `json:"growth"`
	Goal   *goal  `json:"goal,omitempty"`
	// Points are in ascending order of their sizes.
	Points []point `json:"points"`
}

// point is the figure at a size, which is the number of namespaces.
type point struct {
	Size  int      `json:"size"`
	Value float64  `json:"value"`
	Floor *float64 `json:"floor,omitempty"`
	Ratio *float64 `json:"ratio,omitempty"` // value divided by floor
	// Exponent is that of the growth since the previous size: 1 if the figure is proportional to the size.
	Exponent *float64 `json:"exponent,omitempty"`
}

// last returns the figure at the greatest size.
func (m *measurement) last() point { return m.Points[len(m.Points)-1] }

// limit returns the goal at a point in the unit of the figure.
func (m *measurement) limit(at point) (limit float64, ok bool) {
	switch {
	case m.Goal == nil || m.Goal.OfFloor && at.Floor == nil:
		return 0, false
	case m.Goal.OfFloor:
		return m.Goal.AtMost * *at.Floor, true
	default:
		return m.Goal.AtMost, true
	}
}

// Missed reports whether the figure at the greatest size is above the goal.
func (m *measurement) Missed() bool {
	limit, ok := m.limit(m.last())
	return ok && m.last().Value > limit
}

// Grows reports whether the figure grows faster than it may, between any two sizes.
func (m *measurement) Grows() bool {
	return slices.ContainsFunc(m.Points, func(p point) bool { return p.excessive(m.Growth) })
}

func (p point) excessive(than growth) bool {
	return p.Exponent != nil && *p.Exponent > float64(than)+tolerance
}

// failure is a step that failed. The steps after it ran nevertheless.
type failure struct {
	Size  int    `json:"size"`
	Step  string `json:"step"`
	Error string `json:"error"`
}

// report is the result of a run.
type report struct {
	Kubernetes string    `json:"kubernetes"`
	Processors int       `json:"processors"`
	Started    time.Time `json:"started"`
	Seconds    float64   `json:"seconds"`
	Sizes      []int     `json:"sizes"`
	// Conditions says under which conditions a figure was measured, if they are not always the same.
	Conditions   []string       `json:"conditions,omitempty"`
	Measurements []*measurement `json:"measurements"`
	Failures     []failure      `json:"failures,omitempty"`
	// Steps has the seconds that each step took.
	Steps []step `json:"steps"`
}

type step struct {
	Size    int     `json:"size"`
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// add adds a figure. The first point of a measurement says what the others have in common.
func (r *report) add(of measurement, size int, value float64, floor *float64) {
	at := slices.IndexFunc(r.Measurements, func(m *measurement) bool { return m.Name == of.Name })
	if at < 0 {
		at = len(r.Measurements)
		r.Measurements = append(r.Measurements, &of)
	}
	m := r.Measurements[at]
	p := point{Size: size, Value: value, Floor: floor}
	if floor != nil && *floor > 0 {
		p.Ratio = new(value / *floor)
	}
	if len(m.Points) > 0 {
		p.Exponent = exponent(m.last(), p)
	}
	m.Points = append(m.Points, p)
}

// exponent returns the exponent of the growth from one point to another, or nil if a figure is zero.
func exponent(from, to point) *float64 {
	if from.Value <= 0 || to.Value <= 0 || from.Size == to.Size {
		return nil
	}
	return new(math.Log(to.Value/from.Value) / math.Log(float64(to.Size)/float64(from.Size)))
}

// print writes the report as text.
func (r *report) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "\tUNIT\tFLOOR")
	for _, size := range r.Sizes {
		fmt.Fprintf(w, "\t%d", size)
	}
	fmt.Fprintln(w, "\tRATIO\tGROWTH\tGOAL")
	for _, m := range r.Measurements {
		fmt.Fprintln(w, strings.Join(r.row(m), "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, text := range r.Conditions {
		fmt.Fprintln(out, text)
	}
	fmt.Fprintln(out, "GROWTH is the exponent from each size to the next: 0 is constant, 1 is linear; ! is too much.")
	for _, f := range r.Failures {
		fmt.Fprintf(out, "FAILED with %d namespaces: %s: %s\n", f.Size, f.Step, f.Error)
	}
	return nil
}

func (r *report) row(m *measurement) []string {
	floor, times := "-", "-"
	if last := m.last(); last.Floor != nil {
		floor = measure.Figure(*last.Floor)
		if last.Ratio != nil {
			times = strconv.FormatFloat(*last.Ratio, 'f', 2, 64) + "x"
		}
	}
	cells := []string{m.Name, cmp.Or(m.Unit, "-"), floor}
	for _, size := range r.Sizes {
		cell := "-"
		if at := slices.IndexFunc(m.Points, func(p point) bool { return p.Size == size }); at >= 0 {
			cell = measure.Figure(m.Points[at].Value)
		}
		cells = append(cells, cell)
	}
	target := m.Goal.String()
	if m.Missed() {
		target += ", missed"
	}
	return append(cells, times, m.exponents(), target)
}

// exponents returns the exponents as text, with a mark after each that is too great.
func (m *measurement) exponents() string {
	var all []string
	for _, p := range m.Points {
		if p.Exponent == nil {
			continue
		}
		text := strconv.FormatFloat(*p.Exponent, 'f', 2, 64)
		if p.excessive(m.Growth) {
			text += "!"
		}
		all = append(all, text)
	}
	return cmp.Or(strings.Join(all, " "), "-")
}

// writeJSON writes the report for programs.
func (r *report) writeJSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
