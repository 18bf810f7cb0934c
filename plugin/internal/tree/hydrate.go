package tree

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/gitops"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

type hydrate struct {
	cli.Session
	flat, audit, adopt bool
	engine, directory  string
	output             cli.FormatFlag
}

// NewHydrate returns the command `kubectl nstpl hydrate`.
func NewHydrate(s cli.Session) *cobra.Command {
	h := &hydrate{Session: s}
	cmd := &cobra.Command{
		Use: "hydrate DIR [--flat] [--audit] [--adopt] [--for argocd|flux] " +
			"[--output-directory DIR | -o yaml|json|name]",
		Short: "Print the objects that a tree of policies is compiled to",
		Long: templates.LongDesc(`
			Print the objects that a tree of policies in a directory is compiled to, so that you can apply them with
			kubectl or another tool: the cluster-level policies of the tree, a PolicySpace and a NamespaceTemplate for
			each policyspace, a NamespaceTemplate for each namespace with policies of its own, and the Namespaces. All
			objects have the label policy.nstpl.dev/tree with the name of the root. The tree must be valid: see
			"kubectl nstpl vet".

			In the namespaces of the tree, the operator deletes Roles, RoleBindings and ResourceQuotas that no
			template declares. With --audit, it keeps and reports them.

			A namespace that existed before the tree is reported and left alone, so that nothing in it is deleted
			unexpectedly. With --adopt, the Namespaces get the annotation policy.nstpl.dev/adopt, and the tree adopts
			those that exist. "kubectl nstpl diff --tree" lists the objects that would be deleted in them. You need
			--adopt only once.

			With --for, the objects also have the annotations by which Argo CD or Flux applies the policies before the
			Namespaces, and never deletes a Namespace. --output-directory writes files to commit, instead of printing
			the objects: for Argo CD a file with the name of the root, and for Flux one in the directory "policies" and
			one in "namespaces", each for a Kustomization of its own. The same tree results in the same files.

			With --flat, the command instead prints the policies of each namespace as plain objects, including the
			inherited policies.`),
		Example: templates.Examples(`
			# Apply a tree to a cluster
			kubectl nstpl hydrate foo-corp | kubectl apply -f -

			# Apply a tree, and report undeclared objects in its namespaces instead of deleting them
			kubectl nstpl hydrate foo-corp --audit | kubectl apply -f -

			# Adopt existing namespaces, after listing the objects that would be deleted in them
			kubectl nstpl diff --tree foo-corp -o table
			kubectl nstpl hydrate foo-corp --adopt | kubectl apply -f -

			# Write the files that Argo CD applies
			kubectl nstpl hydrate foo-corp --for argocd --output-directory argocd

			# Write the files that Flux applies
			kubectl nstpl hydrate foo-corp --for flux --output-directory flux

			# Print all policies of each namespace as plain objects
			kubectl nstpl hydrate foo-corp --flat`),
		Args: cli.OneArg("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := h.checkFlags(); err != nil {
				return cli.UsageError(cmd, err)
			}
			return h.run(args[0])
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&h.flat, "flat", false, "Print the own and inherited policies of each namespace as plain objects.")
	flags.BoolVar(&h.audit, "audit", false, "Report objects that the tree does not declare, instead of deleting them.")
	flags.BoolVar(&h.adopt, "adopt", false, "Adopt Namespaces that existed before the tree.")
	flags.StringVar(&h.engine, "for", "",
		"The engine that applies the objects from Git. One of: ("+strings.Join(gitops.Names(), ", ")+").")
	flags.StringVar(&h.directory, "output-directory", "",
		"Write the objects to files in this directory, instead of printing them.")
	h.output.AddTo(cmd, cli.FormatYAML, "Output format", cli.FormatYAML, cli.FormatJSON, cli.FormatName)
	cli.CompleteValues(cmd, "for", gitops.Names()...)
	return cmd
}

// checkFlags returns an error if flags contradict each other.
func (h *hydrate) checkFlags() error {
	switch {
	case h.flat && h.audit:
		return errors.New("--flat and --audit cannot be used together")
	case h.flat && h.adopt:
		return errors.New("--flat and --adopt cannot be used together")
	case h.engine != "" && !slices.Contains(gitops.Names(), h.engine):
		return fmt.Errorf("invalid --for %q: must be %s", h.engine, strings.Join(gitops.Names(), " or "))
	case h.flat && h.engine != "":
		return errors.New("--flat and --for cannot be used together: with --flat, no Namespaces are printed")
	case h.engine == string(gitops.Flux) && h.directory == "":
		return errors.New("--for flux needs --output-directory, since Flux applies policies and Namespaces from two " +
			"directories")
	case h.directory != "" && h.output.Format != cli.FormatYAML:
		return errors.New("--output-directory writes YAML: remove --output")
	}
	return nil
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
	files, err := gitops.Files(gitops.Engine(h.engine), tree.Root.Name, objects)
	if err != nil {
		return err
	}
	if h.directory != "" {
		return h.write(files)
	}
	objects = files[0].Objects
	switch h.output.Format {
	case cli.FormatYAML:
		return output.YAMLStream(h.Out, objects)
	case cli.FormatName:
		for _, object := range objects {
			output.Line(h.Out, "%s", render.IDOf(object))
		}
		return nil
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
