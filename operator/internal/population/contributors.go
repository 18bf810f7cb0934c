package population

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// Contributors are what other features contribute to the reconciliation of a namespace, in the order in which it needs
// them. operator/chain.go registers them.
type Contributors struct {
	// Placement decides where a namespace is, before its templates are chosen.
	Placement Placement
	// Rules protect attributes of namespaces from which templates render.
	Rules Rules
	// IsReady reports whether a namespace may open. If not, the feature queues the namespace once it may.
	IsReady func(ctx context.Context, ns *corev1.Namespace) (bool, error)
	// Annotations returns annotations for an initializing namespace, which become part of the one write that opens it.
	Annotations func(ctx context.Context, ns *corev1.Namespace) (map[string]string, error)
	// AnnotationKeys are those that the feature writes at other times, too. A report does not depend on them.
	AnnotationKeys []string
	// Findings learns what was found in each namespace.
	Findings Findings
}

// Placement knows the hierarchy of policy spaces.
type Placement interface {
	// Placed returns a namespace with the depth labels for its place, or ns itself if the labels are correct.
	// The error is a hierarchy.BrokenError, a hierarchy.NotAdoptedError, or an error of reading the policy
	// spaces.
	Placed(ctx context.Context, ns *corev1.Namespace) (*corev1.Namespace, error)
	// AsOf returns the newest resourceVersion that Placed depends on.
	AsOf(ns *corev1.Namespace) string
	// Share prepares the move of a namespace to another place. It reports whether the namespace may move now.
	Share(ctx context.Context, before, after *corev1.Namespace) (bool, error)
}

// Rules are those about protected attributes.
type Rules interface {
	// Rules returns the rules of the cache.
	Rules(ctx context.Context) (*attributes.Rules, error)
	// Protects reports whether a rule protects an attribute of Namespaces.
	Protects(ctx context.Context, attribute attributes.Attribute) (bool, error)
	// Listen calls a function now and after every change of the rules.
	Listen(listener func())
}

// Findings learns what was found in namespaces. Its methods send no requests.
type Findings interface {
	Report(namespace string, findings []populate.Finding)
	// Forget drops what is known about a deleted namespace.
	Forget(namespace string)
}
