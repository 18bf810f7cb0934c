package output

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/cli-runtime/pkg/printers"
)

// color is an escape sequence that sets the color of the following text.
type color string

const (
	red    color = "\x1b[31m"
	green  color = "\x1b[32m"
	yellow color = "\x1b[33m"
	cyan   color = "\x1b[36m"

	reset = "\x1b[0m"
)

// text returns an escaped text in the color. The empty color changes nothing.
func (c color) text(escaped string) string {
	if c == "" || escaped == "" {
		return escaped
	}
	return string(c) + escaped + reset
}

// Finding prints a violation in one line: the position in a file, the rule in a color, and a text.
func Finding(w io.Writer, position, rule, text string) {
	rule = Escape(rule)
	if allowsColor(w) {
		rule = red.text(rule)
	}
	fmt.Fprintf(w, "%s: %s: %s\n", Escape(position), rule, Escape(text))
}

// statusColors are the colors of the values in the columns of tables. Other columns and values have no color: a reader
// should find what is wrong at a glance.
var statusColors = map[string]map[string]color{
	"Populated": conditionColors, "Ready": conditionColors, "Enforced": conditionColors,
	"State": {
		"Stopped": red, "Progressing": yellow, "Waiting": yellow, "Paused": yellow,
	},
	"Action": {
		"delete": red, "delete if adopted": red, "prune": red, "replace": red, "empty": red, "unknown": yellow,
	},
}

var conditionColors = map[string]color{"True": green, "False": red, "Unknown": yellow}

// allowsColor reports whether a writer is a terminal on which the user wants colors: TERM is not dumb, and NO_COLOR is
// not set.
func allowsColor(w io.Writer) bool { return printers.AllowsColorOutput(w) }

// colorRows returns the lines of a printed table with colors. The lines of rows are the last ones. Only text that the
// table already has is wrapped in escape sequences, after the columns were aligned.
func colorRows(printed string, t Table) string {
	lines := strings.SplitAfter(strings.TrimSuffix(printed, "\n"), "\n")
	first := len(lines) - len(t.Rows)
	if first < 0 {
		return printed
	}
	for i, row := range t.Rows {
		lines[first+i] = colorRow(lines[first+i], t.Columns, row)
	}
	return strings.Join(lines, "") + "\n"
}

func colorRow(line string, columns, row []string) string {
	var colored strings.Builder
	for i, cell := range row {
		cell = Escape(cell)
		at := strings.Index(line, cell)
		if i >= len(columns) || at < 0 {
			break
		}
		colored.WriteString(line[:at])
		colored.WriteString(statusColors[columns[i]][cell].text(cell))
		line = line[at+len(cell):]
	}
	return colored.String() + line
}

// NewDiffWriter returns a writer of a unified diff that colors its lines, if w allows colors. Its Close writes the last
// line, and does not close w.
func NewDiffWriter(w io.Writer) io.WriteCloser {
	return &diffWriter{w: w, hasColor: allowsColor(w)}
}

type diffWriter struct {
	w        io.Writer
	hasColor bool
	// begin is the begin of a line that is not complete.
	begin []byte
}

func (d *diffWriter) Write(data []byte) (int, error) {
	if !d.hasColor {
		return d.w.Write(data)
	}
	var colored bytes.Buffer
	text := slices.Concat(d.begin, data)
	for {
		line, rest, found := bytes.Cut(text, []byte("\n"))
		if !found {
			break
		}
		colored.WriteString(colorOfLine(string(line)).text(string(line)) + "\n")
		text = rest
	}
	d.begin = bytes.Clone(text)
	if _, err := d.w.Write(colored.Bytes()); err != nil {
		return 0, err
	}
	return len(data), nil
}

func (d *diffWriter) Close() error {
	line := string(d.begin)
	d.begin = nil
	_, err := io.WriteString(d.w, colorOfLine(line).text(line))
	return err
}

// colorOfLine returns the color of a line of a unified diff. Lines about files have none.
func colorOfLine(line string) color {
	switch {
	case strings.HasPrefix(line, "+++ "), strings.HasPrefix(line, "--- "):
		return ""
	case strings.HasPrefix(line, "+"):
		return green
	case strings.HasPrefix(line, "-"):
		return red
	case strings.HasPrefix(line, "@@"):
		return cyan
	}
	return ""
}
