package vet

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/source"
)

const judged = `apiVersion: policy.nstpl.dev/v1alpha1
kind: NamespaceTemplate
metadata:
  name: judged
spec:
  namespaces: {labelSelector: {}}
  templates:
  - apiVersion: v1
    kind: ConfigMap
    metadata: {name: bud}
  - apiVersion: v1
    kind: ResourceQuota
    metadata: {name: budget}
    spec:
      hard: {pods: 1}
  - apiVersion: v1
    kind: ResourceQuota
    metadata: {name: budget-2}
  overlays:
  - name: other
    namespaces: {labelSelector: {}}
  - name: prod
    namespaces: {labelSelector: {}}
`

// Each reason of the API server is a violation of its own, in the line of the field, object or overlay that it names.
func TestRefusalsHaveTheLineOfWhatTheyName(t *testing.T) {
	tests := map[string]struct {
		status metav1.Status
		want   []string
	}{
		"fields": {metav1.Status{
			Reason: metav1.StatusReasonInvalid, Message: "NamespaceTemplate is invalid",
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
				{Field: "spec.overlays[1].name", Message: "Too long"}, {Field: "<nil>", Message: "wrong"},
			}},
		}, []string{"22 spec.overlays[1].name: Too long", "1 wrong"}},
		"several reasons of nstpl": {metav1.Status{
			Reason: metav1.StatusReasonForbidden,
			Message: `admission webhook "templates.nstpl.dev" denied the request: template judged has 2 problems:` +
				"\n- spec.templates[1].spec.hard[pods]: resourcequota/budget: too low\n- overlay prod: fails",
		}, []string{
			"15 spec.templates[1].spec.hard[pods]: resourcequota/budget: too low",
			"22 spec.overlays[1]: overlay prod: fails",
		}},
		"one reason of nstpl": {metav1.Status{
			Reason: metav1.StatusReasonForbidden,
			Message: `admission webhook "templates.nstpl.dev" denied the request: template judged: ` +
				`user "jane" may not create ResourceQuota budget-2`,
		}, []string{`16 spec.templates[2]: user "jane" may not create ResourceQuota budget-2`}},
		"an object in the words of the API server": {metav1.Status{
			Reason:  metav1.StatusReasonForbidden,
			Message: `resourcequotas "budget" is forbidden: denied the request`,
		}, []string{`11 spec.templates[1]: resourcequotas "budget" is forbidden: denied the request`}},
		"a missing right": {metav1.Status{
			Reason: metav1.StatusReasonForbidden, Message: `User "jane" cannot patch resource "namespacetemplates"`,
		}, []string{
			`1 User "jane" cannot patch resource "namespacetemplates" (ask a cluster administrator for this permission)`,
		}},
		"a value of another type": {metav1.Status{
			Message: "failed to create typed patch object (/judged; a/v1, Kind=A): errors:\n" +
				"  .spec.templates: expected list, got &{map[]}\n" +
				"  .spec.a: field not declared in schema",
		}, []string{"7 spec.templates: must be a list, not an object", "5 spec.a: unknown field"}},
	}
	files, err := source.ReadAll(source.Filenames{Paths: []string{"-"}}, strings.NewReader(judged))
	require.NoError(t, err)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checker := &checker{result: &result{}}
			checker.refused(files.Objects[0], test.status)
			var got []string
			for _, violation := range checker.Violations {
				require.Equal(t, ruleServer, violation.Rule)
				violation.Object = ""
				got = append(got, strings.TrimPrefix(output.Position("", violation.Line), ":")+" "+violation.text())
			}
			require.Equal(t, test.want, got)
		})
	}
}
