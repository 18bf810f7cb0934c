package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// The types have the fields of Argo CD and Flux that docs/argocd.md and docs/flux.md use, as their references document
// them: operator-manual/application.yaml and project.yaml of Argo CD, and the specifications of GitRepositories and
// Kustomizations in docs/spec/v1 of Flux's source-controller and kustomize-controller.
type (
	metadata struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	application struct {
		metadata `json:",inline"`
		Spec     struct {
			Project string `json:"project"`
			Source  struct {
				RepoURL        string `json:"repoURL"`
				TargetRevision string `json:"targetRevision"`
				Path           string `json:"path"`
			} `json:"source"`
			Destination struct {
				Server string `json:"server"`
			} `json:"destination"`
			SyncPolicy struct {
				Automated struct {
					Prune    bool `json:"prune"`
					SelfHeal bool `json:"selfHeal"`
				} `json:"automated"`
				Retry struct {
					Limit int `json:"limit"`
				} `json:"retry"`
			} `json:"syncPolicy"`
		} `json:"spec"`
	}
	project struct {
		metadata `json:",inline"`
		Spec     struct {
			SourceRepos  []string `json:"sourceRepos"`
			Destinations []struct {
				Server    string `json:"server"`
				Namespace string `json:"namespace"`
			} `json:"destinations"`
			ClusterResourceWhitelist []struct {
				Group string `json:"group"`
				Kind  string `json:"kind"`
			} `json:"clusterResourceWhitelist"`
		} `json:"spec"`
	}
	gitRepository struct {
		metadata `json:",inline"`
		Spec     struct {
			Interval string `json:"interval"`
			Ref      struct {
				Branch string `json:"branch"`
			} `json:"ref"`
			SecretRef struct {
				Name string `json:"name"`
			} `json:"secretRef"`
			URL string `json:"url"`
		} `json:"spec"`
	}
	kustomization struct {
		metadata `json:",inline"`
		Spec     struct {
			DeletionPolicy string `json:"deletionPolicy"`
			DependsOn      []struct {
				Name string `json:"name"`
			} `json:"dependsOn"`
			HealthCheckExprs []healthCheck `json:"healthCheckExprs"`
			Interval         string        `json:"interval"`
			Path             string        `json:"path"`
			Prune            bool          `json:"prune"`
			RetryInterval    string        `json:"retryInterval"`
			SourceRef        struct {
				Kind string `json:"kind"`
				Name string `json:"name"`
			} `json:"sourceRef"`
			Timeout string `json:"timeout"`
			Wait    bool   `json:"wait"`
		} `json:"spec"`
	}
	healthCheck struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Current    string `json:"current"`
		Failed     string `json:"failed"`
	}
)

// The Application and its project have only fields that Argo CD documents, and allow the kinds that hydrate writes.
func TestArgoCDManifests(t *testing.T) {
	t.Parallel()
	manual := filepath.Join("..", "..", "docs", "argocd.md")
	var app application
	require.NoError(t, yaml.UnmarshalStrict([]byte(yamlBlock(t, manual, "application.yaml")), &app))
	require.Equal(t, "argoproj.io/v1alpha1 Application", app.APIVersion+" "+app.Kind)
	require.True(t, app.Spec.SyncPolicy.Automated.Prune)

	var allowed project
	require.NoError(t, yaml.UnmarshalStrict([]byte(yamlBlock(t, manual, "project.yaml")), &allowed))
	require.Equal(t, app.Spec.Project, allowed.Metadata.Name)
	require.Equal(t, app.Metadata.Namespace, allowed.Metadata.Namespace)
	require.Contains(t, allowed.Spec.SourceRepos, app.Spec.Source.RepoURL)
	require.Equal(t, app.Spec.Destination.Server, allowed.Spec.Destinations[0].Server)
	for _, document := range documentsOf(t, filepath.Join("..", "..", "manifests", "gitops", app.Spec.Source.Path)) {
		var object metadata
		require.NoError(t, yaml.Unmarshal([]byte(document), &object))
		group, _, hasGroup := strings.Cut(object.APIVersion, "/")
		if !hasGroup {
			group = ""
		}
		isAllowed := false
		for _, kind := range allowed.Spec.ClusterResourceWhitelist {
			isAllowed = isAllowed || kind.Group == group && (kind.Kind == "*" || kind.Kind == object.Kind)
		}
		require.True(t, isAllowed, "%s in group %q", object.Kind, group)
	}
}

// documentsOf returns the YAML documents in the files of a directory.
func documentsOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files, dir)
	var all []string
	for _, file := range files {
		all = append(all, strings.Split(read(t, file), "\n---\n")...)
	}
	return all
}

