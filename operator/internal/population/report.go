package population

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/reporting"
)

// Report is what a namespace says of its population: the Populated condition, the seals of templates with driftPolicy
// Report, and what it still waits for. The zero value says nothing, as for a namespace that no template matches.
type Report struct {
	Status  corev1.ConditionStatus
	Reason  string
	Message string
	Seals   string
	// Depths are the depth labels, which say where the namespace is in the hierarchy of policy spaces.
	Depths map[string]string
	// InTree reports whether a tree manages the namespace.
	InTree bool
	// Initializing says that the namespace waits for the initializers in Pending, separated by commas.
	Initializing bool
	Pending      string
}

// Reasons of the Populated condition.
const (
	reasonPopulated      = "Populated"
	reasonObjectsFailed  = "ObjectsFailed"
	reasonTemplateBroken = "TemplateNotAccepted"
	reasonNoPolicySpace  = "PolicySpaceNotFound"
	reasonNotAdopted     = "NotAdopted"
)

// reportOf says what became of a plan.
func reportOf(plan populate.Plan, result populate.Result) Report {
	report := Report{Depths: hierarchy.OwnDepthLabels(plan.Namespace), InTree: hierarchy.InTree(plan.Namespace)}
	if len(plan.Templates) == 0 && !slices.ContainsFunc(result.Outcomes, isFatal) {
		return report
	}
	report.Status, report.Reason = corev1.ConditionTrue, reasonPopulated
	var parts []string
	for _, outcome := range result.Outcomes {
		if outcome.Failure == nil {
			continue
		}
		if isFatal(outcome) {
			report.Status, report.Reason = corev1.ConditionFalse, reasonObjectsFailed
		}
		parts = append(parts, fmt.Sprintf("%s: %s", outcome.ID(), outcome.Failure))
	}
	for _, broken := range plan.Broken {
		if broken.Template.Spec.FailurePolicy != v1alpha1.FailureIgnore {
			report.Status, report.Reason = corev1.ConditionFalse, reasonTemplateBroken
		}
		parts = append(parts, broken.Err.Error())
	}
	for _, change := range plan.Changes {
		if change.Action == populate.LeaveAlone && change.Undeclared {
			parts = append(parts, fmt.Sprintf("%s: %s", change.ID(), change.Reason))
		}
		if change.Action == populate.LeaveAlone && change.Declared != nil {
			parts = append(parts, fmt.Sprintf("%s drifted: %s", change.ID(), change.Reason))
		}
	}
	for _, omission := range plan.Omitted {
		id := populate.ObjectID{GroupKind: omission.Kind.GroupKind(), Name: omission.Name}
		parts = append(parts, fmt.Sprintf("%s is left out: %s", id, omission.Reason))
	}
	for _, withheld := range plan.Withheld {
		parts = append(parts, fmt.Sprintf("%s is left out: %s", withheld.Object.ID(), withheld.Reason()))
	}
	for _, overridden := range plan.Overridden {
		parts = append(parts, fmt.Sprintf("%s is declared by templates %s and %s: the latter's is applied",
			overridden.Object, overridden.Template, overridden.By))
	}
	if report.Status == corev1.ConditionTrue {
		parts = slices.Insert(parts, 0,
			fmt.Sprintf("%d objects of %s", len(plan.Objects), templateNames(plan.Templates)))
	}
	report.Seals = populate.Seal(plan, result)
	report.Message = reporting.Shorten(strings.Join(parts, "; "))
	return report
}

// equal reports whether two reports differ in nothing.
func (r Report) equal(other Report) bool { return equality.Semantic.DeepEqual(r, other) }

// notYet does not say that all is there as long as more may be to come.
func (r Report) notYet(ns *corev1.Namespace) Report {
	if r.Status == corev1.ConditionTrue {
		before, _ := found(ns)
		r.Status, r.Reason, r.Message = before.Status, before.Reason, before.Message
	}
	return r
}

// withMisplaced says why the namespace is not where its label says: it is not known what it would inherit there, or it
// existed before the tree and is not adopted.
func (r Report) withMisplaced(misplaced error) Report {
	r.Status, r.Reason = corev1.ConditionFalse, reasonNoPolicySpace
	if isNotAdopted(misplaced) {
		r.Reason = reasonNotAdopted
	}
	r.Message = reporting.Shorten(strings.TrimSuffix(misplaced.Error()+"; "+r.Message, "; "))
	return r
}

func isNotAdopted(misplaced error) bool {
	_, is := errors.AsType[*hierarchy.NotAdoptedError](misplaced)
	return is
}

// fatal reports whether a failure keeps the namespace from being populated. An object that can't be pruned is too much,
// not too little, unless it grants rights.
func isFatal(outcome populate.Outcome) bool {
	switch {
	case outcome.Failure == nil:
		return false
	case outcome.Failure.Reason == populate.ReasonHeld:
		return true
	}
	return outcome.Declared != nil && outcome.Declared.Template.Spec.FailurePolicy != v1alpha1.FailureIgnore
}

