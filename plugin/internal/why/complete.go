package why

import (
	"strings"

	"github.com/spf13/cobra"

	"nstpl.dev/nstpl/plugin/internal/cli"
)

// completeNamespace completes namespaces as TYPE/NAME.
func completeNamespace(s cli.Session) cobra.CompletionFunc {
	names := s.CompleteNamespaces(1)
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		for _, resource := range []string{"namespace/", "ns/"} {
			if strings.HasPrefix(resource, typed) {
				return names(cmd, args, resource)
			}
		}
		if !strings.Contains(typed, "/") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(cmd, args, typed)
	}
}
