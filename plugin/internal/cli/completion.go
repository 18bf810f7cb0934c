package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// CompleteNamespaces completes arguments with the names of namespaces, for at most limit arguments. Zero means no
// limit. A resource may stand in front of the name, as in ns/team-a.
func (s Session) CompleteNamespaces(limit int) cobra.CompletionFunc {
	return NamespaceResource().complete(s.CompleteObjects(corev1.SchemeGroupVersion.WithResource("namespaces"), limit))
}

// CompleteTemplate completes one argument with the name of a NamespaceTemplate. A resource may stand in front of the
// name, as in nstpl/budget.
func (s Session) CompleteTemplate() cobra.CompletionFunc {
	return TemplateResource("").complete(s.CompleteObject(v1alpha1.NamespaceTemplates))
}

// CompletePolicySpace completes one argument with the name of a PolicySpace. A resource may stand in front of the name,
// as in policyspace/prod.
func (s Session) CompletePolicySpace() cobra.CompletionFunc {
	return PolicySpaceResource().complete(s.CompleteObject(v1alpha1.PolicySpaces))
}

// complete returns a completion that keeps a resource in front of what it completes.
func (r Resource) complete(names cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		resource, name, found := strings.Cut(typed, "/")
		if !found {
			return names(cmd, args, typed)
		}
		if !r.Is(resource) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		completions, directive := names(cmd, args, name)
		for i := range completions {
			completions[i] = resource + "/" + completions[i]
		}
		return completions, directive
	}
}

// CompleteObject completes one argument with the names of the objects of a cluster-scoped resource.
func (s Session) CompleteObject(resource schema.GroupVersionResource) cobra.CompletionFunc {
	return s.CompleteObjects(resource, 1)
}

// CompleteObjects completes arguments with the names of the objects of a cluster-scoped resource, for at most limit
// arguments. Zero means no limit.
func (s Session) CompleteObjects(resource schema.GroupVersionResource, limit int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if limit > 0 && len(args) >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.DeleteFunc(s.objectNames(cmd.Context(), resource, typed), func(name string) bool {
			return slices.Contains(args, name)
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteValues completes a flag with fixed values.
func CompleteValues(cmd *cobra.Command, flag string, values ...string) {
	CompleteFlag(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// CompleteConfigFlags completes the flags of Config with the names in the kubeconfig, and --namespace with the
// namespaces of the cluster.
func (s Session) CompleteConfigFlags(root *cobra.Command) {
	CompleteFlag(root, "context", s.fromKubeconfig(contextNames))
	CompleteFlag(root, "cluster", s.fromKubeconfig(func(c clientcmdapi.Config) []string {
		return slices.Sorted(maps.Keys(c.Clusters))
	}))
	CompleteFlag(root, "user", s.fromKubeconfig(func(c clientcmdapi.Config) []string {
		return slices.Sorted(maps.Keys(c.AuthInfos))
	}))
	s.CompleteObjectFlag(root, "namespace", corev1.SchemeGroupVersion.WithResource("namespaces"))
}

func contextNames(c clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(c.Contexts)) }

// CompleteContextList completes the last name in a flag whose value is a list of contexts, separated by commas.
func (s Session) CompleteContextList(cmd *cobra.Command, flag string) {
	names := s.fromKubeconfig(contextNames)
	CompleteFlag(cmd, flag, func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndex(typed, ",")+1]
		contexts, directive := names(cmd, args, typed)
		var completions []string
		for _, name := range contexts {
			if !slices.Contains(strings.Split(before, ","), name) {
				completions = append(completions, before+name)
			}
		}
		return completions, directive
	})
}

func (s Session) fromKubeconfig(keys func(clientcmdapi.Config) []string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		config, err := s.Config.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return keys(config), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteObjectFlag completes a flag with the names of the objects of a cluster-scoped resource.
func (s Session) CompleteObjectFlag(cmd *cobra.Command, flag string, resource schema.GroupVersionResource) {
	CompleteFlag(cmd, flag, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return s.objectNames(cmd.Context(), resource, typed), cobra.ShellCompDirectiveNoFileComp
	})
}

// objectNames returns the names of the objects of a resource that begin with what the user typed. It returns none if
// they cannot be listed within two seconds, since a shell cannot show an error while it completes a command line.
func (s Session) objectNames(ctx context.Context, resource schema.GroupVersionResource, typed string) []string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c, err := s.Connect()
	if err != nil {
		return nil
	}
	names, err := c.Names(ctx, resource, typed)
	if err != nil {
		return nil
	}
	return names
}

// CompleteFlag ignores the error, which only says that the command has no such flag: there is nothing to complete then.
func CompleteFlag(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	_ = cmd.RegisterFlagCompletionFunc(flag, values)
}
