package population

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/reporting"
)

// maxStatus is the largest size in bytes of a status as JSON. Every write of a status sends and stores all of it.
const maxStatus = 32 << 10

// longName returns a name of the greatest length that ends with a number.
func longName(length, number int) string {
	suffix := fmt.Sprintf("-%06d", number)
	return strings.Repeat("n", length-len(suffix)) + suffix
}

func TestTheStatusOfATemplateThatFailsEverywhereIsSmall(t *testing.T) {
	results := NewResults(func(string, bool) {})
	results.Start(nil)
	for i := range 10_000 {
		result := TemplateResult{Generation: 1, State: Failed}
		for object := range 10 {
			// Each failure differs from all others, and so does each overridden object.
			result.Failures = append(result.Failures, failure{
				object:  "rolebinding.rbac.authorization.k8s.io/" + longName(253, 10*i+object),
				message: reporting.Shorten(strings.Repeat("m", 2*reporting.MaxMessage)),
			})
			result.Overridden = append(result.Overridden, populate.Overridden{
				Object: populate.ObjectID{
					GroupKind: schema.GroupKind{Group: longName(253, 0), Kind: "Kind"},
					Name:      longName(253, 10*i+object),
				},
				Template: longName(253, 0), By: longName(253, 1),
			})
		}
		name := longName(63, i)
		results.Record(name, "uid", map[string]TemplateResult{"policies": result}, false)
	}
	status := &v1alpha1.NamespaceTemplateStatus{ObservedGeneration: 1}
	for i := range 8 {
		status.Revisions = append(status.Revisions, v1alpha1.TemplateRevision{Name: longName(253, i)})
	}
	for i := range 64 {
		status.Kinds = append(status.Kinds, v1alpha1.GroupKind{Group: longName(63, i), Kind: longName(63, i)})
	}
	sum := results.Summary("policies", 1)
	status.Namespaces, status.Failures = sum.Counts, sum.Failures
	require.EqualValues(t, 10_000, status.Namespaces.Failed)
	require.Len(t, status.Failures, mostListed)
	apimeta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1alpha1.TemplateAccepted, Status: metav1.ConditionTrue, Reason: reasonAccepted,
	})
	apimeta.SetStatusCondition(&status.Conditions, populatedCondition(sum, status.Revisions))
	setReady(status, 1)
	require.Less(t, sizeOf(t, status), maxStatus)
}

func TestTheReportOnANamespaceInWhichEverythingFailsIsSmall(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: longName(63, 0)}}
	plan := populate.Plan{Declared: populate.Declared{Namespace: ns}}
	var findings []populate.Finding
	for i := range 5000 {
		template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: longName(253, i)}}
		plan.Templates = append(plan.Templates, template)
		findings = append(findings, populate.Finding{
			Object:   populate.ObjectID{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: longName(253, i)},
			Template: longName(253, i), Severity: populate.Error, Reason: populate.FindingFailed,
			Message: strings.Repeat("m", 5000),
		})
	}
	report := reportOf(plan, populate.Result{}, findings)
	patch, err := report.patch(ns, ns, stored(ns).Report, metav1.Now(), nil).Data(nil)
	require.NoError(t, err)
	require.Less(t, len(patch), maxStatus)
}

func sizeOf(t *testing.T, status any) int {
	t.Helper()
	data, err := json.Marshal(status)
	require.NoError(t, err)
	return len(data)
}
