package main

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// table counts the results of trials. It is safe for concurrent use.
type table struct {
	out io.Writer

	mu   sync.Mutex
	rows map[row]*sum
	runs int
}

// row identifies a line of the table.
type row struct{ scenario, fault string }

type sum struct{ runs, faults, writes, failures int }

func newTable(out io.Writer) *table {
	return &table{out: out, rows: map[row]*sum{}}
}

var number = regexp.MustCompile(`\d+$`)

// add prints the result of a trial, and counts it.
func (t *table) add(tried trial, replicas int, came result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runs++
	name := cmp.Or(number.ReplaceAllString(tried.fault.name, "N"), "none")
	all := row{tried.scenario.name, name}
	if t.rows[all] == nil {
		t.rows[all] = &sum{}
	}
	one := t.rows[all]
	one.runs++
	one.faults += came.injected
	one.writes += came.writes
	if len(came.failures) > 0 {
		one.failures++
		fmt.Fprint(t.out, tried.report(replicas, came.failures))
		return
	}
	fmt.Fprintf(t.out, "%4d ok %s replicas=%d: %d writes, %d faults, %s\n", t.runs, tried, replicas, came.writes,
		came.injected, came.took.Round(100*time.Millisecond))
}

// print prints the table, and returns the number of failed trials.
func (t *table) print() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	var keys []row
	for key := range t.rows {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.scenario, b.scenario), cmp.Compare(a.fault, b.fault))
	})
	var total sum
	lines := tabwriter.NewWriter(t.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(lines, "\nscenario\tfault\truns\tfaults\twrites\tfailures")
	for _, key := range keys {
		one := t.rows[key]
		fmt.Fprintf(lines, "%s\t%s\t%d\t%d\t%d\t%d\n", key.scenario, key.fault, one.runs, one.faults, one.writes,
			one.failures)
		total = sum{
			total.runs + one.runs, total.faults + one.faults, total.writes + one.writes, total.failures + one.failures,
		}
	}
	fmt.Fprintf(lines, "all\t\t%d\t%d\t%d\t%d\n", total.runs, total.faults, total.writes, total.failures)
	_ = lines.Flush() // errors of standard output are ignored
	return total.failures
}
