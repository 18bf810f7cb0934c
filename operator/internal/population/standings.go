package population

import (
	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/reporting"
)

// standings returns how each selecting template stands in a namespace.
func standings(plan populate.Plan, findings []populate.Finding) map[string]Standing {
	all := map[string]Standing{}
	for _, template := range plan.Templates {
		all[template.Name] = Standing{Generation: template.Generation, State: Populated}
	}
	for _, finding := range findings {
		if standing, selects := all[finding.Template]; selects {
			all[finding.Template] = standing.with(plan.Namespace.Name, finding)
		}
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

// with returns the standing after a finding: the worst state counts.
func (s Standing) with(namespace string, finding populate.Finding) Standing {
	switch finding.Reason {
	case populate.FindingFailed, populate.FindingBrokenTemplate:
		s.State = Failed
		failure := v1alpha1.ObjectFailure{Namespace: namespace, Message: reporting.Shorten(finding.Message)}
		if finding.Object != (populate.ObjectID{}) {
			failure.Object = finding.Object.String()
		}
		s.Failures = append(s.Failures, failure)
	case populate.FindingDrifted, populate.FindingUndeclared:
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
