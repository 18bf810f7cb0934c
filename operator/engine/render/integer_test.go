package render

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/types"
)

// A mark that is tried again after each text that contains it would make the build of a long text very slow.
func TestTheMarkOfLargeIntegersDependsOnlyOnTheHashOfTheTexts(t *testing.T) {
	t.Parallel()
	text := "integer:"
	for i := range 100 {
		text += fmt.Sprintf("integer-%d:", i)
	}
	objects := []*unstructured.Unstructured{{Object: map[string]any{"text": text, "number": big}}}
	first := newQuotedIntegers(types.Kustomization{}, objects)
	require.Regexp(t, "^integer-[0-9a-f]{64}:$", first.mark)
	objects[0].Object["text"] = first.mark
	require.NotEqual(t, first, newQuotedIntegers(types.Kustomization{}, objects))
	patched := types.Kustomization{Patches: []types.Patch{{Patch: first.mark}}}
	require.NotEqual(t, first, newQuotedIntegers(patched, objects))
}

// A patch of a few hundred kilobytes may have all its integers in one line.
func TestLargeIntegersInOneLineNeedLittleMemory(t *testing.T) {
	const count = 2000
	patch := "[" + repeated(fmt.Sprint(big), count) + "]"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	quoted := quotedIntegers{"mark:"}.quotePatch(patch)
	runtime.ReadMemStats(&after)
	require.Equal(t, "["+repeated(fmt.Sprintf("%q", fmt.Sprint("mark:", big)), count)+"]", quoted)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20))
}
