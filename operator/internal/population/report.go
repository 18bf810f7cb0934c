package population

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/patch"
	"nstpl.dev/nstpl/operator/internal/reporting"
)

// Report is what is stored with a namespace about its population: the Populated condition, the record of existing
// objects of templates, the depth labels, and the initializers that it waits for. The zero
// value is that of a namespace that no template selects.
type Report struct {
	Status   corev1.ConditionStatus
	Reason   string
	Message  string
	Existing string
	// Depths are the depth labels, which say where the namespace is in the hierarchy of policy spaces.
	Depths map[string]string
	// InTree reports whether a tree manages the namespace.
	InTree bool
	// Initializing is true while the namespace waits for the initializers in Pending, separated by commas.
	Initializing bool
	Pending      string
}

// pass is one reconciliation of a namespace: what was planned, what came of it, and what a user should know.
type pass struct {
	plan     populate.Plan
	result   populate.Result
	findings []populate.Finding
	// misplaced is that of the selection.
	misplaced error
}

// reportOf returns the report on a namespace after a plan was carried out.
func reportOf(plan populate.Plan, result populate.Result, findings []populate.Finding) Report {
	report := Report{Depths: hierarchy.OwnDepthLabels(plan.Namespace), InTree: hierarchy.InTree(plan.Namespace)}
	isPopulated := !slices.ContainsFunc(findings, func(f populate.Finding) bool { return f.Severity == populate.Error })
	stays := func(f populate.Finding) bool {
		return f.Reason == populate.FindingProtected || f.Reason == populate.FindingGrantStays
	}
	report.Existing = populate.ExistingObjects(plan, result)
	if len(plan.Templates) == 0 && isPopulated && !slices.ContainsFunc(findings, stays) {
		return report
	}
	report.Status, report.Reason = corev1.ConditionTrue, populate.ConditionPopulated
	var parts []string
	if isPopulated && len(plan.Templates) > 0 {
		parts = append(parts, populatedBy(plan.Declared))
	}
	for _, finding := range findings {
		if finding.Severity == populate.Error {
			report.Status, report.Reason = corev1.ConditionFalse, worse(report.Reason, finding)
		}
	}
	report.Message = populate.Message(parts, findings, reporting.MaxMessage)
	return report
}

// worse returns the reason of Populated=False after one more finding that is an error. The reason says that the failure
// may pass by itself only if all failures may.
func worse(reason string, finding populate.Finding) string {
	switch {
	case populate.IsMisplacement(finding.Reason):
		return finding.Reason
	case populate.IsMisplacement(reason):
		return reason
	case finding.Reason == populate.FindingBrokenTemplate || reason == populate.ConditionTemplateNotAccepted:
		return populate.ConditionTemplateNotAccepted
	case finding.Reason == populate.FindingValueMissing || reason == populate.ConditionValueMissing:
		return populate.ConditionValueMissing
	case finding.MayPass && (reason == populate.ConditionPopulated || reason == populate.ConditionRetrying):
		return populate.ConditionRetrying
	}
	return populate.ConditionObjectsFailed
}

// hasFailed reports whether the namespace cannot be populated until a person acts.
func (r Report) hasFailed() bool {
	return populate.HasFailed(&corev1.NamespaceCondition{Status: r.Status, Reason: r.Reason})
}

// equal reports whether two reports differ in nothing.
func (r Report) equal(other Report) bool { return equality.Semantic.DeepEqual(r, other) }

// notYet returns the report without its new condition Populated=True, because more templates may select the namespace.
func (r Report) notYet(before storedReport) Report {
	r.Status, r.Reason, r.Message = before.Status, before.Reason, before.Message
	return r
}

// misplacement returns the finding about a namespace whose depth labels cannot change: its place is unknown, or it
// existed before the tree and is not adopted.
func misplacement(misplaced error) populate.Finding {
	finding := populate.Finding{
		Severity: populate.Error, Reason: populate.ConditionPolicySpaceNotFound, Message: misplaced.Error(),
	}
	if isNotAdopted(misplaced) {
		finding.Reason = populate.ConditionNotAdopted
	}
	return finding
}

func isNotAdopted(misplaced error) bool {
	_, is := errors.AsType[*hierarchy.NotAdoptedError](misplaced)
	return is
}

