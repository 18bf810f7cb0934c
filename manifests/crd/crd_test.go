package crd

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/engine/schema"
)

// Every kind of nstpl is embedded, and objects can be checked against its schema.
func TestAll(t *testing.T) {
	t.Parallel()
	definitions, err := All()
	require.NoError(t, err)
	var kinds []string
	for _, definition := range definitions {
		kinds = append(kinds, definition.Spec.Names.Kind)
	}
	require.Equal(t, []string{
		"ClusterProtectedAttribute", "NamespaceInitializationConfiguration", "NamespaceTemplate", "PolicyRepository",
		"PolicySpace", "ProtectedAttribute", "SecurityContextConstraints", "TemplateExemption",
	}, kinds)
	_, err = schema.New(definitions...)
	require.NoError(t, err)
}

// conditionFilter matches the choice of a condition in the path of a column.
var conditionFilter = regexp.MustCompile(`\[\?\(@\.type=="\w+"\)\]`)

// The API server prints lists and objects as JSON, and only the first of several values. So a column of kubectl get has
// one value that is neither.
func TestColumnsHaveOneValue(t *testing.T) {
	t.Parallel()
	definitions, err := All()
	require.NoError(t, err)
	for _, definition := range definitions {
		for _, version := range definition.Spec.Versions {
			for _, column := range version.AdditionalPrinterColumns {
				path := conditionFilter.ReplaceAllString(strings.TrimPrefix(column.JSONPath, "."), "[]")
				if path == "metadata.creationTimestamp" {
					continue // the definition has no fields of metadata
				}
				require.NotContains(t, path, "[*]", definition.Name)
				field := *version.Schema.OpenAPIV3Schema
				for name := range strings.SplitSeq(path, ".") {
					name, isChosen := strings.CutSuffix(name, "[]")
					require.Contains(t, field.Properties, name, "%s: %s", definition.Name, column.JSONPath)
					if field = field.Properties[name]; isChosen {
						field = *field.Items.Schema
					}
				}
				require.NotContains(t, []string{"array", "object"}, field.Type, "%s: column %s", definition.Name,
					column.Name)
			}
		}
	}
}
