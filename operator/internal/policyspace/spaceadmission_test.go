package policyspace

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// parents reads policy spaces by name, and counts the requests. It panics if they are listed.
type parents struct {
	client.Reader
	of   map[string]string
	gets int
}

func (p *parents) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	p.gets++
	parent, ok := p.of[key.Name]
	if !ok {
		return apierrors.NewNotFound(v1alpha1.PolicySpaces.GroupResource(), key.Name)
	}
	space := into.(*v1alpha1.PolicySpace)
	space.Name, space.Spec.Parent = key.Name, parent
	return nil
}

// A request for a policy space reads its ancestors, and no other policy spaces.
func TestLineageOfAPolicySpaceReadsItsAncestorsOnly(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		space, parent string
		lineage       []string
		err           string
		gets          int
	}{
		"root":            {"new", "", []string{"new"}, "", 0},
		"below others":    {"new", "b", []string{"new", "b", "a"}, "", 2},
		"missing parent":  {"new", "none", nil, "policyspace new is below policyspace none, which does not exist", 1},
		"missing further": {"new", "orphan", nil, "policyspace new is below policyspace none, which does not exist", 2},
		"own ancestor":    {"a", "b", nil, "policyspace a is its own ancestor", 2},
		"below a cycle":   {"new", "x", nil, "policyspace new is its own ancestor", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live := &parents{of: map[string]string{"a": "", "b": "a", "c": "", "orphan": "none", "x": "y", "y": "x"}}
			space := &v1alpha1.PolicySpace{}
			space.Name, space.Spec.Parent = test.space, test.parent
			line, err := (&SpaceAdmission{live: live}).lineageOf(t.Context(), space)
			require.Equal(t, test.gets, live.gets)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			var names []string
			for _, space := range line {
				names = append(names, space.Name)
			}
			require.Equal(t, test.lineage, names)
		})
	}
}