// populatedBy returns how many objects a namespace has of which templates. It names only those templates that declare
// something in it. Otherwise each new template without objects would cost a write in all namespaces that it selects.
func populatedBy(declared populate.Declared) string {
	declares := map[string]bool{}
	for _, object := range declared.Objects {
		declares[object.Template.Name] = true
	}
	for _, value := range declared.Metadata {
		declares[value.Template.Name] = true
	}
	var names []string
	for _, template := range declared.Templates {
		if declares[template.Name] {
			names = append(names, template.Name)
		}
	}
	if len(names) == 0 {
		return reporting.Count(0, "object")
	}
	return reporting.Count(len(declared.Objects), "object") + " of " + strings.Join(names, ", ")
}

// storedReport is the report that is stored with a namespace.
type storedReport struct {
	Report
	// since is when its condition last changed.
	since metav1.Time
}

func stored(ns *corev1.Namespace) storedReport {
	report := Report{
		Existing: ns.Annotations[v1alpha1.ExistingAnnotation], Depths: hierarchy.OwnDepthLabels(ns),
		InTree:       hierarchy.InTree(ns),
		Initializing: initialize.Initializing(ns),
	}
	if report.Initializing {
		report.Pending = ns.Annotations[v1alpha1.PendingAnnotation]
	}
	condition := populate.PopulatedCondition(ns)
	if condition == nil {
		return storedReport{Report: report}
	}
	report.Status, report.Reason, report.Message = condition.Status, condition.Reason, condition.Message
	return storedReport{report, condition.LastTransitionTime}
}

// moves reports whether the report changes where the namespace is in the hierarchy of policy spaces.
func (r Report) moves(before Report) bool {
	return r.InTree != before.InTree || !maps.Equal(r.Depths, before.Depths)
}

// patch returns the one write that stores a report, and the annotations of a new block of user IDs if there are some.
// Another leader's report must not be overwritten. If the write may open the namespace, the namespace must not have
// changed at all: what a user or an initializer changed could decide about that. If it moves an open one, what decided
// about its place in placed must not have changed. A move is recorded.
func (r Report) patch(
	ns, placed *corev1.Namespace, before Report, transition metav1.Time, block map[string]string,
) patch.Tested {
	tested := populate.UnlessReported(ns)
	switch {
	case before.Initializing:
		tested = tested.Test("/metadata/resourceVersion", ns.ResourceVersion)
	case r.moves(before):
		tested = tested.TestIn("/metadata/labels", placed.Labels, v1alpha1.PolicySpaceLabel).
			TestIn("/metadata/annotations", placed.Annotations, v1alpha1.AdoptAnnotation)
	}
	labels, annotations := map[string]string{}, map[string]string{}
	maps.Copy(labels, ns.Labels)
	for key := range before.Depths {
		delete(labels, key)
	}
	maps.Copy(labels, r.Depths)
	maps.Copy(annotations, ns.Annotations)
	maps.Copy(annotations, block)
	put := func(key, value string) {
		if annotations[key] = value; value == "" {
			delete(annotations, key)
		}
	}
	put(v1alpha1.ExistingAnnotation, r.Existing)
	if r.moves(before) && !before.Initializing {
		put(v1alpha1.NamespaceMetadataAnnotation,
			populate.WithDepths(ns.Annotations, fmt.Sprint(r.Depths, r.InTree)))
	}
	if r.InTree != before.InTree {
		put(v1alpha1.InTreeAnnotation, "")
		if r.InTree {
			put(v1alpha1.InTreeAnnotation, "true")
		}
	}
	if before.Initializing != r.Initializing || before.Pending != r.Pending {
		put(v1alpha1.PendingAnnotation, r.Pending)
		if !r.Initializing {
			delete(labels, v1alpha1.InitializingLabel)
		}
	}
	var condition *corev1.NamespaceCondition
	if r.Status != "" {
		condition = &corev1.NamespaceCondition{
			Type: v1alpha1.NamespacePopulated, Status: r.Status, Reason: r.Reason, Message: r.Message,
			LastTransitionTime: transition,
		}
	}
	return populate.WithPopulated(tested, ns, condition).Change("/metadata/labels", ns.Labels, labels).
		Change("/metadata/annotations", ns.Annotations, annotations)
}
