package gitops_test

import (
	"maps"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/gitops"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/render"
)

// compiled returns the objects of a tree with every phase. The Namespace has more metadata.
func compiled(t *testing.T, metadata string) []*unstructured.Unstructured {
	t.Helper()
	const role = "apiGroup: rbac.authorization.k8s.io, kind: ClusterRole"
	files := fstest.MapFS{}
	for path, content := range map[string]string{
		"a-role.yaml": "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: reader}}",
		"everyone.yaml": "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, " +
			"metadata: {name: everyone}, roleRef: {" + role + ", name: reader}}",
		"team/viewers.yaml": "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, " +
			"metadata: {name: viewers}, roleRef: {" + role + ", name: view}}",
		"team/dev/namespace.yaml": "{apiVersion: v1, kind: Namespace, metadata: {name: dev" + metadata + "}}",
	} {
		files[path] = &fstest.MapFile{Data: []byte(content)}
	}
	result, err := hierarchy.Load(files, "corp")
	require.NoError(t, err)
	require.Empty(t, result.Violations)
	objects, err := result.Tree.Compile(v1alpha1.AuthoritativeDelete)
	require.NoError(t, err)
	return objects
}

func TestFiles(t *testing.T) {
	const (
		policy = "argocd.argoproj.io/sync-options: Delete=false,PruneLast=true,ServerSideApply=true "
		keep   = "argocd.argoproj.io/compare-options: IgnoreExtraneous " +
			"argocd.argoproj.io/sync-options: Delete=false,Prune=false,ServerSideApply=true "
		wave    = "argocd.argoproj.io/sync-wave: "
		literal = " kustomize.toolkit.fluxcd.io/substitute: disabled"
	)
	for name, test := range map[string]struct {
		engine gitops.Engine
		want   []string
	}{
		"Argo CD": {gitops.ArgoCD, []string{
			"corp.yaml clusterrole.rbac.authorization.k8s.io/reader " + policy + wave + `"-5"`,
			"corp.yaml clusterrolebinding.rbac.authorization.k8s.io/everyone " + policy + wave + `"-5"`,
			"corp.yaml namespacetemplate.policy.nstpl.dev/team " + policy + wave + `"-4"`,
			"corp.yaml namespacetemplate.policy.nstpl.dev/corp " + policy + wave + `"-3"`,
			"corp.yaml policyspace.policy.nstpl.dev/corp " + policy + wave + `"-2"`,
			"corp.yaml policyspace.policy.nstpl.dev/team " + policy + wave + `"-2"`,
			"corp.yaml namespace/dev " + keep + wave + `"-1" owner: me`,
		}},
		"Flux": {gitops.Flux, []string{
			"policies/corp.yaml clusterrole.rbac.authorization.k8s.io/reader",
			"policies/corp.yaml clusterrolebinding.rbac.authorization.k8s.io/everyone",
			"policies/corp.yaml namespacetemplate.policy.nstpl.dev/team" + literal,
			"policies/corp.yaml namespacetemplate.policy.nstpl.dev/corp" + literal,
			"policies/corp.yaml policyspace.policy.nstpl.dev/corp",
			"policies/corp.yaml policyspace.policy.nstpl.dev/team",
			"namespaces/corp.yaml namespace/dev kustomize.toolkit.fluxcd.io/prune: disabled owner: me",
		}},
		"no engine": {"", []string{
			"corp.yaml clusterrole.rbac.authorization.k8s.io/reader",
			"corp.yaml clusterrolebinding.rbac.authorization.k8s.io/everyone",
			"corp.yaml namespacetemplate.policy.nstpl.dev/team",
			"corp.yaml namespacetemplate.policy.nstpl.dev/corp",
			"corp.yaml policyspace.policy.nstpl.dev/corp",
			"corp.yaml policyspace.policy.nstpl.dev/team",
			"corp.yaml namespace/dev owner: me",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := compiled(t, ", annotations: {owner: me}")
			before := deepCopies(objects)
			files, err := gitops.Files(test.engine, "corp", objects)
			require.NoError(t, err)
			require.Equal(t, test.want, describe(t, files))
			require.Equal(t, before, objects, "the given objects are not changed")
			again, err := gitops.Files(test.engine, "corp", objects)
			require.NoError(t, err)
			require.Equal(t, files, again)
		})
	}
}

// describe returns a line for each object: its file, its ID and its annotations.
func describe(t *testing.T, files []gitops.File) []string {
	t.Helper()
	var lines []string
	for _, file := range files {
		for _, object := range file.Objects {
			line := file.Path + " " + render.IDOf(object).String()
			for _, key := range slices.Sorted(maps.Keys(object.GetAnnotations())) {
				value, err := yaml.Marshal(object.GetAnnotations()[key])
				require.NoError(t, err)
				line += " " + key + ": " + string(value[:len(value)-1])
			}
			lines = append(lines, line)
		}
	}
	return lines
}

func deepCopies(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	var copies []*unstructured.Unstructured
	for _, object := range objects {
		copies = append(copies, object.DeepCopy())
	}
	return copies
}

// An author of a tree cannot make an engine delete, skip or replace an object by metadata.
func TestFilesRejectMetadataOfEngines(t *testing.T) {
	for name, test := range map[string]struct {
		engine   gitops.Engine
		metadata string
		want     string // the key in the error, if there is one
	}{
		"a hook of Argo CD": {
			gitops.ArgoCD, `annotations: {"argocd.argoproj.io/hook": PreSync}`, "argocd.argoproj.io/hook",
		},
		"a hook of Helm": {gitops.ArgoCD, `annotations: {"helm.sh/hook": pre-install}`, "helm.sh/hook"},
		"options of Argo CD": {
			gitops.ArgoCD, `annotations: {"argocd.argoproj.io/sync-options": "Replace=true"}`,
			"argocd.argoproj.io/sync-options",
		},
		"a label of Argo CD's operator": {gitops.ArgoCD, `labels: {"argocd.argoproj.io/managed-by": argocd}`, ""},
		"Argo CD's metadata for Flux":   {gitops.Flux, `annotations: {"argocd.argoproj.io/hook": PreSync}`, ""},
		"an annotation of Flux": {
			gitops.Flux, `annotations: {"kustomize.toolkit.fluxcd.io/prune": enabled}`,
			"kustomize.toolkit.fluxcd.io/prune",
		},
		"a label of Flux": {
			gitops.Flux, `labels: {"kustomize.toolkit.fluxcd.io/force": enabled}`, "kustomize.toolkit.fluxcd.io/force",
		},
		"an annotation of kustomize": {
			gitops.Flux, `annotations: {"config.kubernetes.io/local-config": "true"}`,
			"config.kubernetes.io/local-config",
		},
		"Flux's metadata without an engine": {"", `labels: {"kustomize.toolkit.fluxcd.io/force": enabled}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := gitops.Files(test.engine, "corp", compiled(t, ", "+test.metadata))
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, "namespace/dev has "+test.want+
				", which would change how the object is applied or deleted: remove it from the tree")
		})
	}
}
