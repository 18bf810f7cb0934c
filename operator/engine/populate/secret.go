package populate

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var secretKind = schema.GroupKind{Group: corev1.GroupName, Kind: "Secret"}

// withoutValues returns the failure of an apply without the values of a Secret that the API server may quote. Users who
// may not read the Secret read the message: in the condition and the Events of the namespace, and in answers to their
// writes.
func (f *Failure) withoutValues(kind schema.GroupKind) *Failure {
	var answer apierrors.APIStatus
	if kind != secretKind || !errors.As(f.err, &answer) || quotesNoValues(answer.Status().Message) {
		return f
	}
	status := answer.Status()
	hidden := *f
	hidden.err = errors.New(strings.ReplaceAll(f.err.Error(), status.Message, withoutValues(status)))
	return &hidden
}

// quotesNoValues reports whether a message is one of RBAC or of quotas. These quote only names and counts.
func quotesNoValues(message string) bool {
	for _, known := range []string{
		` cannot create resource "secrets" in API group "" `, ` cannot patch resource "secrets" in API group "" `,
		" exceeded quota: ", " status unknown for quota: ",
	} {
		if strings.Contains(message, known) {
			return true
		}
	}
	return false
}

// withoutValues returns what is known about an answer without its message: the fields that are invalid, or the status
// code.
func withoutValues(status metav1.Status) string {
	var fields []string
	if status.Reason == metav1.StatusReasonInvalid && status.Details != nil {
		for _, cause := range status.Details.Causes {
			if cause.Field != "" {
				fields = append(fields, fmt.Sprintf("%s: %s", cause.Field, field.ErrorType(cause.Type)))
			}
		}
	}
	if len(fields) > 0 {
		return fmt.Sprintf("Secret %q is invalid: %s", status.Details.Name, strings.Join(fields, ", "))
	}
	return fmt.Sprintf("the API server answered with status %d, and its message may contain values of the Secret: "+
		"apply the Secret yourself with --dry-run=server to read it", status.Code)
}
