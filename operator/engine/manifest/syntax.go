package manifest

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

var (
	lineNumber = regexp.MustCompile(`line (\d+)`)
	// countsFromZero matches errors of the YAML parser, which counts lines from 0. The scanner counts them from 1.
	countsFromZero = regexp.MustCompile(`did not find expected (node content|key|'-' indicator|',' or|<)`)
	unknownAnchor  = regexp.MustCompile(`unknown anchor '([^']*)'`)
)

// SyntaxError is the error of a document that cannot be parsed. Line is its line in the file.
type SyntaxError struct {
	Line   int
	Reason string
	// IsTooLarge is true if the document has more values than allowed. It may be valid.
	IsTooLarge bool
}

func (e *SyntaxError) Error() string { return e.Reason }

// syntaxError returns the error of a parser with its line in the file.
func (d Document) syntaxError(err error) *SyntaxError {
	text := err.Error()
	from := d.offset
	if countsFromZero.MatchString(text) {
		from++
	}
	last := d.offset + 1 + bytes.Count(bytes.TrimRight(d.Content, " \t\n"), []byte("\n"))
	line := d.offset + guessLine(d.Content, text)
	for i, match := range lineNumber.FindAllStringSubmatch(text, -1) {
		if number, err := strconv.Atoi(match[1]); i == 0 && err == nil {
			line = min(from+number, last) // the parser reports the end of a file on the line after it
		}
	}
	if strings.Contains(text, "tab character that violates indentation") {
		line += linesToTab(d.Content, line-d.offset)
	}
	text = lineNumber.ReplaceAllStringFunc(text, func(match string) string {
		number, _ := strconv.Atoi(strings.TrimPrefix(match, "line "))
		return fmt.Sprintf("line %d", min(from+number, last))
	})
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors:"} {
		text = strings.TrimPrefix(text, prefix)
	}
	return &SyntaxError{Line: line, Reason: strings.Join(strings.Fields(text), " ")}
}

// tooLarge returns the error of a document with more values than allowed.
func (d Document) tooLarge(format string, values, allowed int) *SyntaxError {
	return &SyntaxError{d.offset + 1, fmt.Sprintf(format+", of which a field has two, and %d are allowed", values,
		allowed), true}
}

// guessLine returns the line of an error without a line number: that of the unknown anchor, or of the first character
// that is not allowed, or else the first line.
func guessLine(content []byte, text string) int {
	at := 0
	if match := unknownAnchor.FindStringSubmatch(text); match != nil {
		at = bytes.Index(content, []byte("*"+match[1]))
	} else {
		for at < len(content) {
			char, size := utf8.DecodeRune(content[at:])
			if char == utf8.RuneError && size == 1 || char < ' ' && char != '\t' && char != '\n' || char >= 0x7f &&
				char < 0xa0 && char != 0x85 {
				break
			}
			at += size
		}
	}
	if at < 0 || at == len(content) {
		return 1
	}
	return 1 + bytes.Count(content[:at], []byte("\n"))
}

// linesToTab returns how many lines the first line with a tab in its indentation is after another line.
func linesToTab(content []byte, line int) int {
	for i, text := range bytes.Split(content, []byte("\n")) {
		indent := text[:len(text)-len(bytes.TrimLeft(text, " \t"))]
		if i+1 >= line && bytes.Contains(indent, []byte("\t")) {
			return i + 1 - line
		}
	}
	return 0
}
