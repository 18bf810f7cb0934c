package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Resource is a resource whose objects are the arguments of a command.
type Resource struct {
	// aliases are the names of the resource that may stand in front of the slash of an argument.
	aliases []string
	group   string
	version string
	// kind is the kind in messages, and other the command for objects of other kinds.
	kind, other string
}

// NamespaceResource returns the resource of namespaces. Its arguments look like team-a or ns/team-a.
func NamespaceResource() Resource {
	return Resource{
		aliases: []string{"ns", "namespace", "namespaces"}, version: corev1.SchemeGroupVersion.Version, kind: "Namespace",
	}
}

// TemplateResource returns the resource of NamespaceTemplates. Its arguments look like budget or nstpl/budget. Other is
// the command for objects of other kinds.
func TemplateResource(other string) Resource {
	r := ownResource("NamespaceTemplate", "nstpl", "namespacetemplates")
	r.other = other
	return r
}

// PolicySpaceResource returns the resource of PolicySpaces. Its arguments look like prod or policyspace/prod.
func PolicySpaceResource() Resource { return ownResource("PolicySpace", "ps", "policyspaces") }

// PolicyRepositoryResource returns the resource of PolicyRepositories. Its arguments look like corp or polrepo/corp.
func PolicyRepositoryResource() Resource {
	return ownResource("PolicyRepository", "polrepo", "policyrepositories")
}

// ConstraintsResource returns the resource of SecurityContextConstraints. Its arguments look like restricted or
// scc/restricted.
func ConstraintsResource() Resource {
	return ownResource("SecurityContextConstraints", "scc", "securitycontextconstraints")
}

func ownResource(kind, shortName, plural string) Resource {
	return Resource{
		aliases: []string{shortName, strings.ToLower(kind), plural},
		group:   v1alpha1.GroupVersion.Group, version: v1alpha1.GroupVersion.Version, kind: kind,
	}
}

// Name returns the name in an argument. As in kubectl, the resource may stand in front of it, with its group and
// version: namespacetemplates.v1alpha1.policy.nstpl.dev/budget.
func (r Resource) Name(argument string) (string, error) {
	resource, name, found := strings.Cut(argument, "/")
	switch {
	case !found:
		name = argument
	case !r.Is(resource) && r.other != "":
		return "", fmt.Errorf("%q is not a %s: use '%s' for other resources", argument, r.kind, r.other)
	case !r.Is(resource):
		return "", fmt.Errorf("%q is not a %s", argument, r.kind)
	}
	if name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("%q is not the name of a %s", argument, r.kind)
	}
	return name, nil
}

// Named returns the function RunE of a command whose only argument, or whose first one, is the name of an object. It
// passes the name to run, or "" if there are no arguments.
func (r Resource) Named(run func(cmd *cobra.Command, name string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return run(cmd, "")
		}
		name, err := r.Name(args[0])
		if err != nil {
			return UsageError(cmd, err)
		}
		return run(cmd, name)
	}
}

// Names returns the names in some arguments.
func (r Resource) Names(arguments []string) ([]string, error) {
	names := make([]string, 0, len(arguments))
	for _, argument := range arguments {
		name, err := r.Name(argument)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// Is reports whether a text is a name of the resource, with or without its group and version.
func (r Resource) Is(text string) bool {
	resource, qualifier, isQualified := strings.Cut(strings.ToLower(text), ".")
	return slices.Contains(r.aliases, resource) &&
		(!isQualified || qualifier == r.group || qualifier == strings.TrimSuffix(r.version+"."+r.group, "."))
}
