package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// spaceIn returns the name of the policyspace that an argument names. It returns "" if the argument is a directory or
// looks like one, such as ./foo-corp.
func spaceIn(argument string) string {
	resource, name, isQualified := strings.Cut(argument, "/")
	if isQualified && cli.PolicySpaceResource().Is(resource) {
		return name
	}
	_, err := os.Stat(argument)
	if isQualified || !errors.Is(err, fs.ErrNotExist) || strings.HasPrefix(argument, ".") {
		return ""
	}
	return argument
}

// completeSpaces completes the argument with the names of policyspaces, and with those of files if none match.
func completeSpaces(s cli.Session) cobra.CompletionFunc {
	complete := s.CompletePolicySpace()
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		names, directive := complete(cmd, args, typed)
		if len(args) == 0 {
			directive = cobra.ShellCompDirectiveDefault
		}
		return names, directive
	}
}

// spaceNode returns the node of a policyspace in the cluster, with its descendants and the path above it.
func (o *tree) spaceNode(ctx context.Context, name string) (*node, error) {
	root, err := o.clusterNode(ctx)
	if err != nil {
		return nil, err
	}
	found, above := root.find(name)
	if found == nil && o.isPartial {
		return nil, fmt.Errorf("policyspace %q is in no label of the namespace, so whether it exists is unknown", name)
	}
	if found == nil {
		return nil, cluster.NoPolicySpace(name, root.spaces())
	}
	found.Path = strings.Join(above, "/")
	return found, nil
}

// find returns the node of a policyspace among the descendants of a node, and the names of the nodes between them.
func (n *node) find(space string) (found *node, above []string) {
	for _, child := range n.Children {
		if child.Kind == spaceKind && child.Name == space {
			return child, nil
		}
		if found, above := child.find(space); found != nil {
			return found, slices.Insert(above, 0, child.Name)
		}
	}
	return nil, nil
}

// spaces returns the names of the policyspaces among the descendants of a node.
func (n *node) spaces() []string {
	var names []string
	for _, child := range n.Children {
		if child.Kind == spaceKind {
			names = append(append(names, child.Name), child.spaces()...)
		}
	}
	return names
}

// belowPath returns a node below a node whose name is the path above it, or the node itself if it has none.
func (n *node) belowPath() *node {
	if n.Path == "" {
		return n
	}
	return &node{Name: n.Path, Kind: spaceKind, Children: []*node{n}}
}
