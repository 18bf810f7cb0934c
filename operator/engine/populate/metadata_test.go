package populate

import (
	"errors"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
)

var errInvalid = errors.New("invalid")

var tierKey = render.MetadataKey{Field: render.Labels, Key: "tier"}

// setsTier returns a template that sets the label tier, or no label if the value is empty.
func setsTier(name, value string) *v1alpha1.NamespaceTemplate {
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid")}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
	if value != "" {
		template.Spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{Labels: map[string]string{"tier": value}}
	}
	return template
}

// namespaceWith returns a namespace with a label tier and a record of it. Either may be empty.
func namespaceWith(tier string, recorded RecordedValue) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "team-a", UID: "uid", Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	if tier != "" {
		ns.Labels["tier"] = tier
	}
	if recorded.Template != "" {
		ns.Annotations[v1alpha1.NamespaceMetadataAnnotation] = MetadataRecord{tierKey: recorded}.String()
	}
	return ns
}

func recorded(template, value string) RecordedValue {
	return RecordedValue{Template: template, UID: types.UID(template + "-uid"), Value: digest(value)}
}

func existed(value RecordedValue) RecordedValue {
	value.Existed = true
	return value
}

func TestPlanOfADeclaredLabel(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ns     *corev1.Namespace
		action Action
		// reported is the action with driftPolicy Report, if that is another one.
		reported Action
		reason   string
		drifted  bool
		// overwritten says that driftPolicy Report makes the drift one that a new declaration overwrites.
		overwritten bool
		record      RecordedValue
	}{
		"missing": {
			ns: namespaceWith("", RecordedValue{}), action: Create, reason: "does not exist", record: recorded("t", "x"),
		},
		"as declared": {
			ns: namespaceWith("x", recorded("t", "x")), action: Unchanged, reason: "is as declared",
			record: recorded("t", "x"),
		},
		"the same before": {
			ns: namespaceWith("x", RecordedValue{}), action: Configure, reason: "exists but is not managed by nstpl yet",
			record: existed(recorded("t", "x")),
		},
		"another value before": {
			ns: namespaceWith("y", RecordedValue{}), action: Configure, reported: LeaveAlone, drifted: true,
			reason: `was set to "y" by another client`, record: existed(recorded("t", "x")),
		},
		"changed": {
			ns: namespaceWith("y", recorded("t", "x")), action: Configure, reported: LeaveAlone, drifted: true,
			reason: `was set to "y" by another client`, record: recorded("t", "x"),
		},
		"removed": {
			ns: namespaceWith("", recorded("t", "x")), action: Configure, reported: LeaveAlone, drifted: true,
			reason: "was removed by another client", record: recorded("t", "x"),
		},
		"a changed declaration": {
			ns: namespaceWith("y", recorded("t", "y")), action: Configure, reason: "its declaration changed",
			record: recorded("t", "x"),
		},
		"changed before its declaration": {
			ns: namespaceWith("z", recorded("t", "y")), action: Configure, drifted: true, overwritten: true,
			reason: `was set to "z" by another client`, record: recorded("t", "x"),
		},
		"removed before its declaration changed": {
			ns: namespaceWith("", recorded("t", "y")), action: Configure, drifted: true, overwritten: true,
			reason: "was removed by another client", record: recorded("t", "x"),
		},
		"of another template": {
			ns: namespaceWith("x", existed(recorded("a", "x"))), action: Configure,
			reason: "is not recorded for the template yet", record: existed(recorded("t", "x")),
		},
		"an invalid record": {
			ns: func() *corev1.Namespace {
				ns := namespaceWith("x", RecordedValue{})
				ns.Annotations[v1alpha1.NamespaceMetadataAnnotation] = "{"
				return ns
			}(),
			action: Configure, reason: "exists but is not managed by nstpl yet", record: existed(recorded("t", "x")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, policy := range []v1alpha1.DriftPolicy{v1alpha1.DriftCorrect, v1alpha1.DriftReport} {
				template := setsTier("t", "x")
				template.Spec.DriftPolicy = policy
				want := test.action
				if policy == v1alpha1.DriftReport && test.reported != "" {
					want = test.reported
				}
				plan := NewPlan(Declare(render.NewCache(), test.ns, []*v1alpha1.NamespaceTemplate{template}, Inputs{}),
					match.NewIndex(template), Observed{})
				require.Len(t, plan.Changes, 1)
				change := plan.Changes[0].Metadata.Values[0]
				require.Equal(t, want, change.Action)
				require.Contains(t, change.Reason, test.reason)
				overwrites := test.overwritten && policy == v1alpha1.DriftReport
				require.Equal(t, overwrites, change.Overwrites)
				require.Equal(t, test.drifted && !overwrites, change.Drifted)
				require.Equal(t, test.drifted && !overwrites, plan.Changes[0].Differs())
				if overwrites {
					require.Equal(t, reasonDeclarationChanged+", so it overwrites what driftPolicy Report left: "+test.reason,
						change.Reason)
				}
				if patch := plan.Changes[0].Metadata.patch(); want == Create || want == Configure {
					require.Equal(t, map[string]any{"tier": "x"}, patch[render.Labels])
					require.Equal(t, map[string]any{
						v1alpha1.NamespaceMetadataAnnotation: MetadataRecord{tierKey: test.record}.String(),
					}, patch[render.Annotations])
				}
			}
		})
	}
}

