package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// manual is a page with figures of a run.
type manual struct {
	path      string
	isExcerpt bool // it has only some of the rows
}

// manuals are the pages that -docs writes, by their paths in the repository.
var manuals = []manual{{path: "docs/performance.md"}, {path: "README.md", isExcerpt: true}}

// The figures in a manual are between these lines.
const (
	figuresBegin = "<!-- The figures of make bench. To replace them: make bench DOCS=1 -->\n"
	figuresEnd   = "<!-- The end of the figures. -->\n"
)

// outcome is what a run has measured, and on what.
type outcome struct {
	table
	kubernetes string // the minor version, such as 1.36
	cores      int
}

// manualRow is a row of the table in the manuals.
type manualRow struct {
	title string
	// measures are the rows of the run whose figures a cell has.
	measures    []string
	unit        string
	decimals    int // of figures from 10 on
	isInExcerpt bool
}

var manualRows = []manualRow{
	{
		title:    "a new namespace until it is populated, p50 / p95",
		measures: []string{"new namespace: p50", "new namespace: p95"}, unit: "ms", isInExcerpt: true,
	},
	{title: "500 namespaces at once", measures: []string{"500 namespaces at once: per second"}, unit: "per second"},
	{
		title:    "the API server's CPU time for a namespace and its objects",
		measures: []string{"API server's CPU time for them"}, unit: "ms", decimals: 1,
	},
	{
		title:    "the request that creates a namespace, p50",
		measures: []string{"a namespace's creation, nstpl without templates: p50"}, unit: "ms", isInExcerpt: true,
	},
	{
		title:    "the same request with 100 templates, p50",
		measures: []string{"a namespace's creation, 100 templates: p50"}, unit: "ms",
	},
	{
		title:    "writes for a namespace and its five objects",
		measures: []string{"writes for a namespace and 5 objects"}, isInExcerpt: true,
	},
	{
		title:    "a new namespace while a template rolls out to 500 others, p50 / p95",
		measures: []string{"new namespace during a rollout: p50", "new namespace during a rollout: p95"}, unit: "ms",
	},
	{
		title:    "an edited object corrected, p50 / p99",
		measures: []string{"an edited object corrected: p50", "an edited object corrected: p99"}, unit: "ms", isInExcerpt: true,
	},
	{
		title:    "writes in an idle minute, besides the leader's lease",
		measures: []string{"writes in 1m0s of idleness"}, isInExcerpt: true,
	},
}

// replaceFigures returns the text of a manual with the figures of a run.
func replaceFigures(text string, isExcerpt bool, of outcome) (string, error) {
	before, rest, hasBegin := strings.Cut(text, figuresBegin)
	_, after, hasEnd := strings.Cut(rest, figuresEnd)
	if !hasBegin || !hasEnd {
		return "", fmt.Errorf("no lines %q and %q", strings.TrimSpace(figuresBegin), strings.TrimSpace(figuresEnd))
	}
	var figures strings.Builder
	fmt.Fprintf(&figures, "\nWith Kubernetes %s, on %d cores that all programs share:\n\n", of.kubernetes, of.cores)
	figures.WriteString("| | without the operator | with it |\n|---|---|---|\n")
	for _, line := range manualRows {
		if isExcerpt && !line.isInExcerpt {
			continue
		}
		floor, operator, err := line.cells(of.table)
		if err != nil {
			return "", err
		}
		figures.WriteString(strings.ReplaceAll("| "+line.title+" | "+floor+" | "+operator+" |\n", "|  |", "| |"))
	}
	return before + figuresBegin + figures.String() + "\n" + figuresEnd + after, nil
}

// cells returns the figures of both sides. The first cell is empty if the floor has none.
func (m manualRow) cells(t table) (floor, operator string, err error) {
	var floors, operators []string
	for _, name := range m.measures {
		r, isFound := t.find(name)
		if !isFound {
			return "", "", fmt.Errorf("the run has not measured %q", name)
		}
		if r.floor != nil {
			floors = append(floors, m.figure(*r.floor))
		}
		operators = append(operators, m.figure(r.operator))
	}
	return m.cell(floors), m.cell(operators), nil
}

func (m manualRow) cell(figures []string) string {
	if len(figures) == 0 {
		return ""
	}
	return strings.TrimSpace(strings.Join(figures, " / ") + " " + m.unit)
}

func (m manualRow) figure(number float64) string {
	decimals := m.decimals
	if number < 10 {
		decimals = 1
	}
	return strings.TrimSuffix(strconv.FormatFloat(number, 'f', decimals, 64), ".0")
}

// checkManuals returns an error if the manuals cannot be written. It is called before a run, which takes minutes.
func checkManuals() error {
	var example table
	for _, line := range manualRows {
		for _, name := range line.measures {
			example.add(name, "", 0, "")
		}
	}
	return eachManual(func(m manual, text string) error {
		_, err := replaceFigures(text, m.isExcerpt, outcome{table: example})
		return err
	})
}

// writeManuals writes the figures of a run to the manuals.
func writeManuals(of outcome) error {
	return eachManual(func(m manual, text string) error {
		replaced, err := replaceFigures(text, m.isExcerpt, of)
		if err != nil {
			return err
		}
		return os.WriteFile(m.path, []byte(replaced), 0o644)
	})
}

func eachManual(do func(m manual, text string) error) error {
	var errs []error
	for _, m := range manuals {
		text, err := os.ReadFile(m.path)
		if err == nil {
			err = do(m, string(text))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.path, err))
		}
	}
	return errors.Join(errs...)
}
