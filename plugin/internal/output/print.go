package output

import (
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"
)

// Print writes an object with kubectl's printer for a format, and escapes control characters. It keeps line breaks and
// tabs, since templates align text with them.
func Print(w io.Writer, printer printers.ResourcePrinter, format string, object runtime.Object) error {
	var printed strings.Builder
	if err := printer.PrintObj(object, &printed); err != nil {
		return err
	}
	text := printed.String()
	switch format {
	case "yaml":
		if !isPrintable(text) { // the printer escapes control characters, but none that change the direction of text
			document, err := escapeYAML(text)
			if err != nil {
				return err
			}
			text = document
		}
	case "json":
		text = EscapeJSON(text)
	default:
		text = EscapeLines(text)
	}
	_, err := io.WriteString(w, text)
	return err
}

// escapeYAML returns a YAML document as JSON with escape sequences, which is also valid YAML.
func escapeYAML(text string) (string, error) {
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return "", err
	}
	document, err := escapedJSON(data)
	return string(document), err
}

// EscapeLines escapes control characters in a text, as Escape does, except for line breaks and tabs.
func EscapeLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		cells := strings.Split(line, "\t")
		for j, cell := range cells {
			cells[j] = Escape(cell)
		}
		lines[i] = strings.Join(cells, "\t")
	}
	return strings.Join(lines, "\n")
}
