package why

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// explainDiffering explains an object that the operator corrects, or that it could not correct.
func (e *explainer) explainDiffering(
	ctx context.Context, a *answer, change *populate.Change, live *unstructured.Unstructured,
) {
	a.addDiffering(e.condition(ctx, a.Namespace), change)
	e.addDifferences(ctx, a, change, live)
}

// addDiffering sets the summary of an object that differs, by the Populated condition of its namespace, which can be
// nil.
func (a *answer) addDiffering(condition *corev1.NamespaceCondition, change *populate.Change) {
	reported := populate.ReportedFindings(condition)
	a.Summary = fmt.Sprintf("%s differs from template %s, ", a.where(), change.Template)
	failure := failureOf(reported, change.ID())
	altered := reportedAs(reported, change.ID(), populate.Reported.IsAltered)
	fought := reportedAs(reported, change.ID(), isFought)
	switch {
	case failure != nil:
		a.Summary += "and the operator could not apply it"
		a.add(labelState, failure.Message)
		a.add(labelRemedy, "Resolve what the state names. The operator tries again by itself.")
	case altered != nil && altered.Message == change.Reason: // and not something since the report
		a.Summary += "because admission changes it whenever the operator applies it"
		a.add(labelState, altered.Message)
		a.add(labelRemedy, "Exempt the object, or the user "+v1alpha1.OperatorUser+", from the webhook or policy that changes "+
			"it, or declare the change in the template. The operator tries again after at most five minutes.")
	case fought != nil:
		a.Summary += "and the operator corrects it less and less often, because other clients change it again and again"
		a.add(labelState, fought.Message)
	case a.delay != "" && !change.Drifted:
		a.Summary += "and the operator is about to correct it, unless the change of its source waits"
		a.add(labelState, a.delay)
	case populate.IsShortened(condition):
		a.Summary += "and the operator is about to correct it, unless it could not"
		a.add(labelState, "the Populated condition of the namespace has no room for all findings")
	default:
		a.Summary += "and the operator is about to correct it"
	}
	a.add(labelState, change.Reason)
}

// addFought adds that another client changes an object again and again, which is as it is declared at the moment, if
// the Populated condition of its namespace says so. The condition can be nil.
func (a *answer) addFought(condition *corev1.NamespaceCondition, id populate.ObjectID) {
	if fought := reportedAs(populate.ReportedFindings(condition), id, isFought); fought != nil {
		a.add(labelState, fought.Message)
	}
}

// explainDeleted explains an object that the operator deletes, that it could not delete, or that it does not delete
// yet, by what the operator last reported about its namespace.
func (a *answer) explainDeleted(reported []populate.Reported, change *populate.Change) {
	if failure := failureOf(reported, change.ID()); failure != nil {
		a.Summary = a.where() + " is to be deleted, and the operator could not delete it"
		a.add(labelState, failure.Message)
		a.add(labelRemedy, "Resolve what the state names. The operator tries again by itself.")
	} else if failure := a.replacementFailure(reported, change.ID()); failure != nil && change.SourceLost == nil {
		a.Summary = a.where() + " is to be deleted; the operator waits until every declared object of its kind is applied"
		a.add(labelState, failure.Object+": "+failure.Message)
		a.add(labelRemedy, "Resolve what the state names. The operator deletes the object by itself then.")
	} else {
		a.Summary = a.where() + " is to be deleted by the operator"
	}
	a.add(labelState, change.Reason)
	if change.Undeclared { // an object of another name would be deleted, too
		a.add(labelRemedy, "To keep it, declare it in a template that selects the namespace.")
		return
	}
	a.add(labelRemedy, "To keep it, declare it in a template again, or create an object of another name.")
}

// condition returns the Populated condition of a namespace, or nil if there is none, or the namespace cannot be read.
func (e *explainer) condition(ctx context.Context, namespace string) *corev1.NamespaceCondition {
	ns, err := e.cluster.Namespace(ctx, namespace)
	if err != nil {
		return nil // the answer does not depend on it
	}
	return populate.PopulatedCondition(ns)
}

// isFailure reports whether a finding is about a write that failed. What admission altered was written.
func isFailure(r populate.Reported) bool {
	return r.Object != "" && !r.IsAltered() && (r.Severity == populate.Error || r.Reason == populate.FindingFailed)
}

// isFought reports whether a finding is about an object that other clients change again and again.
func isFought(r populate.Reported) bool { return r.Reason == populate.FindingFought }

// failureOf returns the failure of an object among reported findings, or nil if there is none.
func failureOf(reported []populate.Reported, id populate.ObjectID) *populate.Reported {
	return reportedAs(reported, id, isFailure)
}

// reportedAs returns the first reported finding about an object that matches accepts, or nil.
func reportedAs(
	reported []populate.Reported, id populate.ObjectID, matches func(populate.Reported) bool,
) *populate.Reported {
	for i, r := range reported {
		if matches(r) && r.Object == id.String() {
			return &reported[i]
		}
	}
	return nil
}

// replacementFailure returns the failure of another object of the same kind, or nil if there is none. The operator does
// not delete an object before that other object, which may replace it, is applied. With failurePolicy Ignore, such a
// failure is reported without its template, like that of a deletion, so only the templates say that it is declared.
func (a *answer) replacementFailure(reported []populate.Reported, id populate.ObjectID) *populate.Reported {
	kind, _, _ := strings.Cut(id.String(), "/")
	for i, r := range reported {
		if of, _, _ := strings.Cut(r.Object, "/"); isFailure(r) && of == kind && slices.Contains(a.declared, r.Object) {
			return &reported[i]
		}
	}
	return nil
}
