package population

import (
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/reporting"
)

// templateResults returns the result of each selecting template in a namespace.
func templateResults(plan populate.Plan, findings []populate.Finding) map[string]TemplateResult {
	all := map[string]TemplateResult{}
	for _, template := range plan.Templates {
		all[template.Name] = TemplateResult{Generation: template.Generation, State: Populated}
	}
	for _, finding := range findings {
		if result, selects := all[finding.Template]; selects {
			all[finding.Template] = result.with(finding)
		}
	}
	for _, overridden := range plan.Overridden {
		for _, template := range []string{overridden.Template, overridden.By} {
			result := all[template]
			result.Overridden = append(result.Overridden, overridden)
			all[template] = result
		}
	}
	return all
}

// with returns the result after a finding: the worst state counts.
func (s TemplateResult) with(finding populate.Finding) TemplateResult {
	switch finding.Reason {
	case populate.FindingFailed, populate.FindingBrokenTemplate:
		s.State = Failed
		failure := failure{message: reporting.Shorten(finding.Message)}
		if finding.Object != (populate.ObjectID{}) {
			failure.object = finding.Object.String()
		}
		s.Failures = append(s.Failures, failure)
	case populate.FindingDrifted, populate.FindingUndeclared:
		s.HasDrifted = true
		if s.State != Failed {
			s.State = Drifted
		}
	case populate.FindingWaitsForRole:
		if s.State == Populated {
			s.State = Pending
		}
	}
	return s
}
