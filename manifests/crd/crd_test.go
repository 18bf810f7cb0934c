package crd

import (
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
