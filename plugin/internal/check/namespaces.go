package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// checkNamespaces checks whether namespaces are held, are not populated, or cannot be deleted.
func checkNamespaces(a *after) []Result {
	if a.namespaces.err != nil {
		return []Result{unread("namespaces", "list namespaces", a.namespaces.err)}
	}
	results := []Result{
		heldNamespaces(a.namespaces.value, a.now()), failedNamespaces(a.namespaces.value),
		driftedNamespaces(a.namespaces.value), deletedNamespaces(a.namespaces.value, a.now()),
	}
	return append(results, reportedObjects(a.namespaces.value)...)
}

// heldNamespaces returns the result for namespaces that are being initialized.
func heldNamespaces(namespaces []*corev1.Namespace, now time.Time) Result {
	r := Result{Check: "held-namespaces", Status: OK, Message: "no namespace waits for its initialization"}
	var held []*corev1.Namespace
	for _, ns := range namespaces {
		if initialize.Initializing(ns) && ns.DeletionTimestamp == nil {
			held = append(held, ns)
		}
	}
	if len(held) == 0 {
		return r
	}
	oldest := slices.MinFunc(held, func(a, b *corev1.Namespace) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	age := now.Sub(oldest.CreationTimestamp.Time)
	waits := output.Count(len(held), "namespace") + " held until initialized"
	if age < survey.Patience {
		r.Message = waits + ", all of them younger than " + duration.HumanDuration(survey.Patience)
		return r
	}
	r.Status, r.Object = Warning, "namespace/"+oldest.Name
	r.Message = fmt.Sprintf("%s; the oldest, %s, has waited for %s for %s", waits, oldest.Name,
		cmp.Or(strings.Join(initialize.Pending(oldest), ", "), "the operator"), duration.HumanDuration(age))
	r.Remedy = "run 'kubectl nstpl why namespace/" + oldest.Name + "'"
	if slices.ContainsFunc(initialize.Pending(oldest), func(name string) bool {
		return name != v1alpha1.TemplateInitializer
	}) {
		r.Remedy += ", and check the controllers of these initializers"
	}
	return r
}

// failedNamespaces returns the result for namespaces that are not populated.
func failedNamespaces(namespaces []*corev1.Namespace) Result {
	r := Result{Check: "populated-namespaces", Status: OK}
	var failed, retried []string
	populated := 0
	for _, ns := range namespaces {
		switch survey.StateOf(ns) {
		case survey.Failed:
			failed = append(failed, ns.Name)
		case survey.Retrying:
			retried = append(retried, ns.Name)
		case survey.Held, survey.Drifted, survey.Unknown, survey.InOrder:
			if populate.PopulatedCondition(ns) != nil {
				populated++
			}
		case survey.NotReported, survey.OptedOut, survey.Excluded:
		}
	}
	switch {
	case len(failed) > 0:
		r.Status = Failure
		r.Message = output.Count(len(failed), "namespace") + " not populated: " + output.FirstFew(failed)
	case len(retried) > 0:
		r.Status = Warning
		r.Message = output.Count(len(retried), "namespace") + " not populated yet, and tried again: " + output.FirstFew(retried)
	default:
		r.Message = output.Count(populated, "namespace") + " populated, and none failed"
		return r
	}
	r.Remedy = "'kubectl nstpl status --failing' shows the causes"
	return r
}

// driftedNamespaces returns the result for namespaces with objects that differ from the templates and are not
// corrected. Objects that other clients change again and again have a result of their own.
func driftedNamespaces(namespaces []*corev1.Namespace) Result {
	r := Result{Check: "drifted-namespaces", Status: OK, Message: "no namespace has uncorrected drift"}
	var drifted, shortened []string
	isUncorrected := func(r populate.Reported) bool {
		return survey.IsDrift(r) && r.Reason != populate.FindingFought
	}
	for _, ns := range namespaces {
		condition := populate.PopulatedCondition(ns)
		findings := populate.ReportedFindings(condition)
		switch {
		case survey.UnpopulatedReason(ns) != "":
		case slices.ContainsFunc(findings, isUncorrected):
			drifted = append(drifted, ns.Name)
		case populate.MayLackDrift(condition),
			populate.IsShortened(condition) && survey.IsDrift(findings[len(findings)-1]): // more may follow
			shortened = append(shortened, ns.Name)
		}
	}
	if len(shortened) > 0 {
		r.Status, r.Message, r.Remedy = Unknown, noRoom("objects with drift", shortened), "run 'kubectl nstpl diff "+shortened[0]+"'"
	}
	if len(drifted) > 0 {
		r.Status = Warning
		r.Message = output.Count(len(drifted), "namespace") + " with uncorrected drift: " + output.FirstFew(drifted)
		r.Remedy = "'kubectl nstpl diff " + drifted[0] + "' shows the changes, and who made them"
	}
	return r
}

// noRoom says that something may be missing in the conditions of namespaces.
func noRoom(missing string, namespaces []string) string {
	return "unknown whether there are more " + missing + ": the Populated condition has no room for all findings of " +
		output.Count(len(namespaces), "namespace") + ": " + output.FirstFew(namespaces)
}

// reportedObjects returns a result for each of three findings of which namespaces report objects: grants that stay
// although no template declares them, objects that other clients change again and again, and objects that admission
// changes while they are stored.
func reportedObjects(namespaces []*corev1.Namespace) []Result {
	var remaining, fought, altered, shortened []string
	for _, ns := range namespaces {
		condition := populate.PopulatedCondition(ns)
		if populate.IsShortened(condition) {
			shortened = append(shortened, ns.Name)
		}
		for _, finding := range populate.ReportedFindings(condition) {
			switch object := finding.Object + " in namespace " + ns.Name; {
			case finding.Reason == populate.FindingGrantStays:
				remaining = append(remaining, object)
			case finding.Reason == populate.FindingFought:
				if !slices.Contains(fought, object) { // a namespace has a finding for each label
					fought = append(fought, object)
				}
			case finding.IsAltered():
				altered = append(altered, object)
			}
		}
	}
	var results []Result
	add := func(name, message, remedy string, objects []string) {
		j := judgement{check: name}
		j.add(Warning, message, objects, remedy)
		results = append(results, j.results...)
	}
	add("remaining-grants", output.Count(len(remaining), "grant")+" that no template declares any more",
		"'kubectl nstpl report -o csv' lists the Roles and RoleBindings, each with the reason why it stays: delete those whose "+
			"users should not keep the rights", remaining)
	if len(shortened) > 0 {
		results = append(results, Result{
			Check: "remaining-grants", Status: Unknown, Message: noRoom("grants that no template declares any more", shortened),
			Remedy: "resolve the findings in the conditions: the operator then reports the others",
		})
	}
	add("fought-objects", "other clients change "+output.Count(len(fought), "object")+" again and again",
		"'kubectl nstpl status --failing' names the clients: stop them, declare what they write, or set "+
			"driftPolicy: Report", fought)
	add("altered-objects", "admission changes "+output.Count(len(altered), "object")+" while they are stored",
		"'kubectl nstpl status --failing' names the fields: exempt the objects from the webhook or policy, or declare "+
			"what it writes", altered)
	return results
}

// deletedNamespaces returns the result for namespaces whose deletion waits for nstpl.
func deletedNamespaces(namespaces []*corev1.Namespace, now time.Time) Result {
	r := Result{Check: "deleted-namespaces", Status: OK, Message: "the deletion of no namespace waits for nstpl"}
	var waiting []string
	for _, ns := range namespaces {
		if ns.DeletionTimestamp == nil || now.Sub(ns.DeletionTimestamp.Time) < survey.Patience {
			continue
		}
		if slices.ContainsFunc(ns.Status.Conditions, func(condition corev1.NamespaceCondition) bool {
			return condition.Type != v1alpha1.NamespacePopulated && condition.Status == corev1.ConditionTrue &&
				strings.Contains(condition.Message, v1alpha1.GroupVersion.Group)
		}) {
			waiting = append(waiting, ns.Name)
		}
	}
	if len(waiting) > 0 {
		r.Status = Failure
		r.Message = "the deletion of " + output.Count(len(waiting), "namespace") + " waits for nstpl: " + output.FirstFew(waiting)
		r.Remedy = "'kubectl get namespace " + slices.Min(waiting) + " -o yaml' shows the objects and the webhooks in its conditions"
	}
	return r
}
