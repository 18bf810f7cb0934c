package helm_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chartutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	sigsyaml "sigs.k8s.io/yaml"
)

// values parses the text of a file for helm's --values.
func values(t *testing.T, text string) map[string]any {
	t.Helper()
	parsed := map[string]any{}
	require.NoError(t, sigsyaml.Unmarshal([]byte(text), &parsed))
	return parsed
}

func renderedDeployment(t *testing.T, name, text string) *appsv1.Deployment {
	t.Helper()
	deployment := &appsv1.Deployment{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(
		rendered(t, "v1.36.3", values(t, text))["Deployment nstpl-system/"+name], deployment, true))
	return deployment
}

// Values change the pods of the operator and of nstpl-sync, each its own.
func TestValuesOfPods(t *testing.T) {
	t.Parallel()
	for _, workload := range []string{"operator", "sync"} {
		t.Run(workload, func(t *testing.T) {
			t.Parallel()
			text := `
components: {sync: true, certManager: true}
imagePullSecrets: [{name: registry}]
WORKLOAD:
  replicas: 3
  image: {repository: mirror.example.com/nstpl, pullPolicy: Always}
  extraArgs: [--exclude-namespaces=kube-flannel, "--text={{ a }}"]
  resources: {limits: {memory: 1Gi}}
  nodeSelector: {disk: ssd}
  tolerations: [{key: dedicated, operator: Exists}]
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchExpressions: [{key: disk, operator: Exists}]}]}}}
  priorityClassName: system-cluster-critical
`
			changed := renderedDeployment(t, "nstpl-"+workload, strings.ReplaceAll(text, "WORKLOAD", workload))
			pod := changed.Spec.Template.Spec
			container := pod.Containers[0]
			require.EqualValues(t, 3, *changed.Spec.Replicas)
			require.Equal(t, "mirror.example.com/nstpl:v1.2.3@"+digest, container.Image)
			require.Equal(t, corev1.PullAlways, container.ImagePullPolicy)
			require.Equal(t, []string{"--exclude-namespaces=kube-flannel", "--text={{ a }}"},
				container.Args[len(container.Args)-2:])
			require.Contains(t, container.Args, "--leader-elect")
			require.Equal(t, "1Gi", container.Resources.Limits.Memory().String())
			require.NotEmpty(t, container.Resources.Requests)
			require.Equal(t, map[string]string{"disk": "ssd"}, pod.NodeSelector)
			require.Equal(t, []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}, pod.Tolerations)
			require.NotNil(t, pod.Affinity.NodeAffinity)
			require.Equal(t, workload == "operator", pod.Affinity.PodAntiAffinity != nil)
			require.Equal(t, "system-cluster-critical", pod.PriorityClassName)
			require.Equal(t, []corev1.LocalObjectReference{{Name: "registry"}}, pod.ImagePullSecrets)
			other := map[string]string{"operator": "nstpl-sync", "sync": "nstpl-operator"}[workload]
			unchanged := renderedDeployment(t, other, strings.ReplaceAll(text, "WORKLOAD", workload))
			require.Empty(t, unchanged.Spec.Template.Spec.NodeSelector)
		})
	}
}

// The image of the release is used by its digest. Another tag or another digest replaces both.
func TestValuesOfImages(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{}":            "registry.example.com/nstpl-operator:v1.2.3@" + digest,
		"{tag: latest}": "registry.example.com/nstpl-operator:latest",
		"{repository: a/b, tag: x, digest: sha256:b}": "a/b:x@sha256:b",
		"{digest: sha256:b}":                          "registry.example.com/nstpl-operator@sha256:b",
	} {
		deployment := renderedDeployment(t, "nstpl-operator", "operator: {image: "+text+"}")
		require.Equal(t, want, deployment.Spec.Template.Spec.Containers[0].Image)
	}
}

