package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/plugin/internal/cli"
)

func TestNamesMayFollowTheResource(t *testing.T) {
	for want, test := range map[string]struct {
		resource  cli.Resource
		arguments []string
	}{
		"budget": {cli.TemplateResource(""), []string{
			"budget", "nstpl/budget", "namespacetemplate/budget", "NamespaceTemplates/budget",
			"namespacetemplate.policy.nstpl.dev/budget", "namespacetemplates.v1alpha1.policy.nstpl.dev/budget",
		}},
		"team-a": {cli.NamespaceResource(), []string{
			"team-a", "ns/team-a", "namespace/team-a", "Namespaces/team-a", "namespaces.v1/team-a",
		}},
		"corp": {cli.PolicyRepositoryResource(), []string{
			"corp", "polrepo/corp", "policyrepository.policy.nstpl.dev/corp",
		}},
		"restricted": {cli.ConstraintsResource(), []string{
			"restricted", "scc/restricted", "securitycontextconstraints.policy.nstpl.dev/restricted",
		}},
	} {
		names, err := test.resource.Names(test.arguments)
		require.NoError(t, err)
		for i, name := range names {
			require.Equal(t, want, name, test.arguments[i])
		}
	}
}

func TestNamesOfOtherResourcesAreRejected(t *testing.T) {
	templates, namespaces := cli.TemplateResource("kubectl rollout"), cli.NamespaceResource()
	for want, test := range map[string]struct {
		resource cli.Resource
		argument string
	}{
		`"deployment/web" is not a NamespaceTemplate: use 'kubectl rollout' for other resources`: {
			templates, "deployment/web",
		},
		`"nstpl.example.com/budget" is not a NamespaceTemplate: use 'kubectl rollout' for other resources`: {
			templates, "nstpl.example.com/budget",
		},
		`"nstpl/" is not the name of a NamespaceTemplate`:    {templates, "nstpl/"},
		`"nstpl/a/b" is not the name of a NamespaceTemplate`: {templates, "nstpl/a/b"},
		`"" is not the name of a NamespaceTemplate`:          {templates, ""},
		`"pod/web" is not a Namespace`:                       {namespaces, "pod/web"},
		`"ns.v2/web" is not a Namespace`:                     {namespaces, "ns.v2/web"},
		`"ns/" is not the name of a Namespace`:               {namespaces, "ns/"},
	} {
		_, err := test.resource.Names([]string{test.argument})
		require.EqualError(t, err, want)
	}
}
