package tree

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

type hydrate struct {
	cli.Session
	flat, audit, adopt bool
	output             cli.FormatFlag
}

// NewHydrate returns the command `kubectl nstpl hydrate`.
func NewHydrate(s cli.Session) *cobra.Command {
	h := &hydrate{Session: s}
	cmd := &cobra.Command{
		Use:   "hydrate DIR [--flat] [--audit] [--adopt] [-o yaml|json]",
		Short: "Print the objects that a tree of policies stands for",
		Long: templates.LongDesc(`
			Print the objects that the tree of policies in a folder stands for, so that kubectl or any other tool can
			apply them: its cluster-level policies, a PolicySpace and a NamespaceTemplate for each policyspace, a
			NamespaceTemplate for each namespace that has policies of its own, and the Namespaces. Each has the label
			policy.nstpl.dev/tree with the root's name. The tree must be valid: see "kubectl nstpl vet".

			In the tree's namespaces, Roles, RoleBindings and ResourceQuotas that no template declares are deleted. With
			--audit they are left and reported.

			A Namespace of the tree that exists already is left alone and reported, so that nothing in it is deleted
			by surprise. With --adopt the Namespaces get the annotation policy.nstpl.dev/adopt, and the tree takes
			over those that exist. "kubectl nstpl diff --tree" lists what would be deleted in them. Later runs need
			no --adopt.

			With --flat it prints instead what each namespace ends up with, as plain objects in it: inheritance
			resolved.`),
		Example: templates.Examples(`
			# Bring a cluster to a tree
			kubectl nstpl hydrate foo-corp | kubectl apply -f -

			# First see what would be deleted in its namespaces
			kubectl nstpl hydrate foo-corp --audit | kubectl apply -f -

			# Take over namespaces of the tree that existed before it, once it is known what is deleted in them
			kubectl nstpl diff --tree foo-corp -o table
			kubectl nstpl hydrate foo-corp --adopt | kubectl apply -f -

			# What each namespace ends up with
			kubectl nstpl hydrate foo-corp --flat`),
		DisableFlagsInUseLine: true,
		Args:                  cli.OneArg("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := h.output.Check(cmd); err != nil {
				return err
			}
			switch {
			case h.flat && h.audit:
				return cli.UsageError(cmd,
					fmt.Errorf("--audit says what becomes of other objects, of which --flat says nothing"))
			case h.flat && h.adopt:
				return cli.UsageError(cmd, fmt.Errorf("--adopt annotates Namespaces, which --flat does not print"))
			}
			return h.run(args[0])
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&h.flat, "flat", false, "Print what each namespace ends up with, inheritance resolved.")
	flags.BoolVar(&h.audit, "audit", false, "Have objects that the tree does not declare reported, not deleted.")
	flags.BoolVar(&h.adopt, "adopt", false, "Have the tree take over Namespaces that exist already.")
	h.output.AddTo(cmd, cli.FormatYAML, "Output format", cli.FormatYAML, cli.FormatJSON)
	return cmd
}

func (h *hydrate) run(dir string) error {
	tree, err := h.ValidTree(dir)
	if err != nil {
		return err
	}
	objects, err := h.objects(tree)
	if err != nil {
		return err
	}
	if h.output.Format == cli.FormatYAML {
		return output.YAMLStream(h.Out, objects)
	}
	list := &unstructured.UnstructuredList{
		Object: map[string]any{"apiVersion": "v1", "kind": "List"}, Items: []unstructured.Unstructured{},
	}
	for _, object := range objects {
		list.Items = append(list.Items, *object)
	}
	return output.JSON(h.Out, list)
}

func (h *hydrate) objects(tree *hierarchy.Tree) ([]*unstructured.Unstructured, error) {
	if h.flat {
		return tree.FlatObjects()
	}
	policy := v1alpha1.AuthoritativeDelete
	if h.audit {
		policy = v1alpha1.AuthoritativeReport
	}
	objects, err := tree.Compile(policy)
	if h.adopt {
		hierarchy.Adopt(objects)
	}
	return objects, err
}
