package output

import (
	"context"
	"errors"
	"net/url"
	"strings"
)

// Interrupted returns the message of an error of a command that the user interrupted. It says whether a change may have
// been made.
func Interrupted(err error) string {
	var connection *url.Error
	switch {
	case !errors.Is(err, context.Canceled):
		return Error(err) // the command itself explains what it has done
	case errors.As(err, &connection) && isWrite(connection):
		return "error: interrupted during a write: it is unknown whether the change was made"
	}
	return "error: interrupted"
}

// timeoutMessage returns the message of a request that the API server did not answer in time.
func timeoutMessage(connection *url.Error) string {
	message := "Unable to connect to the server: no answer in time: check the connection, or increase --request-timeout"
	if isWrite(connection) {
		message += "; it is unknown whether the change was made"
	}
	return message
}

// isWrite reports whether a request may have changed an object: neither dry runs nor reviews do.
func isWrite(request *url.Error) bool {
	return request.Op != "Get" && !strings.Contains(request.URL, "dryRun=All") &&
		!strings.Contains(request.URL, "/authorization.k8s.io/") &&
		!strings.Contains(request.URL, "/authentication.k8s.io/")
}
