package check

import (
	"io"

	"k8s.io/cli-runtime/pkg/printers"
)

// wordsFor returns what stands for each status at the beginning of a line: a mark on a terminal that can show colors,
// and so most likely other characters too, or else a word. All of them have the same width.
func wordsFor(out io.Writer) map[Status]string {
	if printers.IsTerminal(out) && printers.AllowsColorOutput(out) {
		return map[Status]string{OK: "✓", Warning: "!", Failure: "✗", Unknown: "?"}
	}
	return map[Status]string{OK: "OK     ", Warning: "WARNING", Failure: "FAILURE", Unknown: "UNKNOWN"}
}
