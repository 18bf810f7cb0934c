// Package vet holds the command vet, which checks templates and trees of policies before they are applied.
//
// The command uses the rules of the operator: package render checks templates, and package hierarchy checks trees. With
// --server, it also sends a dry run to the API server. It prints violations as lines, as JSON or, for trees, as SARIF.
package vet

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/engine/schema"
	"nstpl.dev/nstpl/plugin/internal/cli"
)

// exitViolations is the exit code if there are violations. If the command failed, the exit code is cli.ExitFailed.
const exitViolations = 1

type vet struct {
	cli.Session
	files  []string
	server bool
	format string
	// schemas checks the objects of templates. checkFiles sets it.
	schemas *schema.Catalog
}

// violation is a violation in a file. The output of vet -f -o json is a list of violations.
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
		Short: "Check templates or a tree of policies before you apply them",
		Long: templates.LongDesc(`
			Check a tree of policies in a directory, or NamespaceTemplates and NamespaceInitializationConfigurations
			in files. The root policyspace of a tree has the name of the directory. Standard output has one line for
			each violation.

			Without --server, the command needs no cluster. With --server, it also sends a dry run to the API server,
			which checks above all whether you may create the objects that a template declares.

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

			# Check all files in a directory and print JSON, as for a pipeline
			kubectl nstpl vet -f templates/ -o json

			# Check whether the API server accepts a template from you, or from jane
			kubectl nstpl vet -f template.yaml --server
			kubectl nstpl vet -f template.yaml --server --as jane@example.com`),
		DisableFlagsInUseLine: true,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 1 || len(args) == 1 && (len(v.files) > 0 || v.server):
				return cli.Failed(cli.UsageError(cmd,
					errors.New("specify either one DIR with a tree, or files with -f")))
			case len(args) == 0 && len(v.files) == 0:
				return cli.Failed(cli.UsageError(cmd,
					errors.New("specify a DIR with a tree, or files with -f")))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case v.format == "" || v.format == cli.FormatJSON:
			case v.format != sarifFormat:
				return cli.Failed(cli.UsageError(cmd,
					fmt.Errorf("invalid --output %q: must be %s or, for a tree, %s", v.format, cli.FormatJSON,
						sarifFormat)))
			case len(args) == 0:
				return cli.Failed(cli.UsageError(cmd,
					fmt.Errorf("--output %s is supported only for trees", sarifFormat)))
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
		"A file or directory with templates, or - for standard input. Symbolic links are not followed.")
	flags.BoolVar(&v.server, "server", false, "Also send a dry run to the API server, as you or the user of --as.")
	flags.StringVarP(s.Config.APIServer, "api-server", "s", "", "The address and port of the Kubernetes API server.")
	flags.StringVarP(&v.format, "output", "o", "", "Output format, instead of lines. One of: (json, sarif).")
	cli.CompleteValues(cmd, "output", cli.FormatJSON, sarifFormat)
	return cmd
}
