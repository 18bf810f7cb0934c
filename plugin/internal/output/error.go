package output

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

// Error returns the message of an error as kubectl prints it, with one line for each of several joined errors.
func Error(err error) string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // a wrapped joined error is one message
		var lines []string
		for _, part := range joined.Unwrap() {
			lines = append(lines, Error(part))
		}
		return strings.Join(lines, "\n")
	}
	return message(err)
}

// message returns the message of one error.
func message(err error) string {
	var status apierrors.APIStatus
	var connection *url.Error
	switch {
	case errors.As(err, &status):
		return Escape(fromServer(err, status.Status().Reason))
	case errors.As(err, &connection):
		if text, ok := cmdutil.StandardErrorMessage(connection); ok {
			return Escape(text)
		}
	}
	// Errors of the plugin can have several lines, such as the suggestions of other commands or the violations of a
	// template.
	lines := strings.Split(strings.TrimRight("error: "+err.Error(), "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.ReplaceAll(Escape(line), `\t`, "  ")
	}
	return strings.Join(lines, "\n")
}

// fromServer returns the message of an error that the API server returned.
func fromServer(err error, reason metav1.StatusReason) string {
	switch reason {
	case metav1.StatusReasonUnauthorized:
		return fmt.Sprintf("error: you must be logged in to the server (%v)", err)
	case metav1.StatusReasonForbidden:
		if strings.Contains(err.Error(), "ask for the verb") { // a denial of nstpl already names the missing permission
			return fmt.Sprintf("Error from server (%s): %v", reason, err)
		}
		return fmt.Sprintf("Error from server (%s): %v: ask a cluster administrator for this permission", reason, err)
	case metav1.StatusReasonUnknown:
		return fmt.Sprintf("Error from server: %v", err)
	default:
		return fmt.Sprintf("Error from server (%s): %v", reason, err)
	}
}