func TestPlanOfAnUndeclaredLabel(t *testing.T) {
	t.Parallel()
	elsewhere := setsTier("t", "x")
	elsewhere.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}
	deletes := elsewhere.DeepCopy()
	deletes.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	another := setsTier("t", "")
	another.UID = "another"
	unknownCreator := setsTier("t", "$(CREATOR)")
	optedOut := namespaceWith("x", recorded("t", "x"))
	optedOut.Annotations[v1alpha1.OptOutAnnotation] = "t"
	for name, test := range map[string]struct {
		template *v1alpha1.NamespaceTemplate
		ns       *corev1.Namespace
		action   Action
		reason   string
	}{
		"no longer declared": {setsTier("t", ""), nil, Prune, "template t no longer declares it"},
		"existed before": {
			setsTier("t", ""), namespaceWith("x", existed(recorded("t", "x"))), LeaveAlone, "existed before",
		},
		"changed since": {
			setsTier("t", ""), namespaceWith("y", recorded("t", "x")), Prune, "only its record is removed",
		},
		"removed since": {
			setsTier("t", ""), namespaceWith("", recorded("t", "x")), Prune, "only its record is removed",
		},
		"changed since, Orphan": {
			elsewhere, namespaceWith("y", recorded("t", "x")), LeaveAlone, "was set by another client",
		},
		"not selected, Orphan": {elsewhere, nil, LeaveAlone, "deletionPolicy is Orphan"},
		"not selected, Delete": {deletes, nil, Prune, "no longer matches"},
		"changed since, no such template": {
			setsTier("other", ""), namespaceWith("y", recorded("t", "x")), Prune, "only its record is removed",
		},
		"no such template":       {setsTier("other", ""), nil, LeaveAlone, "template t does not exist"},
		"another of that name":   {another, nil, LeaveAlone, "template t does not exist"},
		"the creator is unknown": {unknownCreator, nil, LeaveAlone, "once the namespace's creator is known"},
		"cannot be rendered":     {setsTier("t", "$(LABEL:none)"), nil, LeaveAlone, "can't be rendered"},
		"opted out":              {deletes, optedOut, LeaveAlone, "no longer matches"},
		"opted out and selected": {setsTier("t", "x"), optedOut, LeaveAlone, "no longer matches"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := test.ns
			if ns == nil {
				ns = namespaceWith("x", recorded("t", "x"))
			}
			index := match.NewIndex(test.template)
			plan := NewPlan(Declare(render.NewCache(), ns, index.Match(ns), Inputs{}), index, Observed{})
			require.NotEmpty(t, plan.Changes)
			metadata := plan.Changes[0].Metadata
			require.Len(t, metadata.Values, 1)
			require.Equal(t, test.action, metadata.Values[0].Action)
			require.Contains(t, metadata.Values[0].Reason, test.reason)
			if test.action != Prune {
				require.Equal(t, LeaveAlone, plan.Changes[0].Action)
				return
			}
			removed, remaining := map[string]any{}, maps.Clone(ns.Labels)
			if ns.Labels["tier"] == "x" {
				removed["tier"] = nil
				delete(remaining, "tier")
			}
			require.Equal(t, map[string]map[string]any{
				render.Labels: removed, render.Annotations: {v1alpha1.NamespaceMetadataAnnotation: nil},
			}, metadata.patch())
			labels, _ := metadata.After()
			require.Equal(t, remaining, labels)
			require.Equal(t, LeaveAlone, plan.WithoutDeletions(index).Changes[0].Action)
			coming := setsTier("u", "z")
			require.Equal(t, LeaveAlone,
				plan.Keeping(render.NewCache(), []*v1alpha1.NamespaceTemplate{coming}).Changes[0].Action)
			require.Equal(t, Configure, plan.Changes[0].Action, "the plan itself is not changed")
		})
	}
}

