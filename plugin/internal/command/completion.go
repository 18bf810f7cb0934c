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
		Short: "Print the completion script of a shell",
		Long: templates.LongDesc(`
			Print the script that completes the command line of kubectl-nstpl in a shell.

			"kubectl nstpl" is completed by kubectl's own script, which looks for a program with the name
			kubectl_complete-nstpl: link kubectl-nstpl to that name in a folder of your PATH. The program completes
			when it is called by that name.`),
		Example: templates.Examples(`
			# Complete "kubectl nstpl"
			ln -s "$(command -v kubectl-nstpl)" ~/.local/bin/kubectl_complete-nstpl

			# Complete "kubectl-nstpl" in this bash
			source <(kubectl nstpl completion bash)`),
		DisableFlagsInUseLine: true,
		ValidArgs:             []string{"bash", "zsh", "fish", "powershell"},
		Args:                  cli.ExactArgs(1, "the name of a shell"),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.Use = "kubectl-nstpl" // the program that the script is for
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
			return cli.UsageError(cmd, fmt.Errorf("there is no completion for %s", args[0]))
		},
	}
}
