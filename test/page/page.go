// Package page reads the commands of Markdown pages.
package page

import (
	"os"
	"regexp"
	"slices"
	"strings"
)

// Step is a command in a page, with the output that the page shows.
type Step struct {
	// Section is the heading above the command.
	Section, Command, Output string
}

// Read returns the commands of a page.
func Read(path string) ([]Step, error) {
	content, err := os.ReadFile(path)
	return Parse(string(content)), err
}

// Parse returns the commands in a Markdown text's console blocks. A command follows "$ " and continues in the next line
// after a backslash.
func Parse(markdown string) []Step {
	var steps []Step
	section := ""
	inside := false
	continued := false
	for line := range strings.Lines(markdown) {
		text := strings.TrimRight(line, "\n")
		command, isCommand := strings.CutPrefix(text, "$ ")
		switch {
		case !inside:
			if strings.HasPrefix(text, "#") {
				section = strings.TrimLeft(text, "# ")
			}
			inside = text == "```console"
			continue
		case text == "```":
			inside = false
			continue
		case continued:
			steps[len(steps)-1].Command += "\n" + text
		case isCommand:
			steps = append(steps, Step{Section: section, Command: command})
		case len(steps) > 0:
			steps[len(steps)-1].Output += line
			continue
		}
		continued = strings.HasSuffix(text, `\`)
	}
	return steps
}

var (
	times     = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)`)
	durations = regexp.MustCompile(`\b(\d+(\.\d+)?(µs|ms|s|m))+\b`)
	spaces    = regexp.MustCompile(` {2,}`)
)

// Normalize removes parts of an output that differ between runs: times, durations, which change the widths of columns,
// and the order of objects.
func Normalize(output string) string {
	output = times.ReplaceAllString(output, "<time>")
	output = spaces.ReplaceAllString(durations.ReplaceAllString(output, "<duration>"), " ")
	lines := strings.Split(strings.TrimSpace(output), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
