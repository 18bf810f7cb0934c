package output

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/kubectl/pkg/util/term"
)

// Note prints a sentence for a person: a note about a result, a warning, or an error. On a terminal, its lines are
// wrapped to the width, and the word that says that it is a warning has a color.
func Note(w io.Writer, format string, args ...any) {
	writeSentence(w, Escape(fmt.Sprintf(format, args...)), width(w), allowsColor(w))
}

// Sentences prints the lines of an escaped text like notes.
func Sentences(w io.Writer, escaped string) {
	for line := range strings.Lines(escaped) {
		writeSentence(w, strings.TrimSuffix(line, "\n"), width(w), allowsColor(w))
	}
}

// FirstNotes returns the first notes and, if there are more than most, one with the number of the others instead of
// %d. A single other one is returned itself.
func FirstNotes(notes []string, most int, others string) []string {
	if len(notes) <= most+1 {
		return notes
	}
	return append(slices.Clone(notes[:most]), fmt.Sprintf(others, len(notes)-most))
}

func writeSentence(w io.Writer, escaped string, width int, hasColor bool) {
	text := wrap(escaped, width)
	if hasColor {
		text = colorSeverity(text)
	}
	fmt.Fprintln(w, text) // an error could not be printed either
}

// colorSeverity colors the first word of a warning, as kubectl does.
func colorSeverity(text string) string {
	for _, severity := range []struct {
		word string
		color
	}{{"Warning:", yellow}, {"WARNING:", red}} {
		if rest, found := strings.CutPrefix(text, severity.word); found {
			return severity.text(severity.word) + rest
		}
	}
	return text
}

// width returns the number of columns of a terminal, or 0 if the writer is not a terminal.
func width(w io.Writer) int {
	size := term.TTY{Out: w}.GetSize()
	if size == nil {
		return 0
	}
	return int(size.Width)
}

// wrap breaks a line between words so that it fits the width. The other lines are indented by two more spaces than the
// first. Words that are longer than a line are not broken, so that users can copy them.
func wrap(line string, width int) string {
	const least = 40 // with less, wrapped text is harder to read than text that the terminal breaks
	if width < least || utf8.RuneCountInString(line) <= width {
		return line
	}
	text := strings.TrimLeft(line, " ")
	indent := line[:len(line)-len(text)]
	var wrapped strings.Builder
	wrapped.WriteString(indent)
	column := len(indent)
	for i, word := range strings.Split(text, " ") {
		length := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+length > width:
			wrapped.WriteString("\n  " + indent)
			column = len(indent) + 2
		default:
			wrapped.WriteByte(' ')
			column++
		}
		wrapped.WriteString(word)
		column += length
	}
	return wrapped.String()
}
