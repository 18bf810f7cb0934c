package vetting

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var gadget = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}

// installing is a mapper to which a kind is added before the look-up of a number.
type installing struct {
	meta.RESTMapper
	before, lookups int
}

func (m *installing) isInstalled() bool {
	m.lookups++
	return m.lookups >= m.before
}

func (m *installing) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if !m.isInstalled() {
		return nil, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
	}
	return m.RESTMapper.RESTMapping(kind, versions...)
}

func (m *installing) RESTMappings(kind schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	if !m.isInstalled() {
		return nil, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
	}
	return m.RESTMapper.RESTMappings(kind, versions...)
}

func TestMappingOfAKindThatIsBeingInstalled(t *testing.T) {
	t.Parallel()
	known := meta.NewDefaultRESTMapper([]schema.GroupVersion{gadget.GroupVersion()})
	known.Add(gadget, meta.RESTScopeNamespace)
	newer := gadget.GroupKind().WithVersion("v2")
	for name, test := range map[string]struct {
		before   int
		kind     schema.GroupVersionKind
		isMapped bool
		others   int
	}{
		"installed before":                           {1, gadget, true, 0},
		"installed between the look-ups":             {2, gadget, true, 0},
		"installed after them, it counts as unknown": {3, gadget, false, 0},
		"installed in another version":               {1, newer, false, 1},
		"installed in another version meanwhile":     {2, newer, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			admission := NewAdmission(Options{Mapper: &installing{RESTMapper: known, before: test.before}})
			mapping, others, err := admission.mapping(test.kind)
			require.NoError(t, err)
			require.Equal(t, test.isMapped, mapping != nil)
			require.Len(t, others, test.others)
			if test.others > 0 {
				problem, err := admission.notServed(test.kind, others)
				require.NoError(t, err)
				require.EqualError(t, problem,
					"the cluster serves Gadget.example.com as example.com/v1, not as example.com/v2")
			}
		})
	}
}
