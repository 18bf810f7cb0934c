package scc_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/scc"
)

func pool(t *testing.T, text string) scc.Pool {
	t.Helper()
	p, err := scc.NewPool(text, "s0:/2", 5)
	require.NoError(t, err)
	return p
}

const defaultPool = "1000000000-1999999999/10000"

var levels = scc.Levels{Prefix: "s0:", Each: 2, PerNamespace: 5}

func holder(name string, age int, annotations ...string) scc.Holder {
	h := scc.Holder{Name: name, Created: metav1.Unix(int64(1000-age), 0), Annotations: map[string]string{}}
	for i, key := range []string{
		v1alpha1.UIDRangeAnnotation, v1alpha1.SupplementalGroupsAnnotation, v1alpha1.MCSAnnotation,
	} {
		if i < len(annotations) && annotations[i] != "-" {
			h.Annotations[key] = annotations[i]
		}
	}
	return h
}

func TestLevel(t *testing.T) {
	t.Parallel()
	for block, want := range map[int]string{
		0: "s0:c1,c0", 1: "s0:c3,c2", 2: "s0:c5,c0", 3: "s0:c6,c0", 65: "s0:c26,c0", 99_999: "s0:c1000,c495",
	} {
		require.Equal(t, want, levels.Level(block))
	}
	seen := map[string]bool{}
	for block := range 100_000 {
		require.False(t, seen[levels.Level(block)])
		seen[levels.Level(block)] = true
	}
}

func TestParsePool(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "1-2", "1-2/", "1-2/0", "1-2/3", "1-2,3-4/1", "a-b/1", "0-2147483647/1"} {
		_, err := scc.NewPool(text, "s0:/2", 5)
		require.Error(t, err, text)
	}
	for _, text := range []string{"", "s0", "s0:", "s0:/", "s0:/0", "s0:/6", "s0/2", "s0:/1", "s0:/x"} {
		_, err := scc.NewPool(defaultPool, text, 5)
		require.Error(t, err, text)
	}
	_, err := scc.NewPool(defaultPool, "s0:/2", 0)
	require.Error(t, err)
	three, err := scc.NewPool(defaultPool, "s1:/3", 1)
	require.NoError(t, err)
	require.Equal(t, "s1:c2,c1,c0", three.Levels.Level(0))
	require.Equal(t, "s1:c3,c1,c0", three.Levels.Level(1))
}

