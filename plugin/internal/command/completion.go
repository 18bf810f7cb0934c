package command

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

const pluginProgram = "kubectl-nstpl"

// CompletionProgram is the name of the program that kubectl runs to complete the command line of this plugin.
const CompletionProgram = "kubectl_complete-nstpl"

func newCompletion(s cli.Session) *cobra.Command {
	var install bool
	var dryRun string
	cmd := &cobra.Command{
		Use:   "completion (bash|zsh|fish|powershell | --install [--dry-run=client])",
		Short: "Print shell completion code, or enable the completion of kubectl nstpl",
		Long: templates.LongDesc(`
			Print the completion code for kubectl-nstpl and the specified shell.

			To complete "kubectl nstpl", kubectl's own completion code runs a program with the name
			kubectl_complete-nstpl. With --install, the command creates a link with this name next to kubectl-nstpl,
			in the directory of your PATH where krew or you installed it. It never replaces a file.`),
		Example: templates.Examples(`
			# Complete "kubectl nstpl"
			kubectl nstpl completion --install

			# Complete "kubectl-nstpl" in the current bash shell
			source <(kubectl nstpl completion bash)`),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Args: func(cmd *cobra.Command, args []string) error {
			if install {
				return cli.NoArgs(cmd, args)
			}
			return cli.OneArg("SHELL")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if dryRun != "none" && dryRun != "client" {
				return cli.UsageError(cmd, fmt.Errorf("invalid --dry-run value %q: must be none or client", dryRun))
			}
			if install {
				return installCompletion(s, dryRun == "client")
			}
			if cmd.Flags().Changed("dry-run") {
				return cli.UsageError(cmd, errors.New("--dry-run needs --install"))
			}
			return printCompletion(s, cmd, args[0])
		},
	}
	cmd.Flags().BoolVar(&install, "install", false,
		"Create the link "+CompletionProgram+" next to "+pluginProgram+", instead of printing code.")
	cmd.Flags().StringVar(&dryRun, "dry-run", "none",
		`Must be "none" or "client". If client, only print what --install would create.`)
	cli.CompleteValues(cmd, "dry-run", "none", "client")
	return cmd
}

func printCompletion(s cli.Session, cmd *cobra.Command, shell string) error {
	root := cmd.Root()
	root.Use = pluginProgram // the script completes this program
	switch shell {
	case "bash":
		return root.GenBashCompletionV2(s.Out, true)
	case "zsh":
		return root.GenZshCompletion(s.Out)
	case "fish":
		return root.GenFishCompletion(s.Out, true)
	case "powershell":
		return root.GenPowerShellCompletionWithDesc(s.Out)
	}
	return cli.UsageError(cmd, fmt.Errorf("unsupported shell type %q", shell))
}

// installCompletion creates the link by which kubectl completes the plugin. The link is relative, so it follows krew's
// own link to the plugin's current version.
func installCompletion(s cli.Session, dryRun bool) error {
	plugin, err := exec.LookPath(pluginProgram)
	if err != nil {
		return fmt.Errorf("%s is not in a directory of your PATH, where kubectl looks for plugins: install it there first",
			pluginProgram)
	}
	if existing, err := exec.LookPath(CompletionProgram); err == nil {
		if !isSameFile(existing, plugin) {
			return fmt.Errorf("%s is not a link to %s: remove it, and run the command again", existing, plugin)
		}
		output.Line(s.Out, "%s unchanged", existing)
		return nil
	}
	link := filepath.Join(filepath.Dir(plugin), CompletionProgram+filepath.Ext(plugin))
	// What exists here is not a program that kubectl could run.
	if _, err := os.Lstat(link); err == nil {
		return fmt.Errorf("%s exists and is not a link to %s: remove it, and run the command again", link, plugin)
	}
	if dryRun {
		output.Line(s.Out, "%s created (dry run)", link)
		return nil
	}
	if err := os.Symlink(filepath.Base(plugin), link); err != nil {
		return fmt.Errorf("cannot create the link next to %s: %w", plugin, err)
	}
	output.Line(s.Out, "%s created", link)
	return nil
}

// isSameFile reports whether two paths lead to the same file.
func isSameFile(a, b string) bool {
	first, errFirst := os.Stat(a)
	second, errSecond := os.Stat(b)
	return errFirst == nil && errSecond == nil && os.SameFile(first, second)
}
