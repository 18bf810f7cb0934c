package operator

import (
	"time"

	"nstpl.dev/nstpl/operator/scc"
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
	// WebhookAddress is the host:port at which the webhooks are served.
	WebhookAddress string
	// WebhookURL is the address of the webhooks for the API server if the operator runs outside of the cluster.
	WebhookURL string
	// WebhookCertDir contains tls.crt and tls.key if another program, such as cert-manager, writes them. If it is
	// empty, the operator issues its certificate.
	WebhookCertDir string
	// WebhookClientCAFile contains, as PEM, the authorities of which one must have signed the API server's client
	// certificate. If it is empty, the webhooks answer every client.
	WebhookClientCAFile string
	// MutateNamespaces makes webhooks do what MutatingAdmissionPolicies do. Kubernetes has these since 1.36.
	MutateNamespaces bool
	// AttributeExemptUsers and AttributeExemptGroups may change protected attributes without the roles that rules name.
	AttributeExemptUsers, AttributeExemptGroups []string
	// SCCExemptNamespaces are the namespaces, in addition to kube-system and the operator's own, to whose pods
	// SecurityContextConstraints do not apply.
	SCCExemptNamespaces []string
	// SCCIntersection makes a constraint usable only if both the requester and the pod's service account may use it.
	SCCIntersection bool
	// SCCCallerGuardsExec makes the decision about exec and attach depend on the rights of the caller only.
	SCCCallerGuardsExec bool
	// OpenReports makes the leader write what it finds in namespaces to Reports of openreports.io.
	OpenReports bool
	// SelfServiceOnly makes users create namespaces only in policy spaces with spec.selfService, unless they may patch
	// policyspaces.
	SelfServiceOnly bool
	// ShutdownDelay is how long the operator continues to answer after the signal to terminate, so that the API server
	// can open its connections to other replicas.
	ShutdownDelay time.Duration
	// SCCPool contains the blocks of user IDs and the SELinux levels that namespaces are given.
	SCCPool scc.Pool
}
