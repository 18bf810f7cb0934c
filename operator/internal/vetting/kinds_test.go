package vetting

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A kind that is installed between two look-ups is not reported as served in other versions.
func TestKindThatWasInstalledMeanwhileIsServed(t *testing.T) {
	t.Parallel()
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: "example.com", Version: "v1"}})
	mapper.Add(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}, meta.RESTScopeNamespace)
	admission := NewAdmission(Options{Mapper: mapper})
	problem, err := admission.notServed(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"})
	require.NoError(t, err)
	require.NoError(t, problem)
	problem, err = admission.notServed(schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Gadget"})
	require.NoError(t, err)
	require.EqualError(t, problem,
		"the cluster serves Gadget.example.com as example.com/v1, not as example.com/v2")
}
