package command

import (
	"cmp"
	"context"
	"runtime"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/version"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// versions is what the command prints with -o json.
type versions struct {
	Client    string `json:"clientVersion"`
	GitCommit string `json:"gitCommit,omitempty"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
	Operator  string `json:"operatorVersion,omitempty"`
	Server    string `json:"serverVersion,omitempty"`
}

func newVersion(s cli.Session) *cobra.Command {
	var format cli.FormatFlag
	var client bool
	cmd := &cobra.Command{
		Use:   "version [--client] [-o json|yaml]",
		Short: "Print the versions of the plugin, the operator and the API server",
		Example: templates.Examples(`
			# Print the versions of the plugin, the operator and the API server
			kubectl nstpl version

			# Print the version of the plugin, without a cluster
			kubectl nstpl version --client`),
		Args:              cli.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all := versions{
				Client: version.String(), GitCommit: version.Commit(), GoVersion: runtime.Version(),
				Platform: runtime.GOOS + "/" + runtime.GOARCH,
			}
			var err error
			if !client {
				err = all.read(cmd.Context(), s)
			}
			if writeErr := all.write(s, format.Format); writeErr != nil {
				return writeErr
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&client, "client", false, "Print only the version of the plugin (no cluster required).")
	format.AddTo(cmd, "", "Output format", cli.FormatJSON, cli.FormatYAML)
	return cmd
}

// read reads the versions of the operator and the API server. A version that it cannot read stays empty.
func (v *versions) read(ctx context.Context, s cli.Session) error {
	c, err := s.Connect()
	if err != nil {
		return err
	}
	server, err := c.Discovery.ServerVersionWithContext(ctx)
	if err != nil {
		return err
	}
	v.Server = server.GitVersion
	operator, err := c.Operator(ctx)
	switch {
	case apierrors.IsNotFound(err) && c.CheckInstalled(ctx) != nil:
		v.Operator = "not installed"
	case apierrors.IsNotFound(err):
		v.Operator = "unknown (none has held its lease)"
	case apierrors.IsForbidden(err):
		v.Operator = "unknown (you may not get its lease)"
	case err != nil:
		return err
	default:
		v.Operator = cmp.Or(operator.Version, "unknown")
	}
	if err == nil && !operator.Running {
		v.Operator += " (nothing holds its lease)"
	}
	return nil
}

func (v *versions) write(s cli.Session, format string) error {
	switch format {
	case cli.FormatJSON:
		return output.JSON(s.Out, v)
	case cli.FormatYAML:
		return output.YAMLStream(s.Out, []*versions{v})
	}
	output.Line(s.Out, "Client Version: %s", v.Client)
	if v.Operator != "" {
		output.Line(s.Out, "Operator Version: %s", v.Operator)
	}
	if v.Server != "" {
		output.Line(s.Out, "Server Version: %s", v.Server)
	}
	return nil
}
