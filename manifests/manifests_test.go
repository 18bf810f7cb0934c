package manifests_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/manifests"
)

// Objects are those that kustomize builds, except for the definitions, which package crd has.
func TestObjectsAreThoseThatKustomizeBuilds(t *testing.T) {
	t.Parallel()
	objects, err := manifests.Objects()
	require.NoError(t, err)
	got := make([]string, 0, len(objects))
	for _, object := range objects {
		got = append(got, object.GetAPIVersion()+" "+object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName())
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), ".")
	require.NoError(t, err)
	want := make([]string, 0, built.Size())
	for _, object := range built.Resources() {
		if object.GetKind() == "FlowSchema" {
			require.NoError(t, object.SetNamespace("")) // kustomize does not know that the kind is cluster-scoped
		}
		if object.GetKind() != "CustomResourceDefinition" {
			want = append(want, object.GetApiVersion()+" "+object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName())
		}
	}
	require.ElementsMatch(t, want, got)
}

// What nstpl-sync may do is in SECURITY.md, rule by rule.
func TestPermissionsOfSyncAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../SECURITY.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(page), "\n| resources | where | verbs |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")

	permissions, err := os.ReadFile("components/sync/rbac.yaml")
	require.NoError(t, err)
	var rows []string
	for document := range strings.SplitSeq(string(permissions), "\n---\n") {
		role := &rbacv1.Role{} // ClusterRoles have the same fields
		require.NoError(t, yaml.Unmarshal([]byte(document), role))
		where := "the cluster"
		if role.Namespace != "" {
			where = "`" + role.Namespace + "`"
		}
		for _, rule := range role.Rules {
			resources := strings.Join(rule.Resources, ", ")
			for _, name := range rule.ResourceNames {
				resources += " `" + name + "`"
			}
			rows = append(rows, fmt.Sprintf("| %s | %s | %s |", resources, where, strings.Join(rule.Verbs, ", ")))
		}
	}
	require.Equal(t, strings.Join(rows, "\n"), table)
}
