package vet

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/util/templates"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/source"
)

// exitViolations is the exit code of vet where it found violations. Where it could not check, that is cli.ExitFailed.
const exitViolations = 1

type vet struct {
	cli.Session
	files  []string
	server bool
	format string
}

// violation is what is wrong with an object in a file.
type violation struct {
	File    string `json:"file"`
	Object  string `json:"object,omitempty"`
	Message string `json:"message"`
}

func New(s cli.Session) *cobra.Command {
	v := &vet{Session: s}
	cmd := &cobra.Command{
		Use:   "vet DIR | -f FILE... [--server] [-o json|sarif]",
		Short: "Check templates, or a tree of policies, before they are applied",
		Long: templates.LongDesc(`
			Check the tree of policies in a folder, whose name is that of its root policyspace, or the NamespaceTemplates and
			NamespaceInitializationConfigurations in files, and say everything that is wrong with them. Violations are on
			standard output, a line for each.

			Without --server no cluster is asked. With it the API server answers, by a dry run that changes nothing, whether
			it would take the objects from you: whether you could create yourself what a template creates, above all.

			Here --server is not the address of the API server, which -s or --api-server gives.

			Exit status:
			 0
			Nothing is wrong.
			 1
			Something is wrong.
			 2
			The check could not be made.`),
		Example: templates.Examples(`
			# Check a tree of policies
			kubectl nstpl vet foo-corp

			# Check a template without a cluster
			kubectl nstpl vet -f template.yaml

			# Check all files of a folder, as a pipeline would
			kubectl nstpl vet -f templates/ -o json

			# Would the cluster take it from me, or from somebody else?
			kubectl nstpl vet -f template.yaml --server
			kubectl nstpl vet -f template.yaml --server --as jane@example.com`),
		DisableFlagsInUseLine: true,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 1 || len(args) == 1 && (len(v.files) > 0 || v.server):
				return cli.Failed(cli.UsageError(cmd, errors.New("give one folder with a tree, or files with -f")))
			case len(args) == 0 && len(v.files) == 0:
				return cli.Failed(cli.UsageError(cmd, errors.New("give a folder with a tree, or a file or folder with -f")))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case v.format == "" || v.format == cli.FormatJSON:
			case v.format != sarifFormat:
				return cli.Failed(cli.UsageError(cmd, fmt.Errorf("--output is %q: it can be %s or, for a tree, %s", v.format, cli.FormatJSON, sarifFormat)))
			case len(args) == 0:
				return cli.Failed(cli.UsageError(cmd, fmt.Errorf("--output %s is for trees", sarifFormat)))
			}
			var found bool
			var err error
			if len(args) == 1 {
				found, err = v.tree(args[0])
			} else {
				found, err = v.run(cmd.Context())
			}
			switch {
			case err != nil:
				return cli.Failed(err)
			case found:
				return &cli.Exit{Code: exitViolations}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return cli.Failed(cli.UsageError(cmd, err)) })
	flags := cmd.Flags()
	flags.StringArrayVarP(&v.files, "filename", "f", nil, "A file or folder with templates, or - for standard input. Symbolic links are not followed.")
	flags.BoolVar(&v.server, "server", false, "Ask the API server too, by a dry run, as whoever you are or --as says.")
	flags.StringVarP(s.Config.APIServer, "api-server", "s", "", "The address and port of the Kubernetes API server.")
	flags.StringVarP(&v.format, "output", "o", "", "Output format, in place of lines. One of: (json, sarif).")
	cli.CompleteValues(cmd, "output", cli.FormatJSON, sarifFormat)
	return cmd
}

// run tells whether anything is wrong.
func (v *vet) run(ctx context.Context) (found bool, err error) {
	files, err := source.ReadAll(v.files, v.In)
	if err != nil {
		return false, err
	}
	if len(files.Documents) == 0 {
		return false, fmt.Errorf("no NamespaceTemplate in %q", v.files)
	}
	var c *cluster.Cluster
	if v.server {
		if c, err = v.Connect(); err != nil {
			return false, err
		}
	}
	violations, seen := []violation{}, map[string]bool{}
	for _, document := range files.Documents {
		object := nameOf(document)
		problems := v.problems(ctx, document)
		if object != "" && seen[object] {
			problems = append(problems, errors.New("it is in the files twice"))
		}
		seen[object] = true
		if v.server && len(problems) == 0 {
			if problems, err = tryOut(ctx, c, document); err != nil {
				return false, err
			}
		}
		for _, problem := range problems {
			violations = append(violations, violation{document.File, object, problem.Error()})
		}
	}
	return len(violations) > 0, v.write(len(files.Documents), violations)
}

// problems are those that need no cluster.
func (v *vet) problems(ctx context.Context, document source.Document) []error {
	if document.Err != nil {
		return []error{document.Err}
	}
	if document.Template == nil {
		return nil
	}
	for _, warning := range render.Warnings(document.Template) {
		if !v.server { // which warns itself
			v.Note("Warning: %s", warning)
		}
	}
	return render.Vet(ctx, document.Template)
}

func nameOf(document source.Document) string {
	switch {
	case document.Template != nil:
		return output.Object(schema.GroupKind{Kind: "NamespaceTemplate"}, document.Template.Name)
	case document.Initialization != nil:
		return output.Object(schema.GroupKind{Kind: "NamespaceInitializationConfiguration"}, document.Initialization.Name)
	}
	return ""
}

// tryOut returns why the API server would not take an object. The error says that it did not answer that.
func tryOut(ctx context.Context, c *cluster.Cluster, document source.Document) ([]error, error) {
	var resource schema.GroupVersionResource
	var name string
	if document.Template != nil {
		resource, name = v1alpha1.NamespaceTemplates, document.Template.Name
	} else {
		resource, name = v1alpha1.NamespaceInitializationConfigurations, document.Initialization.Name
	}
	data, err := yaml.YAMLToJSON(document.Data)
	if err != nil {
		return nil, err
	}
	force := true
	_, err = c.Dynamic.Resource(resource).Patch(ctx, name, types.ApplyPatchType, render.EscapeJSON(data), metav1.PatchOptions{
		DryRun: []string{metav1.DryRunAll}, Force: &force, FieldManager: cli.FieldManager, FieldValidation: metav1.FieldValidationStrict,
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, cluster.NotInstalledError{}
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return []error{err}, nil
	}
	return nil, err
}

func (v *vet) write(documents int, violations []violation) error {
	if v.format == cli.FormatJSON {
		if err := output.JSON(v.Out, violations); err != nil {
			return err
		}
	} else {
		for _, one := range violations {
			where := one.File + ": "
			if one.Object != "" {
				where += one.Object + ": "
			}
			for line := range strings.SplitSeq(one.Message, "\n") {
				output.Line(v.Out, "%s%s", where, line)
			}
		}
	}
	if len(violations) == 0 {
		v.Note("%s, no violations", output.Count(documents, "object"))
		return nil
	}
	v.Note("%s, %s", output.Count(documents, "object"), output.Count(len(violations), "violation"))
	return nil
}
