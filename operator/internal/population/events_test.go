package population

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// storing is a client whose API server has a namespace, and accepts each report on it.
type storing struct {
	client.Client
	ns *corev1.Namespace
}

type storingStatus struct {
	client.SubResourceWriter
	ns *corev1.Namespace
}

func (s *storing) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	s.ns.DeepCopyInto(into.(*corev1.Namespace))
	return nil
}

func (s *storing) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func (s *storing) Status() client.SubResourceWriter { return storingStatus{ns: s.ns} }

func (s storingStatus) Patch(
	_ context.Context, into client.Object, _ client.Patch, _ ...client.SubResourcePatchOption,
) error {
	s.ns.DeepCopyInto(into.(*corev1.Namespace))
	return nil
}

// reporter is an operator that reports on a namespace.
type reporter struct {
	*Namespaces
	ns *corev1.Namespace
	// recorded are the Events in the order of the findings.
	recorded *events.FakeRecorder
}

// newReporter returns an operator that has just started, and that finds a namespace.
func newReporter(ns *corev1.Namespace) reporter {
	recorder := events.NewFakeRecorder(100)
	return reporter{&Namespaces{
		Client:  &storing{ns: ns},
		Results: NewResults(func(string, bool) {}), Recorder: recorder, Metrics: NewMetrics(prometheus.NewRegistry()),
		Templates: &Templates{Acceptance: &Acceptance{Index: match.NewIndex()}}, Yield: populate.NewYield(),
		Contributors: Contributors{
			IsReady:  func(context.Context, *corev1.Namespace) (bool, error) { return true, nil },
			Findings: ignoring{},
		},
	}, ns, recorder}
}

type ignoring struct{}

func (ignoring) Report(string, []populate.Finding) {}
func (ignoring) Forget(string)                     {}

// pass reports findings after a pass that declares a number of objects, and returns the notes of the Events.
func (r reporter) pass(t *testing.T, declared int, findings ...populate.Finding) (recorded []string) {
	t.Helper()
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "policies"}}
	plan := populate.Plan{Declared: populate.Declared{
		Namespace: r.ns, Templates: []*v1alpha1.NamespaceTemplate{template},
		Objects: slices.Repeat([]populate.Object{{Template: template}}, declared),
	}}
	_, err := r.report(t.Context(), r.ns, pass{plan: plan, findings: findings})
	require.NoError(t, err)
	report := reportOf(plan, populate.Result{}, findings)
	r.ns.Status.Conditions = []corev1.NamespaceCondition{{
		Type: v1alpha1.NamespacePopulated, Status: report.Status, Reason: report.Reason, Message: report.Message,
	}}
	for len(r.recorded.Events) > 0 {
		recorded = append(recorded, <-r.recorded.Events)
	}
	return recorded
}

// drifted returns the number that the metric has counted.
func (r reporter) drifted(t *testing.T) int {
	t.Helper()
	metric := &dto.Metric{}
	require.NoError(t, r.Metrics.drifted.WithLabelValues("", "ConfigMap").Write(metric))
	return int(metric.GetCounter().GetValue())
}

// drift returns the findings that a number of objects drifted.
func drift(number int) (findings []populate.Finding) {
	for i := range number {
		findings = append(findings, populate.Finding{
			Object: populate.ObjectID{
				GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: fmt.Sprintf("settings-%02d", i),
			},
			Template: "policies", Severity: populate.Warning, Reason: populate.FindingDrifted,
			Message: "drifted: another client changed its data",
		})
	}
	return findings
}

// A condition has no room for more than some objects, and says nothing about the others.
func TestEachDriftIsRecordedAndCountedOnce(t *testing.T) {
	t.Parallel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "1", ResourceVersion: "1"}}
	r := newReporter(ns)
	require.Len(t, r.pass(t, 20, drift(20)...), 20)
	require.True(t, populate.IsShortened(populate.PopulatedCondition(ns)))
	require.Equal(t, []string{
		"Warning Drifted configmap/settings-20: drifted: another client changed its data",
	}, r.pass(t, 20, drift(21)...), "the condition stays as it was")
	require.Empty(t, r.pass(t, 21, drift(21)...), "another object is declared")
	require.Equal(t, 21, r.drifted(t))

	// Some are corrected, and drift again.
	require.Empty(t, r.pass(t, 21, drift(1)...))
	require.Len(t, r.pass(t, 21, drift(3)...), 2)
	require.Equal(t, 23, r.drifted(t))
}

