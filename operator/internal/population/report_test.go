package population

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/reporting"
)

// reported returns a namespace after a report was applied to it, and the patch.
func reported(t *testing.T, ns *corev1.Namespace, report Report) (*corev1.Namespace, string) {
	t.Helper()
	body, err := report.patch(ns, ns, stored(ns).Report, metav1.Unix(1, 0), nil).Data(nil)
	require.NoError(t, err)
	before, err := json.Marshal(ns)
	require.NoError(t, err)
	operations, err := jsonpatch.DecodePatch(body)
	require.NoError(t, err)
	after, err := operations.Apply(before)
	require.NoError(t, err)
	result := &corev1.Namespace{}
	require.NoError(t, json.Unmarshal(after, result))
	return result, string(body)
}

func initializing(pending string) *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: "team-a", UID: "1", ResourceVersion: "7",
			Labels:      map[string]string{"tier": "test", v1alpha1.InitializingLabel: "true"},
			Annotations: map[string]string{"theirs": "x", v1alpha1.PendingAnnotation: pending},
		},
		Status: corev1.NamespaceStatus{Conditions: []corev1.NamespaceCondition{{
			Type: "theirs", Status: corev1.ConditionTrue,
		}}},
	}
}

func TestReportIsReadAsItWasWritten(t *testing.T) {
	populated := Report{
		Status: corev1.ConditionTrue, Reason: populate.ConditionPopulated, Message: "2 objects of t",
		Existing: "t/configmap/x",
	}
	failed := Report{Status: corev1.ConditionFalse, Reason: populate.ConditionObjectsFailed, Message: "no"}
	with := func(report Report, pending string) Report {
		report.Initializing, report.Pending = pending != "", pending
		return report
	}
	tests := []struct {
		name     string
		ns       *corev1.Namespace
		report   Report
		touching bool // the patch says something of the list
	}{
		{name: "opens, ours alone", ns: initializing("namespace-template"), report: populated, touching: true},
		{name: "opens without a condition", ns: initializing("namespace-template"), report: Report{}, touching: true},
		{name: "opens, no list", ns: initializing(""), report: populated, touching: true},
		{name: "opens, after others", ns: initializing("a,b"), report: populated, touching: true},
		{
			name: "others are left", ns: initializing("a,namespace-template,b"), report: with(populated, "a,b"),
			touching: true,
		},
		{name: "stays closed", ns: initializing("a,namespace-template"), report: with(failed, "a,namespace-template")},
		{name: "is tidied", ns: initializing(" a,,a"), report: with(populated, "a"), touching: true},
		{
			name: "is of a tree", ns: initializing("namespace-template"),
			report:   Report{Depths: map[string]string{"a.tree.policy.nstpl.dev/depth": "1"}, InTree: true},
			touching: true,
		},
		{
			name:   "is open",
			ns:     &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "1", ResourceVersion: "7"}},
			report: populated,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			after, patch := reported(t, test.ns, test.report)
			kept := stored(after)
			requireReport(t, test.report, kept.Report)
			if test.report.Status != "" {
				require.True(t, kept.since.Equal(new(metav1.Unix(1, 0))))
			}
			require.Contains(t, patch, `"path":"/metadata/uid","value":"1"`)
			const version = `"path":"/metadata/resourceVersion","value":"7"`
			require.Equal(t, stored(test.ns).Initializing, strings.Contains(patch, version))
			touched := strings.Contains(patch, strings.ReplaceAll(v1alpha1.PendingAnnotation, "/", "~1"))
			require.Equal(t, test.touching, touched)
			if !test.report.Initializing {
				require.NotContains(t, after.Labels, v1alpha1.InitializingLabel)
				require.NotContains(t, after.Annotations, v1alpha1.PendingAnnotation)
			}
			require.Equal(t, test.ns.Labels["tier"], after.Labels["tier"])
			require.Equal(t, test.ns.Annotations["theirs"], after.Annotations["theirs"])
			require.Subset(t, after.Status.Conditions, test.ns.Status.Conditions)
		})
	}
}

func TestEmptyReportRemovesTheEarlierOne(t *testing.T) {
	populated, _ := reported(t, initializing("namespace-template"),
		Report{Status: corev1.ConditionTrue, Reason: "r", Message: "m", Existing: "s"})
	left, _ := reported(t, populated, Report{})
	kept := stored(left)
	requireReport(t, Report{}, kept.Report)
	require.True(t, kept.since.IsZero())
	require.Equal(t, map[string]string{"theirs": "x"}, left.Annotations)
	require.Len(t, left.Status.Conditions, 1)
}

