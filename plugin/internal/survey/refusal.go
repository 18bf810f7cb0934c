package survey

import (
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/engine/populate"
)

// Fails reports whether the API server would also reject the apply of the operator. It does not report a dry run that
// the API server rejected because of the caller's permissions, or because of a temporary problem.
func (s Sides) Fails() bool {
	return s.Refusal != nil && !s.Replaced && !isAboutCaller(s.Refusal) && isPermanent(s.Refusal)
}

// isAboutCaller reports whether a request was denied because of the user who sent it: by the authorizer, by RBAC's
// rules against escalation, or by the admission of nstpl, which exempts the operator.
func isAboutCaller(err error) bool {
	if apierrors.IsUnauthorized(err) {
		return true
	}
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		return false
	}
	return slices.ContainsFunc([]string{
		"cannot patch resource", "cannot create resource", "attempting to grant RBAC permissions not currently held",
		"ValidatingAdmissionPolicy 'nstpl-", ".nstpl.dev\" denied the request",
	}, func(part string) bool { return strings.Contains(err.Error(), part) })
}

// RefusesRestore reports whether a failure of MayRestore says that the object cannot be restored now, and not that it
// is unknown because something could not be read.
func RefusesRestore(failure *populate.Failure) bool {
	return failure.Reason == populate.ReasonBound || failure.Reason == populate.ReasonRoleNotAsDeclared
}

// isPermanent reports whether the API server would reject the same request again.
func isPermanent(err error) bool {
	if meta.IsNoMatchError(err) {
		return true
	}
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonUnknown: // server-side apply gives no reason if an object does not match its schema
		return strings.Contains(err.Error(), "failed to create typed patch object") ||
			strings.Contains(err.Error(), "failed to convert new object")
	case metav1.StatusReasonInvalid, metav1.StatusReasonForbidden, metav1.StatusReasonBadRequest,
		metav1.StatusReasonNotFound, metav1.StatusReasonMethodNotAllowed, metav1.StatusReasonRequestEntityTooLarge,
		metav1.StatusReasonUnsupportedMediaType, metav1.StatusReasonNotAcceptable:
		return true
	}
	return false
}
