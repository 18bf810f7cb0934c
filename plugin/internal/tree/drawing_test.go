package tree

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func testTree() *node {
	return &node{
		Name: "foo-corp", Kind: spaceKind, RoleBindings: []binding{{"sre", "foo-corp"}},
		Children: []*node{
			{
				Name: "online", Kind: spaceKind, Quota: map[string]string{"pods": "10", "configmaps": "5"},
				Used: map[string]string{"pods": "3"},
			},
			{
				Name: "shop", Kind: namespaceKind, Roles: []string{"viewer"},
				RoleBindings: []binding{{"own", "shop"}, {"sre", "foo-corp"}},
				Problem:      "not adopted",
			},
		},
	}
}

func TestDraw(t *testing.T) {
	var out bytes.Buffer
	root := testTree()
	root.draw(&out, "")
	require.Equal(t, "foo-corp/", root.title())
	require.Equal(t, `│ - RoleBinding sre
├── online/  quota configmaps=5, pods=3/10
└── shop  (not adopted)
      - Role viewer
      - RoleBinding own
      - RoleBinding sre, inherited from foo-corp
`, out.String())
}

func TestTitleNamesTheCommit(t *testing.T) {
	root := testTree()
	root.Commit = "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d"
	root.Quota = map[string]string{"pods": "10"}
	require.Equal(t, "foo-corp/  commit 1a2b3c4  quota pods=10", root.title())
	root.Commit = "1a"
	require.Equal(t, "foo-corp/  commit 1a  quota pods=10", root.title())
	root.Commit = "sha256:1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f809"
	require.Equal(t, "foo-corp/  artifact sha256:1a2b3c4  quota pods=10", root.title())
}

// Also a policyspace with the name of the kind that the root of the whole cluster has is another node than that root.
func TestNodesOfAGraphHaveDifferentIDs(t *testing.T) {
	root := &node{Name: clusterKind, Kind: clusterKind}
	space, namespace := &node{Name: clusterKind, Kind: spaceKind}, &node{Name: clusterKind, Kind: namespaceKind}
	require.NotEqual(t, root.id(), space.id())
	require.NotEqual(t, root.id(), namespace.id())
	require.NotEqual(t, space.id(), namespace.id())
}

func TestGraphs(t *testing.T) {
	root := &node{
		Name: "a-b", Kind: spaceKind,
		Children: []*node{{Name: "a-b", Kind: namespaceKind, RoleBindings: []binding{{`"x"`, "a-b"}}}},
	}
	for name, test := range map[string]struct {
		graph graph
		want  string
	}{
		"mermaid": {mermaid, "  d_a_b[\"a-b\"]\n  n_a_b[\"a-b<br/>RoleBinding #quot;x#quot;\"]\n  d_a_b --> n_a_b\n"},
		"dot": {
			dot, "  d_a_b [label=\"a-b\"];\n  n_a_b [label=\"a-b\\nRoleBinding \\\"x\\\"\"];\n  d_a_b -> n_a_b;\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			test.graph.draw(&out, root)
			require.Equal(t, test.want, out.String())
		})
	}
}
