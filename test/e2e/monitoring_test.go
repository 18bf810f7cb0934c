package e2e_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// rule is an alert of the component prometheus.
type rule struct {
	Alert, Expr string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Spec struct{ Groups []struct{ Rules []rule } }
	}
	read(t, "../../manifests/components/prometheus/prometheusrule.yaml", func(content []byte) error {
		return yaml.Unmarshal(content, &file)
	})
	require.Len(t, file.Spec.Groups, 1)
	return file.Spec.Groups[0].Rules
}

// queries returns the queries of the dashboard.
func queries(t *testing.T) []string {
	t.Helper()
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	read(t, "../../manifests/components/grafana/nstpl.json", func(content []byte) error {
		return json.Unmarshal(content, &dashboard)
	})
	var all []string
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			all = append(all, target.Expr)
		}
	}
	return all
}

func read(t *testing.T, path string, into func([]byte) error) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, into(content))
}

// metrics returns the names of the metrics in the queries of alerts and dashboard, without the suffixes of histograms.
func metrics(t *testing.T) []string {
	t.Helper()
	expressions := queries(t)
	for _, rule := range alerts(t) {
		expressions = append(expressions, rule.Expr)
	}
	var names []string
	for _, expression := range expressions {
		for _, match := range regexp.MustCompile(`([a-z_]+)\{`).FindAllStringSubmatch(expression, -1) {
			names = append(names, strings.TrimSuffix(match[1], "_bucket"))
		}
	}
	require.Greater(t, len(names), 20)
	return names
}

// Each alert has a description of the problem, a severity and an instruction.
func TestAlerts(t *testing.T) {
	t.Parallel()
	require.NotEmpty(t, alerts(t))
	for _, rule := range alerts(t) {
		require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
		require.NotEmpty(t, rule.Annotations["runbook"], rule.Alert)
		require.Contains(t, []string{"critical", "warning", "info"}, rule.Labels["severity"], rule.Alert)
	}
}

// The metrics of alerts and dashboard exist: the operator's own in its source code, because some appear only when
// something happens, and the others on a running operator.
func TestMetricsAreThere(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	require.NoError(t, filepath.WalkDir("../../operator", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		code.Write(content)
		return err
	}))
	for _, name := range metrics(t) {
		if strings.HasPrefix(name, "nstpl_") {
			require.Contains(t, code.String(), `"`+name+`"`)
		}
	}
}

// metrics fetches the metrics of both replicas.
func (s *site) metrics() {
	served := ""
	for pod := range strings.FieldsSeq(s.kubectl("get", "pods", "-n", "nstpl-system", "-o",
		"jsonpath={.items[*].metadata.name}")) {
		served += s.kubectl("get", "--raw", "/api/v1/namespaces/nstpl-system/pods/"+pod+":8080/proxy/metrics")
	}
	for _, name := range metrics(s.t) {
		if name != "up" && !strings.HasPrefix(name, "nstpl_") {
			require.Contains(s.t, served, "\n"+name)
		}
	}
	require.Contains(s.t, served, "\nnstpl_namespace_population_seconds_bucket")
	require.Contains(s.t, served, "\nnstpl_policyspace_quota{policyspace=\"payments\"")
}