func TestAFailureThatFollowsRecordsNoDriftAgain(t *testing.T) {
	t.Parallel()
	r := newReporter(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "1", ResourceVersion: "1"}})
	failed := populate.Finding{
		Object:   populate.ObjectID{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: "other"},
		Template: "policies", Severity: populate.Warning, Reason: populate.FindingFailed, Message: "no",
	}
	require.Len(t, r.pass(t, 2, drift(1)...), 1)
	require.Equal(t, []string{"Warning ObjectFailed configmap/other: no"},
		r.pass(t, 2, append(drift(1), failed)...))
	require.Empty(t, r.pass(t, 2, drift(1)...))
	require.Len(t, r.pass(t, 2, append(drift(1), failed)...), 1, "it fails again")
	require.Equal(t, 1, r.drifted(t))
}

func TestARestartRecordsOnlyWhatTheConditionLacks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		declared, before, after, want int
	}{
		"nothing changed":                      {1, 1, 1, 0},
		"another object is declared":           {2, 1, 1, 0},
		"another object drifted":               {1, 1, 2, 1},
		"the condition was cut and is as ever": {1, 20, 20, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "1", ResourceVersion: "1"}}
			require.Len(t, newReporter(ns).pass(t, 1, drift(test.before)...), test.before)
			restarted := newReporter(ns)
			require.Len(t, restarted.pass(t, test.declared, drift(test.after)...), test.want)
			require.Empty(t, restarted.pass(t, test.declared, drift(test.after)...))
		})
	}
}

// Templates may still come to select a namespace that is initializing, so its condition does not say True yet.
func TestFindingsOfAnInitializingNamespaceAreRecordedOnceItIsPopulated(t *testing.T) {
	t.Parallel()
	ns := initializing("example.org/other")
	r := newReporter(ns)
	r.Live = r.Client
	isReady := false
	r.Contributors.IsReady = func(context.Context, *corev1.Namespace) (bool, error) { return isReady, nil }
	r.Contributors.Annotations = func(context.Context, *corev1.Namespace) (map[string]string, error) {
		return nil, nil
	}
	require.Empty(t, r.pass(t, 1, drift(1)...))
	ns.Status.Conditions = nil
	isReady = true
	require.Len(t, r.pass(t, 1, drift(1)...), 1)
	require.Empty(t, r.pass(t, 1, drift(1)...))
}

// The API server refuses an Event with a note of more than 1024 bytes, and no client sends it again.
func TestNotesOfEventsAreShort(t *testing.T) {
	t.Parallel()
	r := newReporter(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "1", ResourceVersion: "1"}})
	finding := drift(1)[0]
	finding.Message = strings.Repeat("m", 2000)
	recorded := r.pass(t, 1, finding)
	require.Len(t, recorded, 1)
	note := strings.TrimPrefix(recorded[0], "Warning Drifted ")
	require.Contains(t, note, "configmap/settings-00: mmm")
	require.LessOrEqual(t, len(note), 1024)
}

// What an Event says of each reason is what the condition says. Corrections need no person, so they are Normal.
func TestEventsOfFindings(t *testing.T) {
	t.Parallel()
	settings := populate.ObjectID{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: "settings"}
	for reason, want := range map[string]string{
		populate.FindingFailed:                "Warning ObjectFailed configmap/settings: m",
		populate.FindingAltered:               "Warning Altered configmap/settings: m",
		populate.FindingBrokenTemplate:        "Warning TemplateNotAccepted configmap/settings: m",
		populate.FindingValueMissing:          "Warning ValueMissing configmap/settings: m",
		populate.FindingCreatorUnknown:        "Warning CreatorUnknown configmap/settings: m",
		populate.FindingRoleOverridden:        "Warning RoleOverridden configmap/settings: m",
		populate.FindingDeclaredTwice:         "Warning DeclaredTwice configmap/settings: m",
		populate.FindingUndeclared:            "Warning Undeclared configmap/settings: m",
		populate.FindingDrifted:               "Warning Drifted configmap/settings: m",
		populate.FindingOverwritten:           "Warning DriftOverwritten configmap/settings: m",
		populate.FindingGrantStays:            "Warning GrantStays configmap/settings: m",
		populate.FindingFought:                "Warning ChangedAgain configmap/settings: m",
		populate.FindingUndeclaredDeleted:     "Warning UndeclaredDeleted configmap/settings: m",
		populate.ConditionNotAdopted:          "Warning NotAdopted configmap/settings: m",
		populate.FindingDriftCorrected:        "Normal DriftCorrected configmap/settings: m",
		populate.FindingWaitsForRole:          "",
		populate.FindingSelects:               "",
		populate.FindingProtected:             "",
		populate.FindingExempt:                "",
		populate.ConditionPolicySpaceNotFound: "",
	} {
		r := newReporter(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}})
		r.recordFinding(r.ns, populate.Finding{Object: settings, Template: "t", Reason: reason, Message: "m"})
		close(r.recorded.Events)
		require.Equal(t, want, <-r.recorded.Events, reason)
	}
}
