// Package output prints lines, tables, objects and errors.
//
// Names and messages come from everybody who may write to the cluster, and control characters in them would reach the
// terminal of the user. Everything in this package that prints escapes them, whatever the format.
package output

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Line prints one line. It ignores a write error, since it could not be printed either.
func Line(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, Escape(fmt.Sprintf(format, args...)))
}

// Escape replaces control characters by escape sequences of Go.
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

// EscapeJSON replaces control characters in a JSON text by escape sequences of JSON, so that the values stay the same.
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

// unprintable reports whether to escape a character: a control character, or one that changes the direction of text and
// can make one name look like another.
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
