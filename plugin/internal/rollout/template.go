package rollout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
)

// prefixes are the names of the resource in front of the slash of an argument TEMPLATE. A group and a version may
// follow.
var prefixes = []string{"nstpl", "namespacetemplate", "namespacetemplates"}

// templateName returns the name of the template in an argument such as budget, nstpl/budget or
// namespacetemplates.policy.nstpl.dev/budget.
func templateName(argument string) (string, error) {
	resource, name, found := strings.Cut(argument, "/")
	if !found {
		resource, name = prefixes[0], argument
	}
	if !isTemplateResource(resource) {
		return "", fmt.Errorf("%q is not a NamespaceTemplate: use 'kubectl rollout' for other resources", argument)
	}
	if name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("%q is not the name of a NamespaceTemplate", argument)
	}
	return name, nil
}

func isTemplateResource(text string) bool {
	resource, group, qualified := strings.Cut(strings.ToLower(text), ".")
	groupVersion := v1alpha1.GroupVersion.Version + "." + v1alpha1.GroupVersion.Group
	return slices.Contains(prefixes, resource) &&
		(!qualified || group == v1alpha1.GroupVersion.Group || group == groupVersion)
}

// oneTemplate accepts exactly one argument TEMPLATE and passes the name of the template to run.
func oneTemplate(run func(cmd *cobra.Command, name string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := cli.OneArg("TEMPLATE")(cmd, args); err != nil {
			return err
		}
		name, err := templateName(args[0])
		if err != nil {
			return cli.UsageError(cmd, err)
		}
		return run(cmd, name)
	}
}

// completeTemplate completes an argument TEMPLATE, with or without a resource in front of the name.
func completeTemplate(s cli.Session) cobra.CompletionFunc {
	names := s.CompleteObject(v1alpha1.NamespaceTemplates)
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		resource, name, found := strings.Cut(typed, "/")
		if !found {
			return names(cmd, args, typed)
		}
		if !isTemplateResource(resource) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		completions, directive := names(cmd, args, name)
		for i := range completions {
			completions[i] = resource + "/" + completions[i]
		}
		return completions, directive
	}
}

// quoted returns a template in the notation of kubectl's errors about objects.
func quoted(name string) string {
	return fmt.Sprintf("%s %q", v1alpha1.NamespaceTemplates.GroupResource(), name)
}
