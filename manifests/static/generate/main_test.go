package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/manifests"
)

func TestStaticPoliciesAreUpToDate(t *testing.T) {
	t.Parallel()
	objects, err := manifests.Objects()
	require.NoError(t, err)
	contents, err := render(objects)
	require.NoError(t, err)
	require.Len(t, contents, 2)
	for name, want := range contents {
		got, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s is stale: run make generate", name)
	}
}

// A new policy should not have parameters if it can do without, because a user with the right can delete it then.
func TestOnlyPoliciesWithParametersAreLeftOut(t *testing.T) {
	t.Parallel()
	objects, err := manifests.Objects()
	require.NoError(t, err)
	contents, err := render(objects)
	require.NoError(t, err)
	leftOut := map[string]bool{}
	for _, object := range objects {
		if !strings.HasSuffix(object.GetKind(), "AdmissionPolicy") {
			continue
		}
		if !strings.Contains(string(contents[files[object.GetKind()]]), "\n  name: "+object.GetName()+suffix+"\n") {
			leftOut[object.GetName()] = true
		}
	}
	require.Equal(t, map[string]bool{
		"nstpl-initialization": true, "nstpl-selectors-known": true, "nstpl-template-use": true,
	}, leftOut)
}
