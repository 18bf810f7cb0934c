package populate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of failures that the API server has no word for.
const (
	ReasonUnknownKind   metav1.StatusReason = "UnknownKind"
	ReasonClusterScoped metav1.StatusReason = "ClusterScoped"
	ReasonConnection    metav1.StatusReason = "Connection"
	// ReasonHeldByFinalizer is of an object that is being deleted and that a finalizer keeps.
	ReasonHeldByFinalizer metav1.StatusReason = "HeldByFinalizer"
	// ReasonWaitsForRole and ReasonRoleNotAsDeclared are of RoleBindings whose Role just changed, or could not be
	// applied.
	ReasonWaitsForRole      metav1.StatusReason = "WaitsForRole"
	ReasonRoleNotAsDeclared metav1.StatusReason = "RoleNotAsDeclared"
	// ReasonNotRevoked is of a Role that must not change while a RoleBinding exists that could not be deleted.
	ReasonNotRevoked metav1.StatusReason = "RoleBindingNotRevoked"
)

// Failure is why an object could not be written. It is the one place that decides what an API error means here.
type Failure struct {
	// Reason is a word for metrics and Events.
	Reason metav1.StatusReason
	// RetryAfter is how long the API server asks to wait, or zero.
	RetryAfter time.Duration
	// NamespaceGone says that the namespace is deleted or being deleted: nothing is left to do in it.
	NamespaceGone bool
	err           error
}

func (f *Failure) Error() string { return f.err.Error() }
func (f *Failure) Unwrap() error { return f.err }

// Transient reports whether the same write may succeed later without anybody changing anything.
func (f *Failure) Transient() bool {
	switch f.Reason {
	case ReasonConnection, ReasonWaitsForRole, ReasonNotRevoked, metav1.StatusReasonTimeout,
		metav1.StatusReasonServerTimeout,
		metav1.StatusReasonTooManyRequests, metav1.StatusReasonServiceUnavailable, metav1.StatusReasonInternalError,
		metav1.StatusReasonConflict:
		return true
	}
	return false
}

// Unanswered reports whether the API server may have carried out the write all the same.
func (f *Failure) Unanswered() bool {
	switch f.Reason {
	case metav1.StatusReasonConflict, ReasonWaitsForRole, ReasonNotRevoked:
		return false
	}
	return f.Transient()
}

// unanswered reports whether the API server may have carried out a write that failed with err.
func unanswered(err error) bool {
	return err != nil && failure(err, "").Unanswered()
}

// byUser reports whether a user of the namespace can bring a failure about at will: by a finalizer, or by an object of
// the same name that cannot be changed.
func (f *Failure) byUser() bool {
	switch f.Reason {
	case ReasonHeldByFinalizer, ReasonRoleNotAsDeclared, metav1.StatusReasonInvalid:
		return true
	}
	return false
}

// failure classifies an error of a write in a namespace.
func failure(err error, namespace string) *Failure {
	f := &Failure{Reason: apierrors.ReasonForError(err), err: err}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		f.RetryAfter = time.Duration(seconds) * time.Second
	}
	var known *Failure
	var network net.Error
	switch {
	case errors.As(err, &known):
		return known
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), namespaceNotFound(err, namespace):
		f.NamespaceGone = true
	case meta.IsNoMatchError(err):
		f.Reason = ReasonUnknownKind
		f.err = fmt.Errorf("the cluster has no such kind (%w): install its CustomResourceDefinition", err)
	case f.Reason == metav1.StatusReasonUnknown &&
		(errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded)):
		f.Reason = ReasonConnection
	case f.Reason == metav1.StatusReasonUnknown:
		f.Reason = "Unknown"
	}
	return f
}

func namespaceNotFound(err error, namespace string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "namespaces" && details.Name == namespace
}
