package rollout

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTemplateNameAcceptsTheNamesOfTheResource(t *testing.T) {
	for _, argument := range []string{
		"budget", "nstpl/budget", "namespacetemplate/budget", "NamespaceTemplates/budget",
		"namespacetemplate.policy.nstpl.dev/budget", "namespacetemplates.v1alpha1.policy.nstpl.dev/budget",
	} {
		name, err := templateName(argument)
		require.NoError(t, err, argument)
		require.Equal(t, "budget", name, argument)
	}
}

func TestTemplateNameRejectsOtherResources(t *testing.T) {
	for argument, want := range map[string]string{
		"deployment/web":           `"deployment/web" is not a NamespaceTemplate: use 'kubectl rollout' for other resources`,
		"nstpl.example.com/budget": `"nstpl.example.com/budget" is not a NamespaceTemplate: use 'kubectl rollout' for other resources`,
		"nstpl/":                   `"nstpl/" is not the name of a NamespaceTemplate`,
		"nstpl/a/b":                `"nstpl/a/b" is not the name of a NamespaceTemplate`,
		"":                         `"" is not the name of a NamespaceTemplate`,
	} {
		_, err := templateName(argument)
		require.EqualError(t, err, want)
	}
}
