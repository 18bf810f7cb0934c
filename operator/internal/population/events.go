package population

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/reporting"
)

// unrecorded are the reasons of findings without an Event. The condition says what they say for as long as they hold.
var unrecorded = []string{
	populate.FindingWaitsForRole, populate.FindingSelects, populate.FindingProtected, populate.FindingExempt,
	populate.ConditionPolicySpaceNotFound,
}

// recordDone records an Event in the namespace for each correction of the operator.
func (r *Namespaces) recordDone(ctx context.Context, ns *corev1.Namespace, findings []populate.Finding) {
	for _, finding := range findings {
		if finding.Severity != populate.Info {
			continue
		}
		if finding.Reason == populate.FindingDriftCorrected {
			r.Metrics.drift(finding)
		}
		ctrl.LoggerFrom(ctx).Info("undid what another client did", "object", finding.Object.String(),
			"template", finding.Template, "reason", finding.Reason, "message", finding.Message)
		r.recordFinding(ns, finding)
	}
}

// recordDifferences records an Event in the namespace for each finding that the last report did not have, except the
// corrections. The first report of this process is compared with the stored condition, so that a restart does not
// record an Event twice. If the message stays the same, nothing is new, since it may have no room for all findings.
func (r *Namespaces) recordDifferences(
	ns *corev1.Namespace, before storedReport, report Report, findings []populate.Finding,
) {
	isStored := func(finding populate.Finding) bool {
		return report.Message == before.Message ||
			strings.Contains("; "+before.Message+"; ", "; "+finding.String()+"; ")
	}
	for _, finding := range r.Results.NewFindings(ns.Name, ns.UID, findings, isStored) {
		if finding.Severity == populate.Info {
			continue
		}
		if finding.Reason == populate.FindingDrifted {
			r.Metrics.drift(finding)
		}
		r.recordFinding(ns, finding)
	}
}

// recordFinding records one Event. Events that differ only in their note are counted as one, so each refers to its
// object.
func (r *Namespaces) recordFinding(ns *corev1.Namespace, finding populate.Finding) {
	if slices.Contains(unrecorded, finding.Reason) {
		return
	}
	kind := corev1.EventTypeWarning
	if finding.Reason == populate.FindingDriftCorrected {
		kind = corev1.EventTypeNormal
	}
	r.Recorder.Eventf(reporting.InNamespace(ns), related(ns, finding), kind, finding.Reason, "Populate", "%s",
		reporting.Shorten(finding.String()))
}

// related returns a reference to what a finding about a namespace is about: an object, a template, or nothing else.
func related(ns *corev1.Namespace, finding populate.Finding) runtime.Object {
	object := finding.Object
	switch {
	case object == (populate.ObjectID{}) && finding.Template == "":
		return nil
	case object == (populate.ObjectID{}):
		template := v1alpha1.GroupVersion.WithKind("NamespaceTemplate").GroupKind()
		object = populate.ObjectID{GroupKind: template, Name: finding.Template}
	}
	return &corev1.ObjectReference{
		APIVersion: schema.GroupVersion{Group: object.Group}.String(), Kind: object.Kind, Name: object.Name,
		Namespace: ns.Name,
	}
}
