package integration_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Users may remove fields from the managedFields entry of nstpl, which then shows drift. With driftPolicy Report, such
// drift lasts only until the declaration changes: it keeps no subject that a change takes away.
func TestReportedDriftKeepsNoRevokedSubject(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	user := s.name("owner")
	template := s.createTemplate("a", grantTo("owner", user, "other"), reportsDrift)
	ns := s.createPopulatedNamespace("a")
	owner, err := s.newUserClient(user)
	require.NoError(t, err)
	binding := parseYAML(t, grantTo("owner"))[0]
	require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		live := s.mustGet(ns, binding)
		changeOperatorEntry(live, func(entry *metav1.ManagedFieldsEntry) {
			var fields map[string]map[string]any
			require.NoError(t, json.Unmarshal([]byte(entry.FieldsV1.GetRawString()), &fields))
			delete(fields["f:metadata"], "f:annotations")
			data, err := json.Marshal(fields)
			require.NoError(t, err)
			entry.FieldsV1 = metav1.NewFieldsV1(string(data))
		})
		live.SetLabels(map[string]string{v1alpha1.TemplateNameLabel: template.Name, "note": "x"})
		return owner.Update(t.Context(), live)
	}))
	s.waitDriftedNamespaces(template, 1)
	s.updateTemplate(template, withObjects(t, grantTo("owner", "other")))
	s.eventually(func(c *assert.CollectT) { assert.Equal(c, []string{"other"}, s.subjectsOf(ns, "owner")) })
}