func TestLabelsOfMonitors(t *testing.T) {
	t.Parallel()
	objects := rendered(t, "v1.36.3", values(t, "components: {prometheus: true}\nprometheus: {labels: {release: a}}"))
	labeled := 0
	for key, object := range objects {
		labels, _, err := unstructured.NestedStringMap(object, "metadata", "labels")
		require.NoError(t, err)
		if labels["release"] == "a" {
			labeled++
			require.Regexp(t, "^(ServiceMonitor|PrometheusRule) ", key)
		}
	}
	require.Equal(t, 3, labeled)
}

// Helm rejects what the chart does not know or cannot do, and says why.
func TestMistakesAreReported(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"replicas: 2":                          "replicas",
		"operator: {replicas: two}":            "replicas",
		"operator: {image: {pullPolicy: Now}}": "pullPolicy",
		"components: {cert-manager: true}":     "cert-manager",
		"operator: {extraArgs: [1]}":           "extraArgs",
	} {
		_, err := renderer("v1.36.3").Run(newChart(t), values(t, text))
		require.ErrorContains(t, err, want, text)
		require.ErrorContains(t, err, "values don't meet the specifications of the schema", text)
	}
	elsewhere := renderer("v1.36.3")
	elsewhere.Namespace = "default"
	_, err := elsewhere.Run(newChart(t), nil)
	require.ErrorContains(t, err, `nstpl only runs in the namespace nstpl-system, not in "default": add --namespace nstpl-system`)
	_, err = renderer("v1.33.0").Run(newChart(t), nil)
	require.ErrorContains(t, err, "incompatible with Kubernetes v1.33.0")
	// A chart that depends on nstpl passes global values.
	_, err = renderer("v1.36.3").Run(newChart(t), values(t, "global: {region: north}"))
	require.NoError(t, err)
}

// Helm keeps what an uninstallation must not delete with the release: definitions, with all objects of users, and data.
func TestKeptObjects(t *testing.T) {
	t.Parallel()
	objects := rendered(t, "v1.36.3", values(t, "components: {grafana: true, securityContextConstraints: true}"))
	var definitions []string
	for key := range objects {
		if strings.HasPrefix(key, "CustomResourceDefinition ") || strings.HasPrefix(key, "SecurityContextConstraints ") {
			definitions = append(definitions, key)
		}
	}
	require.Len(t, definitions, 8+7)
	require.ElementsMatch(t, append(definitions,
		"Namespace /nstpl-system", "Namespace /nstpl-trial", "ConfigMap nstpl-system/nstpl-allocations",
		"ConfigMap nstpl-system/nstpl-auto-opt-out", "ConfigMap nstpl-system/nstpl-selectors"), withoutKeep(objects))
}

// Every value is in values.yaml, in the schema with its description, and in the README.
func TestValuesAreDocumented(t *testing.T) {
	t.Parallel()
	loaded := newChart(t)
	schema := map[string]any{}
	require.NoError(t, json.Unmarshal(loaded.Schema, &schema))
	readme := ""
	for _, file := range loaded.Files {
		if file.Name == "README.md" {
			readme = string(file.Data)
		}
	}
	documented := 0
	var check func(path string, schema, values map[string]any)
	check = func(path string, schema, values map[string]any) {
		for name, value := range values {
			property := schema["properties"].(map[string]any)[name].(map[string]any)
			if property["properties"] != nil {
				check(path+name+".", property, value.(map[string]any))
				continue
			}
			documented++
			require.NotEmpty(t, property["description"], path+name)
			require.Contains(t, readme, "| `"+path+name+"` |")
		}
	}
	check("", schema, loaded.Values)
	require.Equal(t, documented, strings.Count(readme, "\n| `"))
}

// helm lint has nothing to say but that the chart has no icon.
func TestLint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, chartutil.SaveDir(newChart(t), dir))
	lint := action.NewLint()
	lint.Namespace = "nstpl-system"
	result := lint.Run([]string{filepath.Join(dir, "nstpl")}, nil)
	require.Empty(t, result.Errors)
	for _, message := range result.Messages {
		require.ErrorContains(t, message.Err, "icon is recommended")
	}
	require.FileExists(t, filepath.Join(dir, "nstpl", "README.md"))
	_, err := os.Stat(filepath.Join(dir, "nstpl", "LICENSE"))
	require.NoError(t, err)
}
