package scaffold

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// part is a part of a string in a template: either literal text or a token.
type part struct{ text, token string }

var (
	namespaceName = part{token: render.NamespaceToken}
	creatorName   = part{token: render.CreatorToken}
)

// joinParts returns the string of a template that stands for some parts. Text that looks like a token is escaped.
func joinParts(parts ...part) (string, error) {
	var joined, literal strings.Builder
	flush := func() {
		text, _ := render.Escaped(literal.String()).(string)
		joined.WriteString(text)
		literal.Reset()
	}
	for i, p := range parts {
		if p.token == "" {
			literal.WriteString(p.text)
			continue
		}
		if i > 0 && strings.HasSuffix(literal.String(), "$") {
			return "", fmt.Errorf("the character $ directly before %s cannot be written", p.token)
		}
		flush()
		joined.WriteString(p.token)
	}
	flush()
	return joined.String(), nil
}

// substitute returns the string of a template for a string of another tool in which a pattern matches variables. It
// returns an error if value does not know a variable.
func substitute(text string, pattern *regexp.Regexp, value func(match []string) (part, error)) (string, error) {
	var parts []part
	end := 0
	for _, at := range pattern.FindAllStringSubmatchIndex(text, -1) {
		var match []string
		for i := 0; i < len(at); i += 2 {
			if at[i] < 0 {
				match = append(match, "")
			} else {
				match = append(match, text[at[i]:at[i+1]])
			}
		}
		replaced, err := value(match)
		if err != nil {
			return "", err
		}
		parts = append(parts, part{text: text[end:at[0]]}, replaced)
		end = at[1]
	}
	return joinParts(append(parts, part{text: text[end:]})...)
}

// errKey is the reason why an object with a variable in a key cannot be converted.
var errKey = errors.New("a key contains a variable, and keys cannot contain tokens")

// mapStrings returns a JSON value with what convert returns for each of its strings and their paths. The keys of
// objects must not change. The error joins those of convert.
func mapStrings(value any, path string, convert func(path, text string) (string, error)) (any, error) {
	switch value := value.(type) {
	case string:
		return convert(path, value)
	case []any:
		var errs []error
		mapped := make([]any, len(value))
		for i, item := range value {
			var err error
			mapped[i], err = mapStrings(item, output.ItemPath(path, i), convert)
			errs = append(errs, err)
		}
		return mapped, errors.Join(errs...)
	case map[string]any:
		var errs []error
		mapped := make(map[string]any, len(value))
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if key, err := convert("", name); err != nil || key != name {
				errs = append(errs, errKey)
			}
			var err error
			mapped[name], err = mapStrings(value[name], output.FieldPath(path, name), convert)
			errs = append(errs, err)
		}
		return mapped, errors.Join(errs...)
	}
	return value, nil
}

// relabel replaces the keys of labels by which an object selects namespaces. Rename returns the new key, or "" if the
// key is kept. HasValue is true if the object selects a value of the label. Relabel adds a comment for each new key.
func (o *declared) relabel(rename func(key string, hasValue bool) string) {
	renamed := map[string]string{}
	o.object, _ = relabeled(o.object, func(key string, hasValue bool) string {
		to := rename(key, hasValue)
		if to == "" {
			return key
		}
		renamed[key] = to
		return to
	}).(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(renamed)) {
		o.comments.Add("", "The label %s became %s.", key, renamed[key])
	}
}

func relabeled(value any, rename func(key string, hasValue bool) string) any {
	switch value := value.(type) {
	case map[string]any:
		changed := make(map[string]any, len(value))
		for name, field := range value {
			if key, isText := field.(string); isText && name == "key" { // of a match expression
				changed[name] = rename(key, value["operator"] == "In" || value["operator"] == "NotIn")
				continue
			}
			changed[rename(name, true)] = relabeled(field, rename)
		}
		return changed
	case []any:
		changed := make([]any, len(value))
		for i, item := range value {
			changed[i] = relabeled(item, rename)
		}
		return changed
	case string:
		return rename(value, false)
	}
	return value
}

// sentence returns the messages of joined errors, each once, in one line.
func sentence(err error) string {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err.Error()
	}
	var lines []string
	for _, e := range joined.Unwrap() {
		if line := sentence(e); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}
