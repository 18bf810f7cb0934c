package populate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/codes"
)

// Reasons of failures in addition to those of the API server.
const (
	ReasonUnknownKind   metav1.StatusReason = "UnknownKind"
	ReasonClusterScoped metav1.StatusReason = "ClusterScoped"
	ReasonConnection    metav1.StatusReason = "Connection"
	// ReasonHeldByFinalizer is the reason for an object that is being deleted and still exists because of a finalizer.
	ReasonHeldByFinalizer metav1.StatusReason = "HeldByFinalizer"
	// ReasonWaitsForRole and ReasonRoleNotAsDeclared are the reasons for a RoleBinding whose Role was just changed, or
	// could not be applied.
	ReasonWaitsForRole      metav1.StatusReason = "WaitsForRole"
	ReasonRoleNotAsDeclared metav1.StatusReason = "RoleNotAsDeclared"
	// ReasonBound is the reason for a Role that would give rights to a RoleBinding of another client.
	ReasonBound metav1.StatusReason = "RoleIsBound"
	// ReasonNotRevoked is the reason for a Role that must not change because a RoleBinding still has subjects
	// that the plan takes away.
	ReasonNotRevoked metav1.StatusReason = "RoleBindingNotRevoked"
)

// Failure is the error of a write to an object, classified for retries, metrics and Events.
type Failure struct {
	// Reason is one of the reasons above or a reason of the API server. Metrics count failures by it.
	Reason metav1.StatusReason
	// RetryAfter is how long the API server asks to wait, or zero.
	RetryAfter time.Duration
	// NamespaceGone says that the namespace was deleted or is being deleted, so no further writes are necessary.
	NamespaceGone bool
	// InTheWay says that the declared object is valid, and that the one in the namespace, which another client wrote
	// to, is in its way.
	InTheWay bool
	// Repeated says that the client sent the write more than once. After a conflict it is unknown whether an earlier
	// attempt is what changed the object.
	Repeated bool
	err      error
}

func failuref(reason metav1.StatusReason, format string, arguments ...any) *Failure {
	return &Failure{Reason: reason, err: fmt.Errorf(format, arguments...)}
}

func (f *Failure) Error() string { return f.err.Error() }
func (f *Failure) Unwrap() error { return f.err }

// Transient reports whether the same write may succeed later although no user changes anything.
func (f *Failure) Transient() bool {
	switch f.Reason {
	case ReasonConnection, ReasonWaitsForRole, ReasonNotRevoked, metav1.StatusReasonTimeout,
		metav1.StatusReasonServerTimeout,
		metav1.StatusReasonTooManyRequests, metav1.StatusReasonServiceUnavailable, metav1.StatusReasonInternalError,
		metav1.StatusReasonConflict, ReasonSourceUnread:
		return true
	}
	return false
}

// MayPass reports whether the failure may pass although no person acts. A failure that follows from one of another
// object passes with that one.
func (f *Failure) MayPass() bool {
	if cause, follows := errors.AsType[*Failure](f.err); follows {
		return cause.MayPass()
	}
	return f.Transient() || f.Reason == ReasonSourceDelayed ||
		f.Reason == metav1.StatusReasonForbidden && isNotCounted(f.err)
}

// Unanswered reports whether the API server may have carried out the write although it failed.
func (f *Failure) Unanswered() bool {
	if f.Repeated {
		return true
	}
	switch f.Reason {
	case metav1.StatusReasonConflict, ReasonWaitsForRole, ReasonNotRevoked, ReasonSourceUnread:
		return false
	}
	return f.Transient()
}

// unanswered reports whether the API server may have carried out a write that failed with err.
func unanswered(err error) bool {
	return err != nil && NewFailure(err, "").Unanswered()
}

// byUser reports whether a user of the namespace can cause the failure on purpose: with a finalizer, with an object of
// the same name that cannot be changed, with a full quota, or by writing all the time.
func (f *Failure) byUser() bool {
	switch f.Reason {
	case ReasonHeldByFinalizer, ReasonRoleNotAsDeclared, ReasonWaitsForRole, metav1.StatusReasonInvalid,
		metav1.StatusReasonConflict:
		return true
	}
	return f.IsLocal()
}

// IsLocal reports whether a user of the namespace can cause the failure, and the same write may succeed in every other
// namespace: such failures say nothing about a template.
func (f *Failure) IsLocal() bool {
	if cause, follows := errors.AsType[*Failure](f.err); follows {
		return cause.IsLocal()
	}
	byUsers := []metav1.StatusReason{ReasonHeldByFinalizer, ReasonBound, ReasonRoleNotAsDeclared}
	return f.InTheWay || slices.Contains(byUsers, f.Reason) || exceedsQuota(f.err)
}

// exceedsQuota reports whether a write was denied because a quota of the namespace, or of its policy space, is full.
// The API server has validated the object before.
func exceedsQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// NewFailure classifies an error of a write in a namespace.
func NewFailure(err error, namespace string) *Failure {
	f := &Failure{Reason: apierrors.ReasonForError(err), err: err}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		f.RetryAfter = time.Duration(seconds) * time.Second
	}
	var classified *Failure
	var network net.Error
	switch {
	case errors.As(err, &classified):
		return classified
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), namespaceNotFound(err, namespace):
		f.NamespaceGone = true
	case meta.IsNoMatchError(err):
		f.Reason = ReasonUnknownKind
		f.err = fmt.Errorf("the cluster has no such kind (%w): install its CustomResourceDefinition", err)
	case isUnserved(err):
		f.err = fmt.Errorf("the API server does not serve this version of the kind: %w", err)
	case f.Reason == metav1.StatusReasonUnknown &&
		(errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded)):
		f.Reason = ReasonConnection
	case f.Reason == metav1.StatusReasonUnknown:
		f.Reason = "Unknown"
	}
	return f
}

// isNotCounted reports whether an object is forbidden only until the API server, or the operator, has counted the usage
// that a quota limits. The API server has no reason or cause of its own for that.
func isNotCounted(err error) bool {
	return strings.Contains(err.Error(), "status unknown for quota: ") ||
		slices.Contains(codes.Find(err.Error()), codes.QuotaUncounted)
}

// isGone reports whether an object does not exist, by the error of a request for it.
func isGone(err error) bool { return apierrors.IsNotFound(err) && !isUnserved(err) }

// isUnserved reports whether the API server does not serve the resource of a request, by the error: after a change of a
// CustomResourceDefinition, it may serve the kind in another version only.
func isUnserved(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

func namespaceNotFound(err error, namespace string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "namespaces" && details.Name == namespace
}