func TestALabelByWhichATemplateSelectsIsNotSet(t *testing.T) {
	t.Parallel()
	selects := setsTier("selects", "")
	selects.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "x"}}
	template := setsTier("t", "x")
	index := match.NewIndex(template, selects)
	for _, test := range []struct {
		ns       *corev1.Namespace
		severity Severity
	}{{namespaceWith("", RecordedValue{}), Error}, {namespaceWith("x", recorded("t", "x")), Warning}} {
		plan := NewPlan(Declare(render.NewCache(), test.ns, []*v1alpha1.NamespaceTemplate{template}, Inputs{}),
			index, Observed{})
		require.Equal(t, LeaveAlone, plan.Changes[0].Action)
		findings := Findings(plan, Result{})
		require.Equal(t, []Finding{{
			Object: plan.Changes[0].ID(), Template: "t", Severity: test.severity, Reason: FindingSelects,
			Message: "label tier is not managed, because template selects selects by it: " +
				"remove it from namespaceMetadata, or select by another label",
		}}, findings)
	}
}

func TestFindingsAboutNamespaceMetadata(t *testing.T) {
	t.Parallel()
	ignores := setsTier("a", "x")
	ignores.Spec.FailurePolicy = v1alpha1.FailureIgnore
	ignores.Spec.NamespaceMetadata.Labels["other"] = "x"
	last := setsTier("b", "y")
	templates := []*v1alpha1.NamespaceTemplate{ignores, last}
	plan := NewPlan(Declare(render.NewCache(), namespaceWith("z", RecordedValue{}), templates, Inputs{}),
		match.NewIndex(templates...), Observed{})
	require.Equal(t, "a,b", plan.Changes[0].Template)
	of, isOf := plan.Changes[0].Of("b")
	require.True(t, isOf)
	require.Equal(t, "b", of.Template)
	_, isOf = plan.Changes[0].Of("c")
	require.False(t, isOf)
	outcome := Outcome{Change: plan.Changes[0], Failure: &Failure{Reason: metav1.StatusReasonInvalid, err: errInvalid}}
	var texts []string
	for _, finding := range Findings(plan, Result{Outcomes: []Outcome{outcome}}) {
		texts = append(texts, finding.String())
	}
	require.Equal(t, []string{
		"namespace/team-a of template b: invalid", "namespace/team-a: invalid",
		"namespace/team-a: declared by templates a and b (label tier): the declaration of b is applied",
	}, texts)
	outcome.Failure = nil
	findings := Findings(plan, Result{Outcomes: []Outcome{outcome}})
	require.Equal(t, FindingDriftCorrected, findings[0].Reason)
	require.Equal(t, Info, findings[0].Severity)
	require.Equal(t, `namespace/team-a: was applied again: label tier was set to "z" by another client`,
		findings[0].String())
	require.Empty(t, ExistingObjects(plan, Result{Outcomes: []Outcome{outcome}}))
}

func TestOnlyWhatATemplateSetItselfIsRemovedWithIt(t *testing.T) {
	t.Parallel()
	key := render.MetadataKey{Field: render.Labels, Key: "tier"}
	existed := NewRecordedValue("t", "uid", "gold")
	existed.Existed = true
	for name, test := range map[string]struct {
		value  string
		record RecordedValue
		want   bool
	}{
		"its value":                      {"gold", NewRecordedValue("t", "uid", "gold"), true},
		"another value":                  {"silver", NewRecordedValue("t", "uid", "gold"), false},
		"removed":                        {"", NewRecordedValue("t", "uid", "gold"), false},
		"that existed before":            {"gold", existed, false},
		"of another template":            {"gold", NewRecordedValue("other", "uid", "gold"), false},
		"of an earlier one of that name": {"gold", NewRecordedValue("t", "earlier", "gold"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{}
			if test.value != "" {
				ns.Labels = map[string]string{"tier": test.value}
			}
			ns.Annotations = map[string]string{
				v1alpha1.NamespaceMetadataAnnotation: MetadataRecord{key: test.record}.String(),
			}
			require.Equal(t, test.want, MayPruneMetadata(ns, "t", "uid"))
		})
	}
}