func TestAllocate(t *testing.T) {
	t.Parallel()
	const first, second = "1000000000/10000", "1000010000/10000"
	for name, test := range map[string]struct {
		next    int
		holders []scc.Holder
		want    string
	}{
		"nobody":       {0, nil, ""},
		"all is there": {0, []scc.Holder{holder("a", 1, first, first, "s0:c1,c0")}, ""},
		"new ones, the oldest first": {0, []scc.Holder{holder("b", 1), holder("a", 1), holder("old", 2)},
			"old: 1000000000/10000 1000000000/10000 s0:c1,c0; a: 1000010000/10000 1000010000/10000 s0:c3,c2; b: 1000020000/10000 1000020000/10000 s0:c5,c0"},
		"in turn": {
			7, []scc.Holder{holder("a", 1)}, "a: 1000070000/10000 1000070000/10000 s0:c8,c7",
		},
		"around, past what is taken": {
			99_999, []scc.Holder{holder("a", 2, "1999990000/10000", "-", "s0:c1,c0"), holder("b", 1)},
			"a:  1999990000/10000 ; b: 1000010000/10000 1000010000/10000 s0:c3,c2",
		},
		"the rest, singly":         {5, []scc.Holder{holder("a", 1, second)}, "a:  1000010000/10000 s0:c3,c2"},
		"by hand":                  {0, []scc.Holder{holder("a", 1, "500/5", "500/5", "s0:c7,c8")}, ""},
		"by hand, without a level": {0, []scc.Holder{holder("a", 1, "500-504", "500-504")}, "a:   s0:c1,c0"},
		"by hand across blocks": {
			0, []scc.Holder{holder("a", 2, "1000005000/10000", "1/1", "s0:c7,c8"), holder("b", 1)},
			"b: 1000020000/10000 1000020000/10000 s0:c5,c0",
		},
		"twice": {9, []scc.Holder{
			holder("young", 1, first, first, "s0:c1,c0"), holder("old", 2, first, first, "s0:c1,c0"),
		},
			"young: 1000090000/10000 1000090000/10000 s0:c10,c0 (its user ids 1000000000-1000009999 are also those of namespace old)"},
		"partly the same": {9,
			[]scc.Holder{
				holder("young", 1, "1000000005/2", "5/5", "s0:c1,c9"), holder("old", 2, first, first, "s0:c1,c0"),
				holder("other", 3, second, second, "s0:c3,c2"),
			},
			"young: 1000090000/10000 1000090000/10000 s0:c10,c0 (its user ids 1000000005-1000000006 are also those of namespace old)"},
		"the same level": {9,
			[]scc.Holder{holder("young", 1, second, second, "s0:c0,c1"), holder("old", 2, first, first, "s0:c1,c0")},
			"young: 1000090000/10000 1000090000/10000 s0:c10,c0 (its SELinux level s0:c0,c1 is also that of namespace old)"},
		"not to be read": {9, []scc.Holder{holder("a", 1, "all of them")},
			`a: 1000090000/10000 1000090000/10000 s0:c10,c0 (the namespace's annotation policy.nstpl.dev/scc.uid-range: "all of them" is no list of blocks of ids: "all of them" is neither first/size nor first-last)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			allocations, _, err := scc.Allocate(pool(t, defaultPool), test.next, test.holders)
			require.NoError(t, err)
			require.Equal(t, test.want, say(allocations))
		})
	}
}

func say(allocations []scc.Allocation) string {
	text := ""
	for i, a := range allocations {
		if i > 0 {
			text += "; "
		}
		text += fmt.Sprintf("%s: %s %s %s", a.Namespace, a.Annotations[v1alpha1.UIDRangeAnnotation],
			a.Annotations[v1alpha1.SupplementalGroupsAnnotation], a.Annotations[v1alpha1.MCSAnnotation])
		if a.Repairs != "" {
			text += " (" + a.Repairs + ")"
		}
	}
	return text
}

func TestAllocateUntilNothingIsLeft(t *testing.T) {
	t.Parallel()
	small := pool(t, "100-129/10")
	allocations, _,
		err := scc.Allocate(small, 0, []scc.Holder{holder("a", 4), holder("b", 3), holder("c", 2), holder("d", 1)})
	require.ErrorIs(t, err, scc.ErrPoolExhausted)
	require.Len(t, allocations, 3)
}

// Whatever namespaces have, afterwards each has its own, and another look finds nothing to do.
func TestAllocateIsUniqueAndStable(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		small := pool(t, "1000-1999/10")
		var holders []scc.Holder
		for i := range 30 {
			h := holder(fmt.Sprint("ns-", i), random.IntN(5))
			if random.IntN(2) == 0 {
				h.Annotations[v1alpha1.UIDRangeAnnotation] = fmt.Sprintf("%d/%d", 995+random.IntN(60),
					1+random.IntN(15))
			}
			if random.IntN(3) == 0 {
				h.Annotations[v1alpha1.MCSAnnotation] = levels.Level(random.IntN(40))
			}
			holders = append(holders, h)
		}
		allocations, next, err := scc.Allocate(small, random.IntN(100), holders)
		require.NoError(t, err)
		for _, allocation := range allocations {
			for i := range holders {
				if holders[i].Name == allocation.Namespace {
					maps.Copy(holders[i].Annotations, allocation.Annotations)
				}
			}
		}
		levels, ids := map[string]string{}, map[int64]string{}
		for _, h := range holders {
			require.Len(t, h.Annotations, 3)
			require.Empty(t, levels[h.Annotations[v1alpha1.MCSAnnotation]])
			levels[h.Annotations[v1alpha1.MCSAnnotation]] = h.Name
			blocks, err := scc.ParseBlocks(h.Annotations[v1alpha1.UIDRangeAnnotation])
			require.NoError(t, err)
			for id := blocks[0].Min; id <= blocks[0].Max; id++ {
				require.Empty(t, ids[id], "%d of %s", id, h.Name)
				ids[id] = h.Name
			}
		}
		again, unchanged, err := scc.Allocate(small, next, holders)
		require.NoError(t, err)
		require.Empty(t, again)
		require.Equal(t, next, unchanged)
	}
}
