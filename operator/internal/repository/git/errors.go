package git

import (
	"errors"
	"strings"

	"nstpl.dev/nstpl/operator/engine/files"
)

type (
	// Reason is the reason of an error. The errors of this package are those of package files.
	Reason = files.Reason
	// Error is an error with a reason.
	Error = files.Error
	// RefusedFiles is the error for files that cannot be used.
	RefusedFiles = files.RefusedFiles
)

// The reasons of this package.
const (
	InvalidConfiguration = files.InvalidConfiguration
	Unreachable          = files.Unreachable
	UntrustedServer      = files.UntrustedServer
	AccessDenied         = files.AccessDenied
	NotFound             = files.NotFound
	LimitExceeded        = files.LimitExceeded
	InvalidContent       = files.InvalidContent
	NotVerified          = files.NotVerified
	StorageFailed        = files.StorageFailed
)

// ErrBesides is the cause of LimitExceeded if the server lists or sends too much besides the commit.
var ErrBesides = errors.New("the server lists or sends more than the commit")

func failf(reason Reason, format string, args ...any) *Error {
	return files.Failf(reason, format, args...)
}

func printable(text string, n int) string { return files.Printable(text, n) }

func size(bytes int64) string { return files.Size(bytes) }

// maxRemoteText is how many characters of a server's message are shown.
const maxRemoteText = files.MaxText

// firstLine returns the first line of a server's message that can be shown.
func firstLine(text string) string {
	for line := range strings.Lines(text) {
		if shown := printable(strings.TrimPrefix(line, "remote: "), maxRemoteText); shown != "" {
			return shown
		}
	}
	return ""
}
