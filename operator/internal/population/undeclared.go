package population

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// unknownUndeclared returns a finding for each kind for which a template is authoritative and that cannot be listed.
// Otherwise the namespace would be reported as if it had no undeclared objects of the kind. It stays closed only if the
// template would delete them. When the kind can be listed again, the template changes, so that the namespace is
// reconciled.
func (r *Namespaces) unknownUndeclared(plan populate.Plan) []populate.Finding {
	var findings []populate.Finding
	for _, template := range plan.Templates {
		finding := populate.Finding{
			Template: template.Name, Severity: populate.Error, Reason: populate.FindingFailed,
		}
		if template.Spec.FailurePolicy == v1alpha1.FailureIgnore ||
			template.Spec.AuthoritativePolicy == v1alpha1.AuthoritativeReport {
			finding.Severity = populate.Warning
		}
		for _, kind := range template.Spec.Authoritative {
			if err := r.Objects.OthersUnlisted(schema.GroupKind(kind)); err != nil {
				failure := populate.NewFailure(err, "")
				finding.Failure, finding.MayPass = failure.Reason, failure.MayPass()
				finding.Message = fmt.Sprintf("template %s: the undeclared objects of kind %s are unknown: %v",
					template.Name, schema.GroupKind(kind), err)
				findings = append(findings, finding)
			}
		}
	}
	return findings
}
