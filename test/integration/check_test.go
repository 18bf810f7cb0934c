package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/plugin"
	"nstpl.dev/nstpl/test/marks"
)

// checkReport has the fields of the output of kubectl nstpl check -o json that tests need.
type checkReport struct {
	Summary struct{ OK, Warnings, Failures, Unknown int }
	Results []struct{ Check, Status, Message, Remedy string }
}

// runCheck runs kubectl nstpl check, and returns its report and its exit code.
func runCheck(t *testing.T, c assert.TestingT, cluster *testCluster) (report checkReport, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
	defer cancel()
	var out, errOut bytes.Buffer
	code = plugin.Run(ctx, []string{
		"kubectl-nstpl", "check", "-o", "json", "--kubeconfig", cluster.controlPlane.Kubeconfig,
	}, genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errOut})
	assert.Empty(c, errOut.String())
	assert.NoError(c, json.Unmarshal(out.Bytes(), &report))
	return report, code
}

// messages returns the messages of the results with a status, by their checks.
func (r *checkReport) messages(status string) map[string]string {
	messages := map[string]string{}
	for _, result := range r.Results {
		if result.Status == status {
			messages[result.Check] = result.Message
		}
	}
	return messages
}

// kubectl nstpl check finds nothing wrong with an installation, and then a policy that a condition switches off, a
// template that cannot be populated, the operator that is killed, and a policy that is deleted. It stores nothing.
func TestCheckFindsWhatIsWrong(t *testing.T) {
	marks.OnEveryVersion(t)
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t, "--leader-elect=true")
	s := newScope(t, cluster)
	s.eventually(func(c *assert.CollectT) {
		report, code := runCheck(t, c, cluster)
		assert.Zero(c, code)
		assert.Empty(c, report.messages("warning"))
		assert.Empty(c, report.messages("failure"))
		assert.Empty(c, report.messages("unknown"))
		assert.Contains(c, report.messages("ok"), "webhook-calls")
		assert.Contains(c, report.messages("ok"), "operator-leader")
	})

	_, err := cluster.kubectl(t.Context(), "", "patch", "validatingadmissionpolicybinding", "nstpl-namespace-guard",
		"--type=merge", `--patch={"spec": {"matchResources": {"objectSelector": {"matchLabels": {"a": "b"}}}}}`)
	require.NoError(t, err)
	report, code := runCheck(t, t, cluster)
	require.Zero(t, code)
	require.Contains(t, report.messages("warning")["installed-objects"],
		"1 object changed since the installation: "+
			"validatingadmissionpolicybinding.admissionregistration.k8s.io/nstpl-namespace-guard")

	template := s.createTemplate("broken", failingObject)
	ns := s.createNamespace("team")
	s.waitNotPopulated(ns, rejection)
	s.eventually(func(c *assert.CollectT) {
		report, code := runCheck(t, c, cluster)
		assert.Equal(c, 2, code)
		failures := report.messages("failure")
		assert.Contains(c, failures["populated-namespaces"], "1 namespace not populated: "+ns.Name)
		assert.Contains(c, failures["namespacetemplates"], "1 cannot be in force until a person acts: "+template.Name)
		assert.Contains(c, failures["namespacetemplates"], "resourcequota/bad: ")
	})
	s.delete(template)

	require.NoError(t, cluster.operator.Kill())
	s.eventually(func(c *assert.CollectT) { // once the lease has expired
		report, code := runCheck(t, c, cluster)
		assert.Equal(c, 2, code)
		failures := report.messages("failure")
		assert.Contains(c, failures["webhook-calls"], "connection refused")
		assert.Contains(c, failures["operator-leader"], "no operator leads: ")
		for _, result := range report.Results {
			assert.Equal(c, result.Status == "ok", result.Remedy == "", result.Message)
		}
	})

	_, err = cluster.kubectl(t.Context(), "", "delete", "validatingadmissionpolicy", "nstpl-object-guard")
	require.NoError(t, err)
	s.eventually(func(c *assert.CollectT) {
		report, _ := runCheck(t, c, cluster)
		assert.Contains(c, report.messages("failure")["installed-objects"], "/nstpl-object-guard not found")
	})
	stored, err := cluster.kubectl(t.Context(), "", "get", "namespaces,namespacetemplates", "-o", "name")
	require.NoError(t, err)
	require.NotContains(t, stored, "nstpl-check")
	require.NoError(t, cluster.startOperator(t.Context(), "--leader-elect=true"))
}
