package command

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func newCompletion(s session) *cobra.Command {
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
		Args:                  exactly(1, "the name of a shell"),
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
			return usageError(cmd, fmt.Errorf("there is no completion for %s", args[0]))
		},
	}
}

// completeNamespaces completes the names of namespaces, at most so many or, with 0, any number.
func (s session) completeNamespaces(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := s.list(cmd.Context(), corev1.SchemeGroupVersion.WithResource("namespaces"))
		return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), cobra.ShellCompDirectiveNoFileComp
	}
}

func (s session) completeTemplates(cmd *cobra.Command, flag string) {
	complete(cmd, flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return s.list(cmd.Context(), v1alpha1.NamespaceTemplates), cobra.ShellCompDirectiveNoFileComp
	})
}

// list returns the names of objects, none where they can't be had soon: completion has nobody to complain to.
func (s session) list(ctx context.Context, resource schema.GroupVersionResource) []string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c, err := s.connect()
	if err != nil {
		return nil
	}
	list, err := c.Metadata.Resource(resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// completeConfigFlags completes what the kubeconfig knows.
func (s session) completeConfigFlags(root *cobra.Command) {
	known := func(keys func(clientcmdapi.Config) []string) cobra.CompletionFunc {
		return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			config, err := s.config.ToRawKubeConfigLoader().RawConfig()
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return keys(config), cobra.ShellCompDirectiveNoFileComp
		}
	}
	complete(root, "context", known(func(c clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(c.Contexts)) }))
	complete(root, "cluster", known(func(c clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(c.Clusters)) }))
	complete(root, "user", known(func(c clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(c.AuthInfos)) }))
	complete(root, "namespace", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return s.list(cmd.Context(), corev1.SchemeGroupVersion.WithResource("namespaces")), cobra.ShellCompDirectiveNoFileComp
	})
}

// completeValues completes a flag by fixed values.
func completeValues(cmd *cobra.Command, flag string, values ...string) {
	complete(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// complete completes a flag of a command.
func complete(cmd *cobra.Command, flag string, by cobra.CompletionFunc) {
	// It fails only for a flag that isn't there, and then that flag completes nothing.
	_ = cmd.RegisterFlagCompletionFunc(flag, by)
}
