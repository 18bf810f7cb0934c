package population

import (
	"slices"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/reporting"
)

// templateResults returns the result of each selecting template in a namespace. ahead are the templates that select the
// namespace and whose rollout has not reached it, and optedOut those that the namespace is opted out of.
func templateResults(
	plan populate.Plan, findings []populate.Finding, ahead, optedOut []*v1alpha1.NamespaceTemplate,
) map[string]TemplateResult {
	all := map[string]TemplateResult{}
	for _, template := range optedOut {
		all[template.Name] = TemplateResult{Generation: template.Generation, State: OptedOut}
	}
	for _, template := range ahead {
		all[template.Name] = TemplateResult{State: Ahead}
	}
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
	reason := finding.Reason
	if reason == populate.FindingAltered && finding.Severity == populate.Error {
		reason = populate.FindingFailed
	}
	switch {
	case slices.Contains([]string{
		populate.FindingFailed, populate.FindingBrokenTemplate, populate.FindingValueMissing, populate.FindingSelects,
	}, reason):
		s.State, s.Passes = Failed, s.Passes || finding.MayPass
		s.Lasts = s.Lasts || !finding.MayPass && !finding.IsLocal
		failure := failure{message: reporting.Shorten(finding.Message)}
		if finding.Object != (populate.ObjectID{}) {
			failure.object = finding.Object.String()
		}
		s.Failures = append(s.Failures, failure)
	case populate.IsDrift(reason):
		s.HasDrifted = true
		if s.State != Failed {
			s.State = Drifted
		}
	case reason == populate.FindingWaitsForRole:
		if s.State == Populated {
			s.State = Pending
		}
	}
	return s
}