// The Kustomizations have only fields that Flux documents, apply the files of hydrate, the Namespaces last, and delete
// nothing when they are deleted themselves.
func TestFluxManifests(t *testing.T) {
	t.Parallel()
	block := yamlBlock(t, filepath.Join("..", "..", "docs", "flux.md"), "clusters/production/policies.yaml")
	documents := strings.Split(block, "\n---\n")
	require.Len(t, documents, 3)
	var source gitRepository
	require.NoError(t, yaml.UnmarshalStrict([]byte(documents[0]), &source))
	require.Equal(t, "source.toolkit.fluxcd.io/v1 GitRepository", source.APIVersion+" "+source.Kind)
	var stages [2]kustomization
	for i, directory := range []string{"policies", "namespaces"} {
		stage := &stages[i]
		require.NoError(t, yaml.UnmarshalStrict([]byte(documents[i+1]), stage))
		require.Equal(t, "kustomize.toolkit.fluxcd.io/v1 Kustomization", stage.APIVersion+" "+stage.Kind)
		require.Equal(t, "GitRepository "+source.Metadata.Name, stage.Spec.SourceRef.Kind+" "+stage.Spec.SourceRef.Name)
		require.Equal(t, source.Metadata.Namespace, stage.Metadata.Namespace)
		require.Equal(t, "./flux/"+directory, stage.Spec.Path)
		documentsOf(t, filepath.Join("..", "..", "manifests", "gitops", stage.Spec.Path))
		require.True(t, stage.Spec.Wait)
		require.Equal(t, "Orphan", stage.Spec.DeletionPolicy)
	}
	require.Empty(t, stages[0].Spec.DependsOn)
	require.Equal(t, stages[0].Metadata.Name, stages[1].Spec.DependsOn[0].Name)
	require.Len(t, stages[0].Spec.HealthCheckExprs, 1)
	expectHealth(t, stages[0].Spec.HealthCheckExprs[0])
}

// expectHealth evaluates a health check as Flux does: failed before current, and if neither is true, Flux waits.
func expectHealth(t *testing.T, check healthCheck) {
	t.Helper()
	require.Equal(t, "policy.nstpl.dev/v1alpha1 NamespaceTemplate", check.APIVersion+" "+check.Kind)
	condition := func(kind, status string) map[string]any { return map[string]any{"type": kind, "status": status} }
	for want, status := range map[string]map[string]any{
		"current": {
			"observedGeneration": 2, "conditions": []any{condition("Accepted", "True"), condition("Ready", "False")},
		},
		"failed":  {"observedGeneration": 2, "conditions": []any{condition("Accepted", "False")}},
		"neither": {"observedGeneration": 1, "conditions": []any{condition("Accepted", "True")}},
	} {
		object := map[string]any{"metadata": map[string]any{"generation": 2}, "status": status}
		got := "neither"
		for _, outcome := range [][2]string{{"current", check.Current}, {"failed", check.Failed}} {
			if evaluate(t, outcome[1], object) {
				got = outcome[0]
			}
		}
		require.Equal(t, want, got)
	}
}

// evaluate returns the value of an expression of CEL, whose variables are the fields of an object.
func evaluate(t *testing.T, expression string, object map[string]any) bool {
	t.Helper()
	env, err := cel.NewEnv(cel.Variable("metadata", cel.DynType), cel.Variable("status", cel.DynType))
	require.NoError(t, err)
	ast, issues := env.Compile(expression)
	require.NoError(t, issues.Err())
	program, err := env.Program(ast)
	require.NoError(t, err)
	value, _, err := program.Eval(object)
	require.NoError(t, err)
	return value.Value() == true
}

// What the pages say about annotations is what hydrate writes into the samples.
func TestGitOpsPagesNameTheAnnotations(t *testing.T) {
	t.Parallel()
	for page, samples := range map[string][]string{
		"argocd.md": {"argocd"}, "flux.md": {"flux/policies", "flux/namespaces"},
	} {
		text := read(t, filepath.Join("..", "..", "docs", page))
		for _, sample := range samples {
			for _, document := range documentsOf(t, filepath.Join("..", "..", "manifests", "gitops", sample)) {
				keys := regexp.MustCompile(
					`(?m)^    (?:argocd\.argoproj\.io|kustomize\.toolkit\.fluxcd\.io)/([a-z-]+):`)
				for _, match := range keys.FindAllStringSubmatch(document, -1) {
					require.Contains(t, text, match[1])
				}
			}
		}
	}
}