func templateNames(templates []*v1alpha1.NamespaceTemplate) string {
	names := make([]string, 0, len(templates))
	for _, template := range templates {
		names = append(names, template.Name)
	}
	return strings.Join(names, ", ")
}

// saysTheSame reports whether two reports differ in nothing but what the namespace waits for.
func (r Report) saysTheSame(other Report) bool {
	other.Initializing, other.Pending = r.Initializing, r.Pending
	return r.equal(other)
}

// found returns what a namespace says of its population now.
func found(ns *corev1.Namespace) (Report, metav1.Time) {
	report := Report{
		Seals: ns.Annotations[v1alpha1.SealAnnotation], Depths: hierarchy.OwnDepthLabels(ns),
		InTree:       hierarchy.InTree(ns),
		Initializing: initialize.Initializing(ns),
	}
	if report.Initializing {
		report.Pending = ns.Annotations[v1alpha1.PendingAnnotation]
	}
	for _, condition := range ns.Status.Conditions {
		if condition.Type == v1alpha1.NamespacePopulated {
			report.Status, report.Reason, report.Message = condition.Status, condition.Reason, condition.Message
			return report, condition.LastTransitionTime
		}
	}
	return report, metav1.Time{}
}

// patch returns the one write that makes a namespace say it, good for just this namespace as it was seen: the write
// opens it and says where it is, so it must not come late from an earlier leader, and others change the list of what it
// waits for.
func (r Report) patch(ns *corev1.Namespace, transition metav1.Time) ([]byte, error) {
	condition := map[string]any{"type": v1alpha1.NamespacePopulated, "$patch": "delete"}
	if r.Status != "" {
		condition = map[string]any{
			"type": v1alpha1.NamespacePopulated, "status": r.Status, "reason": r.Reason, "message": r.Message,
			"lastTransitionTime": transition,
		}
	}
	annotations := map[string]any{v1alpha1.SealAnnotation: orNull(r.Seals)}
	if r.InTree != hierarchy.InTree(ns) {
		annotations[v1alpha1.InTreeAnnotation] = nil
		if r.InTree {
			annotations[v1alpha1.InTreeAnnotation] = "true"
		}
	}
	labels := r.depthLabels(ns)
	metadata := map[string]any{
		"uid": ns.UID, "resourceVersion": ns.ResourceVersion, "annotations": annotations, "labels": labels,
	}
	if before, _ := found(ns); before.Initializing != r.Initializing || before.Pending != r.Pending {
		annotations[v1alpha1.PendingAnnotation] = orNull(r.Pending)
		if !r.Initializing {
			labels[v1alpha1.InitializingLabel] = nil
		}
	}
	return json.Marshal(map[string]any{
		"metadata": metadata,
		"status":   map[string]any{"conditions": []any{condition}},
	})
}

// depthLabels returns what a patch says of the labels that say where a namespace is.
func (r Report) depthLabels(ns *corev1.Namespace) map[string]any {
	labels := map[string]any{}
	before := hierarchy.OwnDepthLabels(ns)
	for key, value := range r.Depths {
		if before[key] != value {
			labels[key] = value
		}
		delete(before, key)
	}
	for key := range before {
		labels[key] = nil
	}
	return labels
}

// orNull returns what a patch says for a value that goes when it is empty.
func orNull(value string) any {
	if value == "" {
		return nil
	}
	return value
}

// standings says how each matching template stands in a namespace.
func standings(plan populate.Plan, result populate.Result) map[string]Standing {
	all := map[string]Standing{}
	for _, template := range plan.Templates {
		all[template.Name] = Standing{Generation: template.Generation, State: Populated}
	}
	fail := func(template, object string, err error) {
		standing, matches := all[template]
		if !matches {
			return
		}
		standing.State = Failed
		standing.Failures = append(standing.Failures,
			v1alpha1.ObjectFailure{
				Namespace: plan.Namespace.Name, Object: object, Message: reporting.Shorten(err.Error()),
			})
		all[template] = standing
	}
	for _, change := range plan.Changes {
		if standing := all[change.Template]; change.Action == populate.LeaveAlone &&
			(change.Declared != nil || change.Undeclared) {
			standing.State = Drifted
			all[change.Template] = standing
		}
	}
	for _, outcome := range result.Outcomes {
		switch standing, matches := all[outcome.Template]; {
		case outcome.Failure == nil:
		case outcome.Failure.Reason == populate.ReasonWaitsForRole && matches && standing.State == Populated:
			standing.State = Pending
			all[outcome.Template] = standing
		case outcome.Failure.Reason != populate.ReasonWaitsForRole:
			fail(outcome.Template, outcome.ID().String(), outcome.Failure)
		}
	}
	for _, broken := range plan.Broken {
		fail(broken.Template.Name, "", broken.Err)
	}
	for _, overridden := range plan.Overridden {
		for _, template := range []string{overridden.Template, overridden.By} {
			standing := all[template]
			standing.Overridden = append(standing.Overridden, overridden)
			all[template] = standing
		}
	}
	return all
}
