package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"

	"nstpl.dev/nstpl/test/measure"
)

//go:embed page.html
var pageText string

// The size of a curve's drawing, and the margins around its axes, in the units of its viewBox.
const (
	curveWidth, curveHeight                          = 360, 230
	leftMargin, rightMargin, topMargin, bottomMargin = 56, 14, 12, 40
)

// writePage writes the report as one HTML page that needs no other file.
func (r *report) writePage(out io.Writer) error {
	page, err := template.New("page").Funcs(template.FuncMap{
		"curve": newCurve, "row": r.row, "figure": measure.Figure,
		"minutes": func(seconds float64) string {
			return fmt.Sprintf("%.0f min %02.0f s", math.Floor(seconds/60), math.Mod(seconds, 60))
		},
	}).Parse(pageText)
	if err != nil {
		return err
	}
	return page.Execute(out, r)
}

// curve is a drawing of a measurement. Both axes are logarithmic, so that the slope of a line is its exponent.
type curve struct {
	Name, Unit           string
	Width, Height        int
	Left, Right          int
	Top, Bottom          int
	Across, Up           []tick
	Value, Floor, Target string // points of polylines
	Dots                 []dot
	Goal                 string
	Missed, Grows        bool
	LabelX, LabelY       int
}

type tick struct {
	At   float64
	Text string
}

type dot struct {
	X, Y float64
	Text string
}

func newCurve(m *measurement) curve {
	c := curve{
		Name: m.Name, Unit: m.Unit, Width: curveWidth, Height: curveHeight, Left: leftMargin, Top: topMargin,
		Right: curveWidth - rightMargin, Bottom: curveHeight - bottomMargin,
		LabelX: (leftMargin + curveWidth - rightMargin) / 2, LabelY: curveHeight - 6,
		Missed: m.Missed(), Grows: m.Grows(),
	}
	if m.Goal != nil {
		c.Goal = m.Goal.String()
	}
	across, up := m.axes()
	x := func(size int) float64 { return across.position(float64(size), float64(c.Left), float64(c.Right)) }
	y := func(value float64) float64 { return up.position(value, float64(c.Bottom), float64(c.Top)) }
	for _, p := range m.Points {
		c.Across = append(c.Across, tick{x(p.Size), strconv.Itoa(p.Size)})
		c.Dots = append(c.Dots, dot{x(p.Size), y(p.Value), measure.Figure(p.Value) + " " + m.Unit})
	}
	for _, value := range up.ticks() {
		c.Up = append(c.Up, tick{y(value), strconv.FormatFloat(value, 'g', -1, 64)})
	}
	c.Value = m.line(x, y, func(p point) (float64, bool) { return p.Value, true })
	c.Floor = m.line(x, y, func(p point) (float64, bool) {
		if p.Floor == nil {
			return 0, false
		}
		return *p.Floor, true
	})
	c.Target = m.line(x, y, m.limit)
	return c
}

// line returns the points of a polyline. It continues a line with a single point to both sides, to be visible.
func (m *measurement) line(x func(int) float64, y func(float64) float64, of func(point) (float64, bool)) string {
	var points []string
	add := func(across, up float64) { points = append(points, fmt.Sprintf("%.1f,%.1f", across, up)) }
	for _, p := range m.Points {
		if value, ok := of(p); ok {
			add(x(p.Size), y(value))
			if len(m.Points) == 1 {
				add(x(p.Size)-20, y(value))
				add(x(p.Size)+20, y(value))
			}
		}
	}
	return strings.Join(points, " ")
}

// axis is a logarithmic axis.
type axis struct{ low, high float64 }

// include extends the axis to a value. Zero has no place on a logarithmic axis: it is drawn at the low end.
func (a *axis) include(value float64) {
	if value > 0 {
		a.low, a.high = min(a.low, value), max(a.high, value)
	}
}

// axes returns the axes of the sizes and of the figures.
func (m *measurement) axes() (across, up axis) {
	across, up = axis{math.Inf(1), 0}, axis{math.Inf(1), 0}
	for _, p := range m.Points {
		across.include(float64(p.Size))
		up.include(p.Value)
		if p.Floor != nil {
			up.include(*p.Floor)
		}
		if limit, ok := m.limit(p); ok {
			up.include(limit)
		}
	}
	if up.high == 0 { // nothing but zeros
		up = axis{1, 10}
	}
	margin := 1.5
	if up.high < 4*up.low {
		margin = 3 // so that there are some ticks
	}
	return axis{across.low / 1.2, across.high * 1.2}, axis{up.low / margin, up.high * margin}
}

// position returns the position of a value between the two ends of the axis.
func (a axis) position(value, start, end float64) float64 {
	if value < a.low {
		return start
	}
	at := start + (end-start)*math.Log(value/a.low)/math.Log(a.high/a.low)
	return math.Round(at*10) / 10
}

// ticks returns the values 1, 2 and 5 of each power of ten on the axis, or only the 1 if there would be many.
func (a axis) ticks() []float64 {
	steps := []float64{1, 2, 5}
	if a.high/a.low > 1000 {
		steps = steps[:1]
	}
	var all []float64
	for power := math.Floor(math.Log10(a.low)); power <= math.Log10(a.high); power++ {
		for _, step := range steps {
			// Parsed, since powers of ten below 1 are not exact.
			value, err := strconv.ParseFloat(fmt.Sprintf("%ge%g", step, power), 64)
			if err == nil && value >= a.low && value <= a.high {
				all = append(all, value)
			}
		}
	}
	return all
}
