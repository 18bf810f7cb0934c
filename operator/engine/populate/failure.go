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
	ReasonImmutable     metav1.StatusReason = "Immutable"
	ReasonConnection    metav1.StatusReason = "Connection"
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
	case f.Reason == metav1.StatusReasonUnknown && (errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded)):
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
