package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/engine/render"
)

// YAML returns a value as a YAML document. The YAML library cannot write every string that JSON can, such as a user
// name with a control character, and does not escape characters that change the direction of text. For such a value the
// document is JSON with escape sequences, which is also valid YAML.
func YAML(value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var want, got any
	if err := utiljson.Unmarshal(data, &want); err != nil {
		return nil, err
	}
	document, err := yaml.JSONToYAML(data)
	if err == nil && isPrintable(string(document)) && utilyaml.Unmarshal(document, &got) == nil &&
		reflect.DeepEqual(got, want) {
		return document, nil
	}
	return escapedJSON(data)
}

// escapedJSON returns a JSON text with escape sequences, so that it is also a YAML document.
func escapedJSON(data []byte) ([]byte, error) {
	var indented bytes.Buffer
	if err := json.Indent(&indented, data, "", "  "); err != nil {
		return nil, err
	}
	return []byte(EscapeJSON(string(render.EscapeJSON(indented.Bytes()))) + "\n"), nil
}

// isPrintable reports whether a YAML document has no characters that must be escaped, except for line breaks and tabs.
func isPrintable(document string) bool {
	return strings.IndexFunc(document, func(r rune) bool { return r != '\n' && r != '\t' && isUnprintable(r) }) < 0
}

// YAMLStream writes values as YAML documents.
func YAMLStream[T any](w io.Writer, values []T) error {
	for i, value := range values {
		if i > 0 {
			if _, err := fmt.Fprintln(w, "---"); err != nil {
				return err
			}
		}
		document, err := YAML(value)
		if err != nil {
			return err
		}
		if _, err := w.Write(document); err != nil {
			return err
		}
	}
	return nil
}

// JSON writes value as indented JSON.
func JSON(w io.Writer, value any) error {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "    ")
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := io.WriteString(w, EscapeJSON(text.String()))
	return err
}
