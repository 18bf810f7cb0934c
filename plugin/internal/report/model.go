package report

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// Kind is the kind of a Report in JSON.
const Kind = "Report"

// Report is the state of a cluster's policies at one time. Every output format is written from it.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Time is the time of the API server.
	Time time.Time `json:"time"`
	// Cluster is the name of the context of the kubeconfig.
	Cluster string `json:"cluster"`
	// User is the user who read the cluster. Nothing that this user may not read is in the report.
	User     string   `json:"user"`
	Versions Versions `json:"versions"`
	// Selection describes the selected namespaces, or is empty for all.
	Selection string `json:"selection,omitempty"`
	// Notes are sentences about what is missing, because it could not be read, or may be old.
	Notes []string `json:"notes"`

	Summary          Summary           `json:"summary"`
	Findings         []Finding         `json:"findings"`
	Namespaces       []Namespace       `json:"namespaces"`
	Templates        []Template        `json:"templates"`
	PolicySpaces     []PolicySpace     `json:"policySpaces"`
	OptOuts          []OptOut          `json:"optOuts"`
	Exemptions       []Exemption       `json:"exemptions"`
	Rights           []Right           `json:"rights"`
	PendingDeletions []PendingDeletion `json:"pendingDeletions"`
}

// Versions are the versions of what took part. A version that is unknown is empty.
type Versions struct {
	Plugin     string `json:"plugin"`
	Operator   string `json:"operator,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"`
}

// inCluster is embedded in the rows of a page. The cluster is empty in a report on one cluster.
type inCluster struct {
	Cluster string `json:"-"`
}

// Summary counts namespaces by their state. Every namespace is counted once.
type Summary struct {
	Namespaces int `json:"namespaces"`
	Populated  int `json:"populated"`
	Failed     int `json:"failed"`
	Drifted    int `json:"drifted"`
	// Unknown are the populated namespaces of which it is unknown whether they have drifted.
	Unknown int `json:"unknown"`
	// Pending are the namespaces that the operator has not reported on, or tries again, or that wait for initializers.
	Pending  int `json:"pending"`
	OptedOut int `json:"optedOut"`
	// Unselected are the namespaces that no template populates, for other reasons than an opt-out.
	Unselected int `json:"unselected"`
}

// State is the state of a namespace, or of a template in a namespace.
type State = survey.State

// The states, from the worst to the best.
const (
	Failed   = survey.Failed
	Drifted  = survey.Drifted
	Unknown  = survey.Unknown
	Retrying = survey.Retrying
	Held     = survey.Held
	// NotReported is for a namespace that templates select and that has no condition yet.
	NotReported = survey.NotReported
	OptedOut    = survey.OptedOut
	// NotReached is for a template whose rollout has not reached the namespace, and for a namespace that only such
	// templates select.
	NotReached State = "NotReached"
	Populated        = survey.InOrder
	// NoTemplate is for a namespace that no template selects.
	NoTemplate State = "NoTemplate"
	Excluded         = survey.Excluded
)

// shownState is a state as the page shows it. The class of its style can be empty.
type shownState struct {
	State
	label, class, symbol string
}

// states are all states of namespaces in the order of the report.
var states = []shownState{
	{Failed, "Failed", "bad", "✗"}, {Drifted, "Drifted", "drift", "≠"}, {Unknown, "Unknown", "drift", "?"},
	{Retrying, "Retrying", "drift", "…"}, {Held, "Waiting for initializers", "drift", "…"},
	{NotReported, "Not reported", "drift", "…"},
	{OptedOut, "Opted out", "", "–"}, {NotReached, "Not reached", "", "→"}, {Populated, "Populated", "good", "✓"},
	{NoTemplate, "No template", "muted", "·"}, {Excluded, "Excluded", "muted", "·"},
}

// positionOf returns the position of a state in the order of the report, or -1 for an unknown one.
func positionOf(state State) int {
	return slices.IndexFunc(states, func(shown shownState) bool { return shown.State == state })
}

// shown returns a state as the page shows it. It is empty for an unknown one.
func shown(state State) shownState {
	if at := positionOf(state); at >= 0 {
		return states[at]
	}
	return shownState{}
}

// Namespace is a namespace with its templates.
type Namespace struct {
	inCluster
	Name  string `json:"name"`
	State State  `json:"state"`
	// Reason and Message are those of the Populated condition, or explain why there is none.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// Since is when the Populated condition changed, or nil.
	Since       *time.Time `json:"since,omitempty"`
	Created     time.Time  `json:"created"`
	PolicySpace string     `json:"policySpace,omitempty"`
	// PendingInitializers are the initializers that a namespace in state Held waits for.
	PendingInitializers []string `json:"pendingInitializers,omitempty"`
	// Templates are the templates that select the namespace, in ascending order of names, or null if the user may not
	// list templates.
	Templates []Cell `json:"templates"`
}

