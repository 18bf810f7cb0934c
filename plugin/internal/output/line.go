// Package output prints lines, tables, objects and errors.
//
// Every user who may write to the cluster can put control characters into names and messages. A terminal would
// interpret them, so every function in this package that prints escapes them, in every output format.
package output

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Line prints one line. It ignores a write error, since the error could not be printed either.
func Line(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, Escape(fmt.Sprintf(format, args...)))
}

// Escape replaces control characters with escape sequences of Go.
func Escape(text string) string {
	if strings.IndexFunc(text, isUnprintable) < 0 {
		return text
	}
	var escaped strings.Builder
	for _, r := range text {
		if isUnprintable(r) {
			escaped.WriteString(strings.Trim(fmt.Sprintf("%q", r), "'"))
		} else {
			escaped.WriteRune(r)
		}
	}
	return escaped.String()
}

// EscapeJSON replaces control characters in a JSON text with escape sequences of JSON. The values stay the same.
func EscapeJSON(text string) string {
	var escaped strings.Builder
	for _, r := range text {
		if r != '\n' && isUnprintable(r) {
			fmt.Fprintf(&escaped, `\u%04x`, r)
		} else {
			escaped.WriteRune(r)
		}
	}
	return escaped.String()
}

// isUnprintable reports whether a character must be escaped: a control character, a character that changes the
// direction of text and so can make one name look like another, or one that YAML does not allow.
func isUnprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control) || r == '\u2028' || r == '\u2029' ||
		r == '\ufffe' || r == '\uffff'
}

// Object returns the name of an object in kubectl's notation: "networkpolicy.networking.k8s.io/default-deny".
func Object(kind schema.GroupKind, name string) string {
	return strings.ToLower(kind.String()) + "/" + name
}

// Subject returns the kind and name of an RBAC subject: "User jane", "ServiceAccount team-a/builder".
func Subject(subject rbacv1.Subject) string {
	if subject.Namespace != "" {
		return subject.Kind + " " + subject.Namespace + "/" + subject.Name
	}
	return subject.Kind + " " + subject.Name
}
