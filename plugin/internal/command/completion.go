package command

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/plugin/internal/cli"
)

func newCompletion(s cli.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print shell completion code",
		Long: templates.LongDesc(`
			Print the completion code for kubectl-nstpl and the specified shell.

			To complete "kubectl nstpl", kubectl's own completion code runs a program with the name
			kubectl_complete-nstpl. Create a link with this name to kubectl-nstpl, in a directory of your PATH.`),
		Example: templates.Examples(`
			# Complete "kubectl nstpl"
			ln -s "$(command -v kubectl-nstpl)" ~/.local/bin/kubectl_complete-nstpl

			# Complete "kubectl-nstpl" in the current bash shell
			source <(kubectl nstpl completion bash)`),
		DisableFlagsInUseLine: true,
		ValidArgs:             []string{"bash", "zsh", "fish", "powershell"},
		Args:                  cli.OneArg("SHELL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.Use = "kubectl-nstpl" // the script completes this program
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(s.Out, true)
			case "zsh":
				return root.GenZshCompletion(s.Out)
			case "fish":
				return root.GenFishCompletion(s.Out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(s.Out)
			}
			return cli.UsageError(cmd, fmt.Errorf("unsupported shell type %q", args[0]))
		},
	}
}
