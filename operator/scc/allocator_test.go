package scc_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
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

func TestEveryBlockHasItsOwnLevel(t *testing.T) {
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

func TestNewPoolRejectsInvalidRangesAndLevels(t *testing.T) {
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

func TestAllocateCompletesAndRepairsNamespaces(t *testing.T) {
	t.Parallel()
	const first, second = "1000000000/10000", "1000010000/10000"
	for name, test := range map[string]struct {
		next    int
		holders []scc.Holder
		want    string
	}{
		"no namespaces":                       {0, nil, ""},
		"a complete namespace is not changed": {0, []scc.Holder{holder("a", 1, first, first, "s0:c1,c0")}, ""},
		"the oldest new namespace gets the first block": {0,
			[]scc.Holder{holder("b", 1), holder("a", 1), holder("old", 2)},
			"old: 1000000000/10000 1000000000/10000 s0:c1,c0; a: 1000010000/10000 1000010000/10000 s0:c3,c2; b: 1000020000/10000 1000020000/10000 s0:c5,c0"},
		"allocation continues at the next block": {
			7, []scc.Holder{holder("a", 1)}, "a: 1000070000/10000 1000070000/10000 s0:c8,c7",
		},
		"after the last block follows the first that is free": {
			99_999, []scc.Holder{holder("a", 2, "1999990000/10000", "-", "s0:c1,c0"), holder("b", 1)},
			"a:  1999990000/10000 ; b: 1000010000/10000 1000010000/10000 s0:c3,c2",
		},
		"only missing annotations are added": {
			5, []scc.Holder{holder("a", 1, second)}, "a:  1000010000/10000 s0:c3,c2",
		},
		"user IDs outside of the pool are kept": {
			0, []scc.Holder{holder("a", 1, "500/5", "500/5", "s0:c7,c8")}, "",
		},
		"user IDs outside of the pool get the level of a free block": {
			0, []scc.Holder{holder("a", 1, "500-504", "500-504")}, "a:   s0:c1,c0",
		},
		"blocks that overlap with user IDs of a namespace are skipped": {
			0, []scc.Holder{holder("a", 2, "1000005000/10000", "1/1", "s0:c7,c8"), holder("b", 1)},
			"b: 1000020000/10000 1000020000/10000 s0:c5,c0",
		},
		"the younger of two namespaces with the same block gets a new one": {9, []scc.Holder{
			holder("young", 1, first, first, "s0:c1,c0"), holder("old", 2, first, first, "s0:c1,c0"),
		},
			"young: 1000090000/10000 1000090000/10000 s0:c10,c0 (its user IDs 1000000000-1000009999 overlap with those of namespace old)"},
		"the younger of two namespaces with overlapping user IDs gets a new block": {9,
			[]scc.Holder{
				holder("young", 1, "1000000005/2", "5/5", "s0:c1,c9"), holder("old", 2, first, first, "s0:c1,c0"),
				holder("other", 3, second, second, "s0:c3,c2"),
			},
			"young: 1000090000/10000 1000090000/10000 s0:c10,c0 (its user IDs 1000000005-1000000006 overlap with those of namespace old)"},
		"the older of two namespaces with overlapping user IDs keeps its own, although they begin later": {9,
			[]scc.Holder{
				holder("young", 1, first, first, "s0:c1,c0"), holder("old", 2, "1000000005/2", "5/5", "s0:c1,c9"),
			},
			"young: 1000090000/10000 1000090000/10000 s0:c10,c0 (its user IDs 1000000000-1000009999 overlap with those of namespace old)"},
		"the younger of two namespaces with the same level gets a new block": {9,
			[]scc.Holder{holder("young", 1, second, second, "s0:c0,c1"), holder("old", 2, first, first, "s0:c1,c0")},
			"young: 1000090000/10000 1000090000/10000 s0:c10,c0 (its SELinux level s0:c0,c1 is also that of namespace old)"},
		"groups are the user IDs of the namespace": {0, []scc.Holder{holder("a", 1, second, "-", "s0:c3,c2")},
			"a:  1000010000/10000 "},
		"a level that another namespace has is not allocated": {
			0, []scc.Holder{holder("a", 2, "500/5", "500/5", "s0:c1,c0"), holder("b", 1)},
			"b: 1000010000/10000 1000010000/10000 s0:c3,c2",
		},
		"the oldest of three overlapping namespaces keeps its user IDs": {9, []scc.Holder{
			holder("young", 1, first, first, "s0:c1,c0"), holder("middle", 2, "1000000009/2", "1/1", "s0:c9,c8"),
			holder("old", 3, first, first, "s0:c1,c0"),
		},
			"middle: 1000090000/10000 1000090000/10000 s0:c10,c0 (its user IDs 1000000009-1000000010 overlap with those of namespace old); " +
				"young: 1000100000/10000 1000100000/10000 s0:c10,c5 (its user IDs 1000000000-1000009999 overlap with those of namespace old)"},
		"an invalid annotation is replaced": {9, []scc.Holder{holder("a", 1, "all of them")},
			`a: 1000090000/10000 1000090000/10000 s0:c10,c0 (the namespace's annotation policy.nstpl.dev/scc.uid-range: "all of them" is not a list of ID blocks: "all of them" is neither first/size nor first-last)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			allocations, _, err := scc.Allocate(pool(t, defaultPool), test.next, test.holders)
			require.NoError(t, err)
			require.Equal(t, test.want, describe(allocations))
		})
	}
}

func describe(allocations []scc.Allocation) string {
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

func TestAllocateReturnsWhatItCouldWhenThePoolIsExhausted(t *testing.T) {
	t.Parallel()
	small := pool(t, "100-129/10")
	allocations, _,
		err := scc.Allocate(small, 0, []scc.Holder{holder("a", 4), holder("b", 3), holder("c", 2), holder("d", 1)})
	require.ErrorIs(t, err, scc.ErrPoolExhausted)
	require.Len(t, allocations, 3)
}

// A user who may patch templates can give a namespace more IDs than a block. They stay the namespace's own.
func TestAnExhaustedPoolNamesWhoHasMostOfIt(t *testing.T) {
	t.Parallel()
	small := pool(t, "100-199/10")
	holders := []scc.Holder{
		holder("a", 5, "100/10"), holder("b", 4, "115-125"), holder("c", 3, "131-9999"), holder("d", 2, "126/5"),
	}
	for _, allocate := range []func() error{
		func() error { _, _, err := scc.NextFree(small, 0, 1, holders); return err },
		func() error { _, _, err := scc.Allocate(small, 0, append(holders, holder("new", 1))); return err },
	} {
		err := allocate()
		require.ErrorIs(t, err, scc.ErrPoolExhausted)
		require.EqualError(t, err, scc.ErrPoolExhausted.Error()+
			", or correct the annotation policy.nstpl.dev/scc.uid-range of namespace c, which takes 69 of these IDs")
	}
	holders = holders[:1]
	for i := range 9 {
		holders = append(holders, holder(fmt.Sprint("n", i), 1, fmt.Sprintf("%d/10", 110+10*i)))
	}
	_, _, err := scc.NextFree(small, 0, 1, holders)
	require.Equal(t, scc.ErrPoolExhausted, err)
}

func TestNextFree(t *testing.T) {
	t.Parallel()
	small := pool(t, "1000-2999/10")
	for name, test := range map[string]struct {
		next, wanted int
		holders      []scc.Holder
		want         string
		after        int
	}{
		"the next ones":              {5, 2, nil, "1050/10 1060/10", 7},
		"at most a 64th of the pool": {0, 100, nil, "1000/10 1010/10 1020/10", 3},
		"not those of namespaces":    {0, 2, []scc.Holder{holder("a", 1, "1010/10"), holder("b", 2)}, "1000/10 1020/10", 3},
		"the last and the first":     {199, 2, nil, "2990/10 1000/10", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			blocks, after, err := scc.NextFree(small, test.next, test.wanted, test.holders)
			require.NoError(t, err)
			var ids []string
			for _, block := range blocks {
				require.Len(t, block, 3)
				ids = append(ids, block[v1alpha1.UIDRangeAnnotation])
			}
			require.Equal(t, test.want, strings.Join(ids, " "))
			require.Equal(t, test.after, after)
		})
	}
}

// After Allocate, every namespace has its own user IDs and level, and a second call changes nothing.
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
