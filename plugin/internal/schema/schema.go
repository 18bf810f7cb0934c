// Package schema implements kubectl nstpl schema, which gives editors and linters the JSON schema of nstpl's kinds.
package schema

import (
	"io"

	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/manifests/crd"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// New returns the command kubectl nstpl schema.
func New(s cli.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of nstpl's kinds, for editors",
		Long: templates.LongDesc(`
			Print a JSON schema, by which an editor completes the fields of nstpl's kinds, shows their descriptions and
			marks mistakes. No cluster is required.

			The schema is for files with objects of any kind, and checks those of nstpl. CEL rules are not part of it:
			"kubectl nstpl vet" checks them, and the objects in templates.`),
		Example: templates.Examples(`
			# Write the schema to a file
			kubectl nstpl schema >policy.nstpl.dev.json

			# Check files with kubeconform, which finds the schema by the API group
			kubeconform -schema-location default -schema-location '{{.Group}}.json' policies`),
		Args:              cli.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return run(s.Out) },
	}
}

func run(out io.Writer) error {
	definitions, err := crd.All()
	if err != nil {
		return err
	}
	schema, err := ofAll(definitions)
	if err != nil {
		return err
	}
	return output.JSON(out, schema)
}
