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

// Error says an error as kubectl would, a line for each that is joined in it.
func Error(err error) string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // a join that is wrapped is one sentence
		var lines []string
		for _, one := range joined.Unwrap() {
			lines = append(lines, Error(one))
		}
		return strings.Join(lines, "\n")
	}
	return sentence(err)
}

func sentence(err error) string {
	var status apierrors.APIStatus
	var connection *url.Error
	switch {
	case errors.As(err, &status):
		return Escape(fromServer(err, status.Status().Reason))
	case errors.As(err, &connection):
		if message, ok := cmdutil.StandardErrorMessage(connection); ok {
			return Escape(message)
		}
	}
	// An error of ours may have lines: those that suggest another command, or list what is wrong with a template.
	lines := strings.Split(strings.TrimRight("error: "+err.Error(), "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.ReplaceAll(Escape(line), `\t`, "  ")
	}
	return strings.Join(lines, "\n")
}

func fromServer(err error, reason metav1.StatusReason) string {
	switch reason {
	case metav1.StatusReasonUnauthorized:
		return fmt.Sprintf("error: you must be logged in to the server (%v)", err)
	case metav1.StatusReasonForbidden:
		if strings.Contains(err.Error(), "ask for the verb") { // our admission policies say what to ask for
			return fmt.Sprintf("Error from server (%s): %v", reason, err)
		}
		return fmt.Sprintf("Error from server (%s): %v: ask an administrator of the cluster for it", reason, err)
	case metav1.StatusReasonUnknown:
		return fmt.Sprintf("Error from server: %v", err)
	default:
		return fmt.Sprintf("Error from server (%s): %v", reason, err)
	}
}
