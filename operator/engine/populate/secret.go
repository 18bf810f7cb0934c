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

	"nstpl.dev/nstpl/operator/codes"
)

var secretKind = schema.GroupKind{Group: corev1.GroupName, Kind: "Secret"}

// withoutValues returns the failure of a change without the values that the API server may quote: those of a Secret, or
// those of the source of a copy. Users who may read neither read the message: in the condition and the Events of the
// namespace, and in answers to their writes.
func (f *Failure) withoutValues(change Change) *Failure {
	var answer apierrors.APIStatus
	if change.Kind.GroupKind() != secretKind && !change.isOfCopy() || !errors.As(f.err, &answer) ||
		quotesNoValues(answer.Status().Message) {
		return f
	}
	status := answer.Status()
	hidden := *f
	hidden.err = errors.New(strings.ReplaceAll(f.err.Error(), status.Message, withoutValues(change, status)))
	return &hidden
}

// quotesNoValues reports whether a message is one of RBAC or of quotas. These quote only names and counts.
func quotesNoValues(message string) bool {
	for _, known := range []string{
		` cannot create resource "`, ` cannot patch resource "`, ` cannot delete resource "`,
		" exceeded quota: ", " status unknown for quota: ", codes.QuotaExceeded.AddTo(""), codes.QuotaUncounted.AddTo(""),
	} {
		if strings.Contains(message, known) {
			return true
		}
	}
	return false
}

// withoutValues returns what is known about an answer without its message: the fields that are invalid, or the status
// code.
func withoutValues(change Change, status metav1.Status) string {
	var fields []string
	if status.Reason == metav1.StatusReasonInvalid && status.Details != nil {
		for _, cause := range status.Details.Causes {
			if cause.Field != "" {
				fields = append(fields, fmt.Sprintf("%s: %s", cause.Field, field.ErrorType(cause.Type)))
			}
		}
	}
	if len(fields) > 0 {
		return fmt.Sprintf("%s %q is invalid: %s", change.Kind.Kind, status.Details.Name, strings.Join(fields, ", "))
	}
	verb := "apply"
	if change.Deletes() {
		verb = "delete"
	}
	return fmt.Sprintf("the API server answered with status %[1]d, and its message may contain values of the %[2]s: "+
		"%[3]s the %[2]s yourself with --dry-run=server to read it", status.Code, change.Kind.Kind, verb)
}