func TestInOrderOfCreation(t *testing.T) {
	at := func(second int64, version, name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, ResourceVersion: version, CreationTimestamp: metav1.NewTime(time.Unix(second, 0)),
		}}
	}
	for _, test := range []struct {
		name          string
		first, second *corev1.Namespace
	}{
		{"seconds", at(1, "9", "b"), at(2, "8", "a")},
		{"resource versions within a second, as numbers", at(1, "9", "b"), at(1, "10", "a")},
		{"names, where resource versions say nothing", at(1, "x", "a"), at(1, "y", "b")},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Negative(t, inOrderOfCreation(test.first, test.second))
			require.Positive(t, inOrderOfCreation(test.second, test.first))
			require.Zero(t, inOrderOfCreation(test.first, test.first))
		})
	}
}

func TestReportOf(t *testing.T) {
	t.Parallel()
	template := func(name string) *v1alpha1.NamespaceTemplate {
		return &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3}}
	}
	x := populate.ObjectID{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: "x"}
	finding := func(severity populate.Severity, reason, message string) populate.Finding {
		return populate.Finding{Object: x, Template: "t", Severity: severity, Reason: reason, Message: message}
	}
	failed := finding(populate.Error, populate.FindingFailed, "no")
	mayPass := finding(populate.Error, populate.FindingFailed, "not yet")
	mayPass.MayPass = true
	broken := populate.Finding{
		Template: "t", Severity: populate.Error, Reason: populate.FindingBrokenTemplate, Message: "template t: no",
	}
	drifted := finding(populate.Warning, populate.FindingDrifted, "drifted: y")
	for name, test := range map[string]struct {
		templates []*v1alpha1.NamespaceTemplate
		findings  []populate.Finding
		want      Report
		state     State
		failures  int
	}{
		"no template selects the namespace": {},
		"no template selects it, but a revoked grant remains": {
			findings: []populate.Finding{failed},
			want: Report{
				Status: corev1.ConditionFalse, Reason: populate.ConditionObjectsFailed,
				Message: "configmap/x of template t: no",
			},
		},
		"all objects are applied": {
			templates: []*v1alpha1.NamespaceTemplate{template("t")},
			want: Report{
				Status: corev1.ConditionTrue, Reason: populate.ConditionPopulated, Message: "0 objects",
			},
			state: Populated,
		},
		"what the operator corrected is not in the condition": {
			templates: []*v1alpha1.NamespaceTemplate{template("t")},
			findings:  []populate.Finding{finding(populate.Info, populate.FindingDriftCorrected, "y")},
			want: Report{
				Status: corev1.ConditionTrue, Reason: populate.ConditionPopulated, Message: "0 objects",
			},
			state: Populated,
		},
		"a warning is in the condition": {
			templates: []*v1alpha1.NamespaceTemplate{template("t")},
			findings:  []populate.Finding{drifted},
			want: Report{
				Status: corev1.ConditionTrue, Reason: populate.ConditionPopulated,
				Message: "0 objects; configmap/x: drifted: y",
			},
			state: Drifted,
		},
		"a failure that the template ignores": {
			templates: []*v1alpha1.NamespaceTemplate{template("t")},
			findings:  []populate.Finding{finding(populate.Warning, populate.FindingFailed, "no"), drifted},
			want: Report{
				Status: corev1.ConditionTrue, Reason: populate.ConditionPopulated,
				Message: "0 objects; configmap/x: no; configmap/x: drifted: y",
			},
			state: Failed, failures: 1,
		},
		"a failure and a broken template": {
			templates: []*v1alpha1.NamespaceTemplate{template("t")},
			findings:  []populate.Finding{failed, broken},
			want: Report{
				Status: corev1.ConditionFalse, Reason: populate.ConditionTemplateNotAccepted,
				Message: "configmap/x of template t: no; template t: no",
			},
			state: Failed, failures: 2,
		},
		"a broken template and a failure that may pass": {
			templates: []*v1alpha1.NamespaceTemplate{template("t")},
			findings:  []populate.Finding{mayPass, broken},
			want: Report{
				Status: corev1.ConditionFalse, Reason: populate.ConditionTemplateNotAccepted,
				Message: "configmap/x of template t: not yet; template t: no",
			},
			state: Failed, failures: 2,
		},
		"failures that may pass": {
			templates: []*v1alpha1.NamespaceTemplate{template("t")},
			findings:  []populate.Finding{mayPass, mayPass},
			want: Report{
				Status: corev1.ConditionFalse, Reason: populate.ConditionRetrying,
				Message: "configmap/x of template t: not yet; configmap/x of template t: not yet",
			},
			state: Failed, failures: 2,
		},
		"a failure that may pass after one that lasts": {
			templates: []*v1alpha1.NamespaceTemplate{template("t")},
			findings:  []populate.Finding{failed, mayPass},
			want: Report{
				Status: corev1.ConditionFalse, Reason: populate.ConditionObjectsFailed,
				Message: "configmap/x of template t: no; configmap/x of template t: not yet",
			},
			state: Failed, failures: 2,
		},
		"a failure that lasts after one that may pass": {
			templates: []*v1alpha1.NamespaceTemplate{template("t")},
			findings:  []populate.Finding{mayPass, failed},
			want: Report{
				Status: corev1.ConditionFalse, Reason: populate.ConditionObjectsFailed,
				Message: "configmap/x of template t: not yet; configmap/x of template t: no",
			},
			state: Failed, failures: 2,
		},
		"a RoleBinding waits for its Role": {
			templates: []*v1alpha1.NamespaceTemplate{template("t")},
			findings: []populate.Finding{{
				Object: x, Template: "t", Severity: populate.Error, Reason: populate.FindingWaitsForRole,
				Message: "waits", MayPass: true,
			}},
			want: Report{
				Status: corev1.ConditionFalse, Reason: populate.ConditionRetrying,
				Message: "configmap/x of template t: waits",
			},
			state: Pending,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := populate.Plan{Declared: populate.Declared{
				Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, Templates: test.templates,
			}}
			requireReport(t, test.want, reportOf(plan, populate.Result{}, test.findings))
			of := templateResults(plan, test.findings, nil, nil)
			require.Len(t, of, len(test.templates))
			if len(test.templates) > 0 {
				require.Equal(t, int64(3), of["t"].Generation)
				require.Equal(t, test.state, of["t"].State)
				require.Len(t, of["t"].Failures, test.failures)
			}
		})
	}
}

