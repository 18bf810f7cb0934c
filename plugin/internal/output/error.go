package output

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
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

func message(err error) string {
	var status apierrors.APIStatus
	var connection *url.Error
	switch {
	case errors.As(err, &status):
		return Escape(fromServer(err, status.Status()))
	case errors.As(err, &connection) && connection.Timeout():
		return timeoutMessage(connection)
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
func fromServer(err error, status metav1.Status) string {
	switch reason := status.Reason; reason {
	case metav1.StatusReasonUnauthorized:
		return fmt.Sprintf("error: you must be logged in to the server (%v)", err)
	case metav1.StatusReasonForbidden:
		if len(codes.Find(err.Error())) > 0 { // a denial of nstpl says itself what to do, and ends in its code
			return fmt.Sprintf("Error from server (%s): %v", reason, err)
		}
		return fmt.Sprintf("Error from server (%s): %v: ask a cluster administrator for %s", reason, err, neededFor(status))
	case metav1.StatusReasonUnknown:
		return fmt.Sprintf("Error from server: %v", err)
	default:
		return fmt.Sprintf("Error from server (%s): %v", reason, err)
	}
}

// readsPolicies matches the denial of a request that the ClusterRole nstpl-viewer permits.
var readsPolicies = regexp.MustCompile(`cannot (get|list|watch) resource "(namespacetemplates|policyspaces|` +
	`clusterprotectedattributes|securitycontextconstraints|namespaceinitializationconfigurations|` +
	`templateexemptions)" in API group "` +
	regexp.QuoteMeta(v1alpha1.GroupVersion.Group) + `"`)

// neededFor returns what permits a request that was denied.
func neededFor(denied metav1.Status) string {
	if readsPolicies.MatchString(denied.Message) {
		return "the ClusterRole nstpl-viewer"
	}
	return "this permission"
}
