// Package vet holds the command vet, which checks files with objects, and trees of policies, before they are applied.
//
// The command uses the rules of the operator: package schema checks fields, package render templates, and package
// hierarchy trees. With --server, it also sends dry runs to the API server. Whatever is checked, the result has the
// same type, and is printed as lines, as JSON or as SARIF.
package vet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/engine/schema"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/source"
)

// exitViolations is the exit code if there are violations. If the command failed, the exit code is cli.ExitFailed.
const exitViolations = 1

type vet struct {
	cli.Session
	files   source.Filenames
	schemas []string
	// kubernetes is the version of Kubernetes whose schemas are used.
	kubernetes string
	server     bool
	output     cli.FormatFlag
}

// New returns the command `kubectl nstpl vet`.
func New(s cli.Session) *cobra.Command {
	v := &vet{Session: s}
	cmd := &cobra.Command{
		Use:   "vet DIR | -f FILE... [-R] | -k DIR [--schema FILE...] [--kubernetes-version VERSION] [--server] [-o json|sarif]",
		Short: "Check templates or a tree of policies before you apply them",
		Long: templates.LongDesc(`
			Check a tree of policies in a directory, or objects in files: NamespaceTemplates, PolicySpaces,
			ProtectedAttributes, SecurityContextConstraints and all other kinds. The root policyspace of a tree has the
			name of the directory. Standard output has one line for each violation, with the file, the line, and the id
			of the rule. Standard error has warnings, what was not checked, and a summary.

			Without --server, the command needs no cluster. It knows the fields of the kinds of nstpl, and of Kubernetes
			in the version of --kubernetes-version, by default the newest that it knows. For a later version, fields and
			values that it does not know are not checked. --schema adds the fields of CustomResourceDefinitions. With
			--server, it also sends dry runs to the API server, which checks above all whether you may create the
			objects that a template declares. The API server tries each object alone: a template that needs a
			ClusterProtectedAttribute or a right of the operator from the same files is not checked until these are
			applied.

			Unlike in other commands, --server does not set the address of the API server: use -s or --api-server.

			Exit status:
			 0
			No violations were found.
			 1
			Violations were found.
			 2
			The command failed.`),
		Example: templates.Examples(`
			# Check a tree of policies
			kubectl nstpl vet foo-corp

			# Check a template, without a cluster
			kubectl nstpl vet -f template.yaml

			# Check all files in a directory and print SARIF, as for code scanning
			kubectl nstpl vet -f templates/ -o sarif

			# Check the custom resources in a template by their definitions
			kubectl nstpl vet -f template.yaml --schema crds/

			# Check whether the API server accepts a template from you, or from jane
			kubectl nstpl vet -f template.yaml --server
			kubectl nstpl vet -f template.yaml --server --as jane@example.com`),
		Args: func(cmd *cobra.Command, args []string) error {
			filesErr := v.files.Check()
			switch {
			case filesErr != nil:
				return cli.Failed(cli.UsageError(cmd, filesErr))
			case schema.CheckVersion(v.kubernetes) != nil:
				return cli.Failed(cli.UsageError(cmd, fmt.Errorf("invalid --kubernetes-version: %w",
					schema.CheckVersion(v.kubernetes))))
			case len(args) == 1 && v.files.IsEmpty() && (len(v.schemas) > 0 || v.server):
				return cli.Failed(cli.UsageError(cmd, errors.New("--server and --schema check files: specify them with -f, "+
					"or leave both flags out to check the tree in DIR")))
			case len(args) > 1 || len(args) == 1 && !v.files.IsEmpty():
				return cli.Failed(cli.UsageError(cmd,
					errors.New("specify either one DIR with a tree, or files with -f")))
			case len(args) == 0 && v.files.IsEmpty():
				return cli.Failed(cli.UsageError(cmd,
					errors.New("specify a DIR with a tree, or files with -f")))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			valid, err := v.run(cmd.Context(), args)
			switch {
			case err != nil:
				return cli.Failed(err)
			case !valid:
				return &cli.Exit{Code: exitViolations}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return cli.Failed(cli.UsageError(cmd, err)) })
	flags := cmd.Flags()
	v.files.AddFlags(cmd, "objects")
	flags.StringArrayVar(&v.schemas, "schema", nil,
		"A file or directory with CustomResourceDefinitions, by which custom resources are checked. Can be repeated.")
	flags.StringVar(&v.kubernetes, "kubernetes-version", schema.Newest(),
		"The version of Kubernetes whose fields and values are allowed in files: "+
			strings.Join(schema.Versions(), ", ")+", or a later one, whose new fields are not checked.")
	cli.CompleteValues(cmd, "kubernetes-version", schema.Versions()...)
	flags.BoolVar(&v.server, "server", false, "Also send a dry run to the API server, as you or the user of --as.")
	flags.StringVarP(s.Config.APIServer, "api-server", "s", "", "The address and port of the Kubernetes API server.")
	v.output.AddTo(cmd, "", "Output format, instead of lines", cli.FormatJSON, sarifFormat)
	return cmd
}

// run checks a tree or files, and prints the result.
func (v *vet) run(ctx context.Context, trees []string) (valid bool, err error) {
	r := &result{}
	var checked string
	if len(trees) == 1 {
		if info, statErr := os.Stat(trees[0]); statErr == nil && !info.IsDir() {
			return false, fmt.Errorf("%s is not a directory with a tree: to check a file, run 'kubectl nstpl vet -f %[1]s'",
				trees[0])
		}
		checked, err = r.checkTree(trees[0])
		if r.hasTemplates() {
			v.Note("%s has NamespaceTemplates, which are in no tree of policies: to check them, run 'kubectl nstpl vet -f %[1]s'",
				trees[0])
		}
	} else {
		checked, err = v.checkFiles(ctx, r)
	}
	if err != nil {
		return false, err
	}
	r.finish()
	return r.Valid, v.print(r, checked)
}

func (v *vet) checkFiles(ctx context.Context, r *result) (checked string, err error) {
	var c *cluster.Cluster
	if v.server {
		if c, err = v.Connect(); err != nil {
			return "", err
		}
	}
	files, err := source.ReadAll(v.files, v.In)
	if err != nil {
		return "", err
	}
	for _, note := range files.Skipped() {
		v.Note("skipped %s", note)
	}
	if len(files.Objects)+len(files.Problems) == 0 {
		return "", fmt.Errorf("no object found in %s", &v.files)
	}
	return output.Count(len(files.Objects), "object"), r.checkFiles(ctx, c, files, v.schemas, v.kubernetes)
}
