package populate

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

func TestFindings(t *testing.T) {
	t.Parallel()
	strict := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
	lenient := strict.DeepCopy()
	lenient.Spec.FailurePolicy = v1alpha1.FailureIgnore
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	id := ObjectID{GroupKind: kind.GroupKind(), Name: "x"}
	change := func(template *v1alpha1.NamespaceTemplate, action Action) Change {
		c := Change{Action: action, Kind: kind, Name: "x", Template: "t", Reason: "why"}
		if template != nil {
			c.Declared = &Object{Template: template}
		}
		return c
	}
	drifted := func(action Action) Change {
		c := change(strict, action)
		c.Drifted = true
		return c
	}
	undeclared := func(action Action) Change {
		c := change(nil, action)
		c.Undeclared = true
		return c
	}
	failed := func(c Change, reason metav1.StatusReason) Result {
		return Result{Outcomes: []Outcome{{Change: c, Failure: &Failure{Reason: reason, err: errors.New("no")}}}}
	}
	failure := func(severity Severity, reason metav1.StatusReason) []Finding {
		return []Finding{{
			Object: id, Template: "t", Severity: severity, Reason: FindingFailed, Message: "no", Failure: reason,
			IsLocal: reason == ReasonHeldByFinalizer,
		}}
	}
	done := func(c Change) Result { return Result{Outcomes: []Outcome{{Change: c}}} }
	finding := func(severity Severity, reason, message string) []Finding {
		return []Finding{{Object: id, Template: "t", Severity: severity, Reason: reason, Message: message}}
	}
	for name, test := range map[string]struct {
		plan   Plan
		result Result
		want   []Finding
	}{
		"nothing changed": {plan: Plan{Changes: []Change{change(strict, Unchanged)}}},
		"an object was created": {
			plan: Plan{Changes: []Change{change(strict, Create)}}, result: done(change(strict, Create)),
		},
		"an apply failed": {
			result: failed(change(strict, Create), metav1.StatusReasonInvalid),
			want:   failure(Error, metav1.StatusReasonInvalid),
		},
		"an apply failed and failurePolicy is Ignore": {
			result: failed(change(lenient, Create), metav1.StatusReasonInvalid),
			want:   failure(Warning, metav1.StatusReasonInvalid),
		},
		"an object could not be pruned": {
			result: failed(change(nil, Prune), metav1.StatusReasonForbidden),
			want:   failure(Warning, metav1.StatusReasonForbidden),
		},
		"an RBAC object that a finalizer keeps": {
			result: failed(change(nil, Prune), ReasonHeldByFinalizer),
			want:   failure(Error, ReasonHeldByFinalizer),
		},
		"a RoleBinding that waits for its Role": {
			result: failed(change(strict, Create), ReasonWaitsForRole),
			want: []Finding{{
				Object: id, Template: "t", Severity: Error, Reason: FindingWaitsForRole, Message: "no",
				Failure: ReasonWaitsForRole, MayPass: true,
			}},
		},
		"drift that was corrected": {
			plan: Plan{Changes: []Change{drifted(Configure)}}, result: done(drifted(Configure)),
			want: finding(Info, FindingDriftCorrected, "was applied again: why"),
		},
		"drift that is reported": {
			plan: Plan{Changes: []Change{drifted(LeaveAlone)}},
			want: finding(Warning, FindingDrifted, "drifted: why"),
		},
		"drift that could not be corrected is only a failure": {
			plan:   Plan{Changes: []Change{drifted(Configure)}},
			result: failed(drifted(Configure), metav1.StatusReasonInvalid),
			want:   failure(Error, metav1.StatusReasonInvalid),
		},
		"an undeclared object that was deleted": {
			plan: Plan{Changes: []Change{undeclared(Prune)}}, result: done(undeclared(Prune)),
			want: finding(Info, FindingUndeclaredDeleted, "was deleted: why"),
		},
		"an undeclared object that is reported": {
			plan: Plan{Changes: []Change{undeclared(LeaveAlone)}},
			want: finding(Warning, FindingUndeclared, "why"),
		},
		"an object that is left alone": {plan: Plan{Changes: []Change{change(nil, LeaveAlone)}}},
		"a broken template": {
			plan: Plan{Declared: Declared{Broken: []Broken{{strict, errors.New("template t: no")}}}},
			want: []Finding{{
				Template: "t", Severity: Error, Reason: FindingBrokenTemplate, Message: "template t: no",
			}},
		},
		"a broken template with failurePolicy Ignore": {
			plan: Plan{Declared: Declared{Broken: []Broken{{lenient, errors.New("template t: no")}}}},
			want: []Finding{{
				Template: "t", Severity: Warning, Reason: FindingBrokenTemplate, Message: "template t: no",
			}},
		},
		"an object that names an unknown creator": {
			plan: Plan{Declared: Declared{
				Omitted: []render.Omission{{Kind: kind, Name: "x", Template: "t", Reason: "why"}},
			}},
			want: finding(Warning, FindingCreatorUnknown, "left out: why"),
		},
		"an object that two templates declare": {
			plan: Plan{Declared: Declared{Overridden: []Overridden{{Object: id, Template: "t", By: "u"}}}},
			want: finding(Warning, FindingDeclaredTwice,
				"declared by templates t and u: the declaration of u is applied"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, Findings(test.plan, test.result))
		})
	}
}

func TestFindingNamesItsObject(t *testing.T) {
	t.Parallel()
	finding := Finding{Object: ObjectID{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: "x"}, Message: "no"}
	require.Equal(t, "configmap/x: no", finding.String())
	require.Equal(t, "template t: no", Finding{Message: "template t: no"}.String())
}