// Cell is the state of a template in a namespace.
type Cell struct {
	Template string `json:"template"`
	State    State  `json:"state"`
	// Revision is the revision of the template that the namespace has, or 0 if it has none or it is unknown.
	Revision int64 `json:"revision,omitempty"`
}

// Severity is how urgent a finding is.
type Severity string

// The severities, from the worst to the best.
const (
	Failure Severity = "Failure"
	Drift   Severity = "Drift"
	Warning Severity = "Warning"
)

var severities = []Severity{Failure, Drift, Warning}

// Finding is something that an administrator should look at.
type Finding struct {
	inCluster
	Severity Severity `json:"severity"`
	// Namespace is empty for a finding about a template or another object of the cluster.
	Namespace string `json:"namespace,omitempty"`
	// Template is empty if it is unknown.
	Template string `json:"template,omitempty"`
	Object   string `json:"object,omitempty"`
	Reason   string `json:"reason"`
	Message  string `json:"message"`
	Remedy   string `json:"remedy"`
	// Since is when a failure or the state of an object began, or nil if that is unknown, as for drift.
	Since *time.Time `json:"since,omitempty"`
}

// Template is a NamespaceTemplate with the counts of its status.
type Template struct {
	inCluster
	Name  string `json:"name"`
	Ready string `json:"ready"`
	// Stalled reports whether a person must act before the template can be ready.
	Stalled    bool                     `json:"stalled,omitempty"`
	Reason     string                   `json:"reason,omitempty"`
	Message    string                   `json:"message,omitempty"`
	Revision   int64                    `json:"revision,omitempty"`
	Rollout    string                   `json:"rollout,omitempty"`
	Namespaces v1alpha1.NamespaceCounts `json:"namespaces"`
	// Requires reports whether only users with the verb use may let the template select a namespace.
	Requires bool `json:"requiresPermission,omitempty"`
}

// PolicySpace is a policy space in the order of the tree: ancestors come before their descendants.
type PolicySpace struct {
	inCluster
	Name   string `json:"name"`
	Parent string `json:"parent,omitempty"`
	// Depth is 0 for a root.
	Depth      int     `json:"depth"`
	Namespaces int     `json:"namespaces"`
	Quota      []Usage `json:"quota,omitempty"`
	// Problem is why the space is not in force, or empty.
	Problem string `json:"problem,omitempty"`
}

// Usage is the usage of a resource that a quota limits.
type Usage struct {
	Resource string `json:"resource"`
	// Used and Percent are missing while the operator has not counted.
	Used  string `json:"used,omitempty"`
	Limit string `json:"limit"`
	// Percent is 100 if the limit is 0.
	Percent *int `json:"percent,omitempty"`
}

// OptOut is a namespace that some or all templates do not populate because of its annotation.
type OptOut struct {
	inCluster
	Namespace string `json:"namespace"`
	// Templates are empty if the namespace is opted out of all templates.
	Templates []string `json:"templates,omitempty"`
	// Since is when the annotation was last written, and By the client that wrote it. Both are empty if unknown.
	Since   *time.Time `json:"since,omitempty"`
	By      string     `json:"by,omitempty"`
	Creator string     `json:"creator,omitempty"`
}

// Right is a permission that concerns nstpl, with the subjects that have it through one role.
type Right struct {
	inCluster
	// What is the permission, such as "use namespacetemplates".
	What string `json:"what"`
	// Names are the objects or values that the permission is limited to, or empty for all.
	Names []string `json:"names,omitempty"`
	// Role grants the permission.
	Role     string   `json:"role"`
	Subjects []Holder `json:"subjects"`
}

// Holder is a subject that has a right.
type Holder struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// In are the namespaces in which the subject has the right, or empty for the whole cluster.
	In []string `json:"in,omitempty"`
}

// PendingDeletion is something that is being deleted, or that waits for a confirmation to be deleted.
type PendingDeletion struct {
	inCluster
	Object string `json:"object"`
	// Why says what the deletion waits for.
	Why string `json:"why"`
	// Names are the first objects that would be deleted, and Total is their number.
	Names []string   `json:"names,omitempty"`
	Total int        `json:"total,omitempty"`
	Since *time.Time `json:"since,omitempty"`
}
