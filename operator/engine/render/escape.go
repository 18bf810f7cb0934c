package render

import (
	"bytes"
	"fmt"
)

// EscapeJSON returns JSON that a YAML parser reads as the same values. YAML rejects some characters that JSON allows in
// strings, and reads others as line breaks. The API server parses apply patches as YAML: without EscapeJSON, it would
// bind a role to the user "a b" instead of "a\u0085b".
func EscapeJSON(data []byte) []byte {
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
