package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// measured returns an outcome with the figures of all rows of the manuals.
func measured() outcome {
	of := outcome{kubernetes: "1.40", cores: 8}
	for _, compared := range []struct {
		measure         string
		floor, operator float64
	}{
		{"new namespace: p50", 12.3, 15}, {"new namespace: p95", 9.96, 100.5},
		{"500 namespaces at once: per second", 116.7, 92.2}, {"API server's CPU time for them", 14.62, 17},
		{"a namespace's creation, nstpl without templates: p50", 2.34, 3.46},
		{"a namespace's creation, 100 templates: p50", 2, 3}, {"writes for a namespace and 5 objects", 6, 6.04},
		{"new namespace during a rollout: p50", 26, 39}, {"new namespace during a rollout: p95", 62, 91},
	} {
		of.compare(compared.measure, "", compared.floor, compared.operator, "")
	}
	of.add("an edited object corrected: p50", "ms", 6.04, "")
	of.add("an edited object corrected: p99", "ms", 35.4, "")
	of.add("writes in 1m0s of idleness", "", 0, "0")
	return of
}

func TestReplaceFigures(t *testing.T) {
	const before, after = "# Page\n\n", "\nThe rest.\n"
	got, err := replaceFigures(before+figuresBegin+"old\n"+figuresEnd+after, true, measured())
	require.NoError(t, err)
	require.Equal(t, before+figuresBegin+`
With Kubernetes 1.40, on 8 cores that all programs share:

| | without the operator | with it |
|---|---|---|
| a new namespace until it is populated, p50 / p95 | 12 / 10 ms | 15 / 100 ms |
| the request that creates a namespace, p50 | 2.3 ms | 3.5 ms |
| writes for a namespace and its five objects | 6 | 6 |
| an edited object corrected, p50 / p99 | | 6 / 35 ms |
| writes in an idle minute, besides the leader's lease | | 0 |

`+figuresEnd+after, got)

	whole, err := replaceFigures(got, false, measured())
	require.NoError(t, err)
	for _, row := range []string{
		"| 500 namespaces at once | 117 per second | 92 per second |",
		"| the API server's CPU time for a namespace and its objects | 14.6 ms | 17 ms |",
		"| a new namespace while a template rolls out to 500 others, p50 / p95 | 26 / 62 ms | 39 / 91 ms |",
	} {
		require.Contains(t, whole, "\n"+row+"\n")
	}
	again, err := replaceFigures(whole, true, measured())
	require.NoError(t, err)
	require.Equal(t, got, again)
}

func TestFiguresThatCannotBeReplaced(t *testing.T) {
	for _, page := range []string{"", figuresBegin, figuresEnd, figuresEnd + figuresBegin} {
		_, err := replaceFigures(page, false, measured())
		require.ErrorContains(t, err, "no lines")
	}
	_, err := replaceFigures(figuresBegin+figuresEnd, false, outcome{})
	require.EqualError(t, err, `the run has not measured "new namespace: p50"`)
}

// The manuals are as -docs would write them after a run with their figures.
func TestFormatOfManuals(t *testing.T) {
	t.Chdir("../..")
	require.NoError(t, checkManuals())
	performance, err := os.ReadFile("docs/performance.md")
	require.NoError(t, err)
	on := regexp.MustCompile(`\nWith Kubernetes (\S+), on (\d+) cores`).FindStringSubmatch(string(performance))
	require.NotNil(t, on)
	of := outcome{kubernetes: on[1], cores: int(number(t, on[2]))}
	for _, row := range manualRows {
		_, rest, found := strings.Cut(string(performance), "\n| "+row.title+" |")
		require.True(t, found, row.title)
		cells := strings.Split(rest, "|")
		numbers := regexp.MustCompile(`[\d.]+`)
		floors, operators := numbers.FindAllString(cells[0], -1), numbers.FindAllString(cells[1], -1)
		require.Len(t, operators, len(row.measures), row.title)
		for i, measure := range row.measures {
			if len(floors) == 0 {
				of.add(measure, "", number(t, operators[i]), "")
			} else {
				of.compare(measure, "", number(t, floors[i]), number(t, operators[i]), "")
			}
		}
	}
	require.NoError(t, eachManual(func(m manual, text string) error {
		want, err := replaceFigures(text, m.isExcerpt, of)
		require.NoError(t, err)
		require.Equal(t, want, text, m.path)
		return nil
	}))
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	parsed, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return parsed
}
