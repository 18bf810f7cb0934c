package operator

import (
	"time"

	"nstpl.dev/nstpl/operator/internal/attribute"
	"nstpl.dev/nstpl/operator/internal/constraint"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// Options are the flags of the operator.
type Options struct {
	// LeaderElect enables leader election: of several replicas, one runs the controllers, and all answer webhooks.
	LeaderElect bool
	// MetricsAddress and ProbeAddress are the host:port of the metrics and of the health probes. With "0", the operator
	// does not serve them.
	MetricsAddress, ProbeAddress string
	// ExcludeNamespaces are never populated.
	ExcludeNamespaces []string
	Webhook           webhook.Flags
	// MutateNamespaces makes webhooks do what MutatingAdmissionPolicies do. Kubernetes has these since 1.36.
	MutateNamespaces bool
	AttributeExempt  attribute.Exempt
	SCC              constraint.Flags
	// OpenReports makes the leader write what it finds in namespaces to Reports of openreports.io.
	OpenReports bool
	// SelfServiceOnly makes users create namespaces only in policy spaces with spec.selfService, unless they may patch
	// policyspaces.
	SelfServiceOnly bool
	// ShutdownDelay is how long the operator continues to answer after the signal to terminate, so that the API server
	// can open its connections to other replicas.
	ShutdownDelay time.Duration
}
