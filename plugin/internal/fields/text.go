package fields

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
)

// maxValueLength is the length in characters at which String cuts a value.
const maxValueLength = 60

// String returns the change in one line: "spec.hard.pods 50 -> 60", "data.a added: x" or "data.a removed: x".
func (c Change) String() string {
	last := c.Path[len(c.Path)-1]
	isSetItem := last.Value != nil // the path contains the value
	switch {
	case c.Added && isSetItem:
		return fmt.Sprintf("%s added", c.Path)
	case c.Removed && isSetItem:
		return fmt.Sprintf("%s removed", c.Path)
	case c.Added:
		return fmt.Sprintf("%s added: %s", c.Path, short(plain(c.To)))
	case c.Removed:
		return fmt.Sprintf("%s removed: %s", c.Path, short(plain(c.From)))
	}
	from, to := plain(c.From), plain(c.To)
	if from == to { // "1" and 1
		from, to = quoted(c.From), quoted(c.To)
	}
	from, to = skipCommon(from, to)
	return fmt.Sprintf("%s %s -> %s", c.Path, short(from), short(to))
}

// plain returns a string without quotes if it is a single word, and any other value as JSON.
func plain(value any) string {
	text, ok := value.(string)
	if !ok || text == "" || strings.ContainsAny(text, `"'{}[]`) || strings.ContainsFunc(text, isSpace) {
		return quoted(value)
	}
	return text
}

func isSpace(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

func quoted(value any) string {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Sprint(value)
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// skipCommon cuts the common begin of two long values, so that short does not cut where they differ.
func skipCommon(from, to string) (string, string) {
	const context = 20
	before, after := []rune(from), []rune(to)
	if len(before) <= maxValueLength && len(after) <= maxValueLength {
		return from, to
	}
	common := 0
	for common < min(len(before), len(after)) && before[common] == after[common] {
		common++
	}
	if common <= context {
		return from, to
	}
	return "…" + string(before[common-context:]), "…" + string(after[common-context:])
}

func short(text string) string {
	runes := []rune(text)
	if len(runes) <= maxValueLength {
		return text
	}
	return string(runes[:maxValueLength-1]) + "…"
}
