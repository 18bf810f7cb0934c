package chart

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// writer writes objects as YAML that contains template actions.
type writer struct {
	strings.Builder
	// err is why a value could not be written, or nil.
	err error
}

// firstKeys are written before other keys, which are sorted.
var firstKeys = []string{"apiVersion", "kind", "metadata", "name"}

func (w *writer) document(o *object) {
	w.when(o.condition, func() {
		w.WriteString("---\n")
		w.entries(o.tree, 0)
	})
}

// when writes something under a condition, or always if there is none.
func (w *writer) when(condition string, write func()) {
	if condition == "" {
		write()
		return
	}
	fmt.Fprintf(w, "{{- if %s }}\n", condition)
	write()
	w.WriteString("{{- end }}\n")
}

// entries writes the entries of a map, each on lines of its own.
func (w *writer) entries(entries map[string]any, indent int) {
	for _, key := range slices.SortedFunc(maps.Keys(entries), compareKeys) {
		w.entry(key, entries[key], indent)
	}
}

func (w *writer) entry(key string, value any, indent int) {
	margin := strings.Repeat(" ", indent)
	switch value := value.(type) {
	case optional:
		w.when(value.condition, func() { w.entry(key, value.value, indent) })
	case fromValue:
		if key == splice {
			w.fromValue(value, "", indent)
			return
		}
		w.fromValue(value, margin+w.scalar(key, 0)+":\n", indent+2)
	default:
		w.WriteString(margin + w.scalar(key, 0) + ":")
		w.value(value, indent)
	}
}

// value writes a value after the key or the dash before it, which are indented by indent.
func (w *writer) value(value any, indent int) {
	switch value := value.(type) {
	case map[string]any:
		if len(value) == 0 {
			w.WriteString(" {}\n")
			return
		}
		w.WriteString("\n")
		w.entries(value, indent+2)
	case []any:
		if len(value) == 0 {
			w.WriteString(" []\n")
			return
		}
		w.WriteString("\n")
		w.elements(value, indent)
	case expression:
		w.WriteString(" {{ " + string(value) + " }}\n")
	default:
		w.WriteString(" " + w.scalar(value, indent) + "\n")
	}
}

func (w *writer) elements(elements []any, indent int) {
	for _, element := range elements {
		w.element(element, indent)
	}
}

func (w *writer) element(element any, indent int) {
	margin := strings.Repeat(" ", indent)
	switch element := element.(type) {
	case optional:
		w.when(element.condition, func() { w.element(element.value, indent) })
	case fromValue:
		w.fromValue(element, "", indent)
	case map[string]any:
		if len(element) == 0 {
			w.WriteString(margin + "- {}\n")
			return
		}
		inner := &writer{}
		inner.entries(element, indent+2)
		// The first entry is on the line of the dash, unless it is an action.
		if text, ok := strings.CutPrefix(inner.String(), margin+"  "); ok {
			w.WriteString(margin + "- " + text)
		} else {
			w.WriteString(margin + "-\n" + inner.String())
		}
	case []any:
		w.WriteString(margin + "-")
		w.value(element, indent+2)
	default:
		w.WriteString(margin + "-")
		w.value(element, indent)
	}
}

// fromValue writes a value of the chart, after a line with its key, if it has one.
func (w *writer) fromValue(value fromValue, key string, indent int) {
	fmt.Fprintf(w, "{{- with %s }}\n", value)
	fmt.Fprintf(w, "%s%s{{- toYaml . | nindent %d }}\n", key, strings.Repeat(" ", indent), indent)
	w.WriteString("{{- end }}\n")
}

// scalar returns a text, number, boolean or null in YAML. The lines of a text are indented by two more than indent.
// Actions of templates in it are escaped: Helm would evaluate those that are meant for Prometheus or Grafana.
func (w *writer) scalar(value any, indent int) string {
	marshal := func(value any) ([]byte, error) { return yaml.Marshal(map[string]any{"k": value}) }
	if text, ok := value.(string); ok {
		// Actions that follow remove all space but one end of a line, so no other space may end a block.
		block := strings.TrimSpace(text)
		if block == "" || strings.HasSuffix(text, "\n") && !strings.HasSuffix(text, block+"\n") {
			marshal = json.Marshal
		}
	}
	content, err := marshal(value)
	w.err = errors.Join(w.err, err)
	text := strings.TrimSuffix(strings.TrimPrefix(string(content), "k: "), "\n")
	lines := strings.Split(text, "\n")
	for i := range lines {
		if i > 0 && lines[i] != "" {
			lines[i] = strings.Repeat(" ", indent) + lines[i]
		}
	}
	return strings.ReplaceAll(strings.Join(lines, "\n"), "{{", "{{ `{{` }}")
}

func compareKeys(a, b string) int {
	rank := func(key string) int {
		if i := slices.Index(firstKeys, key); i >= 0 {
			return i
		}
		return len(firstKeys)
	}
	return cmp.Or(rank(a)-rank(b), strings.Compare(a, b))
}
