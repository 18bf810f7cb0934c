// Package vet holds the command vet, which checks templates and trees of policies before they are applied.
//
// The rules are the operator's: it checks templates with package render and trees with package hierarchy, and asks the
// API server only with --server. Violations are on standard output, a line for each, as JSON or, for trees, as SARIF.
package vet

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/plugin/internal/cli"
)

// exitViolations is the exit code of vet where it found violations. Where it could not check, that is cli.ExitFailed.
const exitViolations = 1

type vet struct {
	cli.Session
	files  []string
	server bool
	format string
}

// violation is a violation in a file. A list of them is what vet -f -o json prints.
type violation struct {
	File    string `json:"file"`
	Object  string `json:"object,omitempty"`
	Message string `json:"message"`
}

// New returns the command `kubectl nstpl vet`.
func New(s cli.Session) *cobra.Command {
	v := &vet{Session: s}
	cmd := &cobra.Command{
		Use:   "vet DIR | -f FILE... [--server] [-o json|sarif]",
		Short: "Check templates, or a tree of policies, before they are applied",
		Long: templates.LongDesc(`
			Check the tree of policies in a folder, whose name is that of its root policyspace, or the
			NamespaceTemplates and NamespaceInitializationConfigurations in files, and say everything that is wrong
			with them. Violations are on standard output, a line for each.

			Without --server no cluster is asked. With it the API server answers, by a dry run that changes nothing,
			whether it would take the objects from you: whether you could create yourself what a template creates,
			above all.

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
				return cli.Failed(cli.UsageError(cmd,
					errors.New("give a folder with a tree, or a file or folder with -f")))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case v.format == "" || v.format == cli.FormatJSON:
			case v.format != sarifFormat:
				return cli.Failed(cli.UsageError(cmd,
					fmt.Errorf("--output is %q: it can be %s or, for a tree, %s", v.format, cli.FormatJSON,
						sarifFormat)))
			case len(args) == 0:
				return cli.Failed(cli.UsageError(cmd, fmt.Errorf("--output %s is for trees", sarifFormat)))
			}
			var violated bool
			var err error
			if len(args) == 1 {
				violated, err = v.checkTree(args[0])
			} else {
				violated, err = v.checkFiles(cmd.Context())
			}
			switch {
			case err != nil:
				return cli.Failed(err)
			case violated:
				return &cli.Exit{Code: exitViolations}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return cli.Failed(cli.UsageError(cmd, err)) })
	flags := cmd.Flags()
	flags.StringArrayVarP(&v.files, "filename", "f", nil,
		"A file or folder with templates, or - for standard input. Symbolic links are not followed.")
	flags.BoolVar(&v.server, "server", false, "Ask the API server too, by a dry run, as whoever you are or --as says.")
	flags.StringVarP(s.Config.APIServer, "api-server", "s", "", "The address and port of the Kubernetes API server.")
	flags.StringVarP(&v.format, "output", "o", "", "Output format, in place of lines. One of: (json, sarif).")
	cli.CompleteValues(cmd, "output", cli.FormatJSON, sarifFormat)
	return cmd
}