// The condition names those templates that declare something in the namespace.
func TestPopulatedBy(t *testing.T) {
	t.Parallel()
	template := func(name string) *v1alpha1.NamespaceTemplate {
		return &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	declared := populate.Declared{
		Templates: []*v1alpha1.NamespaceTemplate{template("a"), template("b"), template("c"), template("d")},
	}
	require.Equal(t, "0 objects", populatedBy(declared))
	declared.Metadata = []populate.DeclaredValue{{Template: template("d")}}
	require.Equal(t, "0 objects of d", populatedBy(declared))
	declared.Objects = []populate.Object{{Template: template("c")}, {Template: template("b")}}
	require.Equal(t, "2 objects of b, c, d", populatedBy(declared))
}

// Findings are found in a condition that has no room for the names of all templates.
func TestFindingsOfManyTemplatesAreReported(t *testing.T) {
	t.Parallel()
	plan := populate.Plan{Declared: populate.Declared{
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
	}}
	for i := range 60 {
		template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("a-template-with-a-long-name-%d", i),
		}}
		plan.Templates = append(plan.Templates, template)
		plan.Objects = append(plan.Objects, populate.Object{Template: template})
	}
	report := reportOf(plan, populate.Result{}, []populate.Finding{{
		Object:   populate.ObjectID{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: "x"},
		Severity: populate.Warning, Reason: populate.FindingDrifted, Message: "drifted: data.a changed",
	}})
	condition := &corev1.NamespaceCondition{Status: report.Status, Message: report.Message}
	require.Equal(t, []populate.Reported{{
		Object: "configmap/x", Severity: populate.Warning, Reason: populate.FindingDrifted,
		Message: "drifted: data.a changed",
	}}, populate.ReportedFindings(condition))
	require.False(t, populate.IsShortened(condition))
	require.LessOrEqual(t, len(report.Message), reporting.MaxMessage)
}

func requireReport(t *testing.T, want, got Report) {
	t.Helper()
	require.True(t, want.equal(got), "want %+v, got %+v", want, got)
}
