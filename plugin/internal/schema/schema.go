// Package schema implements kubectl nstpl schema, which gives editors and linters the schemas of nstpl's kinds.
package schema

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/manifests/crd"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// allFile is the name of the file with the schema for all kinds.
const allFile = "nstpl.json"

// options are the values of the command's flags.
type options struct {
	cli.Session
	format    cli.FormatFlag
	directory string
}

// New returns the command kubectl nstpl schema.
func New(s cli.Session) *cobra.Command {
	o := &options{Session: s}
	cmd := &cobra.Command{
		Use:   "schema [KIND] [-o json|yaml | --output-directory DIR]",
		Short: "Print the JSON schemas of nstpl's kinds, for editors",
		Long: templates.LongDesc(`
			Print a JSON schema, by which an editor completes the fields of nstpl's kinds, shows their descriptions and
			marks mistakes. No cluster is required.

			Without a kind, the schema is for files with objects of any kind, and checks those of nstpl. CEL rules are
			not part of it: "kubectl nstpl vet" checks them, and the objects in templates.`),
		Example: templates.Examples(`
			# Write the schemas to a directory
			kubectl nstpl schema --output-directory ~/.local/share/nstpl

			# Print the schema of NamespaceTemplates
			kubectl nstpl schema NamespaceTemplate

			# Check files with kubeconform
			kubeconform -schema-location default \
			  -schema-location "$HOME/.local/share/nstpl/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json" policies`),
		Args:              cli.AtMostOneArg("KIND"),
		ValidArgsFunction: completeKind,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.directory != "" && (len(args) > 0 || cmd.Flags().Changed("output")) {
				return cli.UsageError(cmd, fmt.Errorf(
					"--output-directory writes the schemas of all kinds, so it cannot be used with KIND or --output"))
			}
			return o.run(args)
		},
	}
	o.format.AddTo(cmd, cli.FormatJSON, "Output format", cli.FormatJSON, cli.FormatYAML)
	cmd.Flags().StringVar(&o.directory, "output-directory", "",
		"Write a file for each kind, and "+allFile+" for all kinds, to this directory.")
	return cmd
}

func (o *options) run(args []string) error {
	definitions, err := crd.All()
	if err != nil {
		return err
	}
	if o.directory != "" {
		return o.write(definitions)
	}
	if len(args) == 0 {
		schema, err := ofAll(definitions)
		if err != nil {
			return err
		}
		return o.print(schema)
	}
	for _, definition := range definitions {
		if isNamed(definition, args[0]) {
			schema, err := standalone(definition)
			if err != nil {
				return err
			}
			return o.print(schema)
		}
	}
	return fmt.Errorf("%q is not a kind of nstpl: the kinds are %s", args[0], strings.Join(kinds(), ", "))
}

func (o *options) print(schema map[string]any) error {
	if o.format.Format == cli.FormatYAML {
		return output.YAMLStream(o.Out, []map[string]any{schema})
	}
	return output.JSON(o.Out, schema)
}

// write writes all schemas to the directory. The names are those by which kubeconform finds schemas.
func (o *options) write(definitions []*apiextensionsv1.CustomResourceDefinition) error {
	schema, err := ofAll(definitions)
	if err != nil {
		return err
	}
	schemas := map[string]map[string]any{allFile: schema}
	names := []string{allFile}
	for _, definition := range definitions {
		if schema, err = standalone(definition); err != nil {
			return err
		}
		name := strings.ToLower(definition.Spec.Names.Kind) + "_" + definition.Spec.Versions[0].Name + ".json"
		schemas[name], names = schema, append(names, name)
	}
	if err := os.MkdirAll(o.directory, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		var content bytes.Buffer
		if err := output.JSON(&content, schemas[name]); err != nil {
			return err
		}
		path := filepath.Join(o.directory, name)
		if err := os.WriteFile(path, content.Bytes(), 0o644); err != nil {
			return err
		}
		output.Line(o.Out, "%s written", path)
	}
	return nil
}

// standalone returns the schema of a kind for a file of its own.
func standalone(definition *apiextensionsv1.CustomResourceDefinition) (map[string]any, error) {
	schema, err := ofKind(definition)
	if err != nil {
		return nil, err
	}
	schema["$schema"] = draft
	return schema, nil
}

// isNamed reports whether an argument names a kind in one of the ways that kubectl accepts.
func isNamed(definition *apiextensionsv1.CustomResourceDefinition, argument string) bool {
	names := definition.Spec.Names
	all := append([]string{names.Kind, names.Plural, names.Singular, definition.Name}, names.ShortNames...)
	return slices.ContainsFunc(all, func(name string) bool { return strings.EqualFold(name, argument) })
}

// completeKind completes the name of a kind. It is not a list of ValidArgs, since each start of the plugin would read
// all definitions for it.
func completeKind(_ *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	isOther := func(kind string) bool { return !strings.HasPrefix(kind, toComplete) }
	return slices.DeleteFunc(kinds(), isOther), cobra.ShellCompDirectiveNoFileComp
}

// kinds returns the names of nstpl's kinds.
func kinds() []string {
	definitions, err := crd.All()
	if err != nil {
		return nil // run returns the error
	}
	var names []string
	for _, definition := range definitions {
		names = append(names, definition.Spec.Names.Kind)
	}
	return names
}
