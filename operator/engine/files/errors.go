package files

import (
	"fmt"
	"strings"
	"unicode"
)

// Reason classifies errors. Its values can be reasons of conditions.
type Reason string

const (
	// InvalidConfiguration means that the PolicyRepository, or an object that it names, must be changed.
	InvalidConfiguration Reason = "InvalidConfiguration"
	// Unreachable means that the server gave no usable answer: it may help to try again.
	Unreachable Reason = "Unreachable"
	// UntrustedServer means that the server's certificate or host key is not trusted.
	UntrustedServer Reason = "UntrustedServer"
	// AccessDenied means that the server rejects the credentials, or demands some.
	AccessDenied Reason = "AccessDenied"
	// NotFound means that the source, or the revision to follow, does not exist.
	NotFound Reason = "NotFound"
	// SourceNotReady means that the object of Flux has no artifact, or that its Ready condition is False.
	SourceNotReady Reason = "SourceNotReady"
	// LimitExceeded means that the source or the tree is larger than allowed.
	LimitExceeded Reason = "LimitExceeded"
	// InvalidContent means that the content of the source cannot be used as it is.
	InvalidContent Reason = "InvalidContent"
	// NotVerified means that a commit has no valid signature by a trusted key, or that an artifact has another digest.
	NotVerified Reason = "NotVerified"
	// StorageFailed means that the directory for fetched commits cannot be used.
	StorageFailed Reason = "StorageFailed"
)

// Error is an error whose text is one sentence that can be shown to users. It contains no credentials.
type Error struct {
	Reason  Reason
	Message string
	// Err is the cause, or nil. Its text is not meant for users.
	Err error
}

// Error returns the sentence.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Failf returns an Error with a formatted message.
func Failf(reason Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Because returns the error with a cause.
func (e *Error) Because(err error) *Error {
	e.Err = err
	return e
}

// RefusedFile is a file of the tree that cannot be used.
type RefusedFile struct {
	Path    string
	Message string // what the file is
	Remedy  string // what would make it work
}

// RefusedFiles is the error of a tree with files that cannot be used, in the order of their paths.
type RefusedFiles []RefusedFile

// Error describes the first file, and says how many others there are.
func (r RefusedFiles) Error() string {
	if len(r) == 0 {
		return "no file is refused"
	}
	text := fmt.Sprintf("%s: %s: %s", r[0].Path, r[0].Message, r[0].Remedy)
	if len(r) > 1 {
		text += fmt.Sprintf(" (and %d more in the tree)", len(r)-1)
	}
	return text
}

// MaxText is how many characters of a text of a server, or of a path, are shown.
const MaxText = 200

// Printable returns a text without control and formatting characters, and with at most n characters.
func Printable(text string, n int) string {
	var out []rune
	for _, r := range strings.ToValidUTF8(text, "\ufffd") {
		switch {
		case r == '\t':
			r = ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), r == '\u2028', r == '\u2029':
			continue
		}
		if len(out) == n {
			out[n-1] = '…'
			break
		}
		out = append(out, r)
	}
	return strings.TrimSpace(string(out))
}

// Size formats a number of bytes.
func Size(bytes int64) string {
	switch {
	case bytes >= 1<<20:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes >= 1<<10:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d bytes", bytes)
}
