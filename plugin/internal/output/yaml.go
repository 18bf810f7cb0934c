package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"

	"sigs.k8s.io/yaml"
)

// YAML returns value as a YAML document. Where the YAML library can't write a string that JSON can hold (a user name with
// a control character in it), the document is JSON with such characters escaped, which is YAML too.
func YAML(value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var want, got any
	if err := json.Unmarshal(data, &want); err != nil {
		return nil, err
	}
	document, err := yaml.JSONToYAML(data)
	if err == nil && yaml.Unmarshal(document, &got) == nil && reflect.DeepEqual(got, want) {
		return document, nil
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, data, "", "  "); err != nil {
		return nil, err
	}
	return append(escapeJSON(indented.Bytes()), '\n'), nil
}

// escapeJSON escapes what may stand in a JSON string and not in YAML.
func escapeJSON(data []byte) []byte {
	var escaped bytes.Buffer
	for _, r := range string(data) {
		if r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0xfeff || r == 0xfffe || r == 0xffff {
			fmt.Fprintf(&escaped, `\u%04x`, r)
		} else {
			escaped.WriteRune(r)
		}
	}
	return escaped.Bytes()
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
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "    ")
	return encoder.Encode(value)
}
