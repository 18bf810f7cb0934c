package hierarchy_test

import (
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestFlattenAddsInheritedRoleBindings(t *testing.T) {
	t.Parallel()
	tree := load(t, fooCorp()).Tree
	got := map[string][]string{}
	var order []string
	for _, flat := range tree.Flatten() {
		order = append(order, flat.Namespace.Name)
		for _, binding := range flat.RoleBindings {
			require.Equal(t, flat.Name, binding.Namespace)
			require.Equal(t, "view", binding.RoleRef.Name)
			got[flat.Name] = append(got[flat.Name], binding.Name+" of "+binding.From.Path)
		}
		for _, role := range flat.Roles {
			require.Equal(t, flat.Name, role.Namespace)
			got[flat.Name] = append(got[flat.Name], role.Name)
		}
		if flat.Quota != nil {
			got[flat.Name] = append(got[flat.Name], fmt.Sprint(flat.Quota.Namespace, "/", flat.Quota.Name))
		}
	}
	const backend, viewers = "shipping-app-backend.pod-creators of foo-corp/online/shipping-app-backend",
		"foo-corp.viewers of foo-corp"
	require.Equal(t, []string{"audit", "shipping-dev", "shipping-prod", "shipping-staging"}, order)
	require.Equal(t, map[string][]string{
		"audit": {viewers},
		"shipping-dev": {
			viewers, backend, "shipping-dev.job-creators of foo-corp/online/shipping-app-backend/shipping-dev",
			"job-creator", "shipping-dev/quota",
		},
		"shipping-prod":    {viewers, backend},
		"shipping-staging": {viewers, backend},
	}, got)
	// Flatten does not change the tree.
	require.Equal(t, "viewers", tree.Root.RoleBindings[0].Name)
}

func TestFlattenKeepsRoleBindingsOfTheSameNameApart(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{}
	at := ""
	for i := range 14 {
		tree[at+"b.yaml"] = &fstest.MapFile{Data: []byte(binding("same"))}
		at += fmt.Sprintf("level-%d/", i)
	}
	tree[at+"b.yaml"] = &fstest.MapFile{Data: []byte(binding("same"))}
	tree[at+"ns.yaml"] = &fstest.MapFile{Data: []byte(namespace("level-13"))}
	result := load(t, tree)
	require.Empty(t, result.Violations)
	flat := result.Tree.Flatten()
	require.Len(t, flat, 1)
	require.Len(t, flat[0].RoleBindings, 15)
	names := map[string]bool{}
	for _, binding := range flat[0].RoleBindings {
		names[binding.Name] = true
	}
	require.Len(t, names, 15)
	require.True(t, names["foo-corp.same"] && names["level-13.same"])
}
