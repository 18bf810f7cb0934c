// Package output writes what the commands have to say: lines, tables, streams of objects and errors.
package output

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Line writes one line. Names and messages come from whoever may write to the cluster, so control characters in them
// are escaped: they would reach the terminal. A failed write is not reported: there is nowhere left to report it.
func Line(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, Escape(fmt.Sprintf(format, args...)))
}

// Escape makes control characters visible.
func Escape(text string) string {
	if strings.IndexFunc(text, unprintable) < 0 {
		return text
	}
	var escaped strings.Builder
	for _, r := range text {
		if unprintable(r) {
			escaped.WriteString(strings.Trim(fmt.Sprintf("%q", r), "'"))
		} else {
			escaped.WriteRune(r)
		}
	}
	return escaped.String()
}

// EscapeJSON makes control characters in a JSON text visible, as the same JSON values.
func EscapeJSON(text string) string {
	var escaped strings.Builder
	for _, r := range text {
		if r != '\n' && unprintable(r) {
			fmt.Fprintf(&escaped, `\u%04x`, r)
		} else {
			escaped.WriteRune(r)
		}
	}
	return escaped.String()
}

// unprintable also covers the marks that change the direction of text, with which one name can look like another.
func unprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control) || r == '\u2028' || r == '\u2029'
}

// Object names an object as kubectl does: networkpolicy.networking.k8s.io/default-deny.
func Object(kind schema.GroupKind, name string) string {
	return strings.ToLower(kind.String()) + "/" + name
}

// Subject names a subject of RBAC: "User jane", "ServiceAccount team-a/builder".
func Subject(subject rbacv1.Subject) string {
	if subject.Namespace != "" {
		return subject.Kind + " " + subject.Namespace + "/" + subject.Name
	}
	return subject.Kind + " " + subject.Name
}
