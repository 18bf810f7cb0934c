package objects

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/engine/populate"
)

// Whatever is stored and removed, items has what a plain map would have.
func TestItemsAreAMap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	stored, model := newItems(), map[string]*populate.Reduced{}
	for range 20_000 {
		i := &populate.Reduced{
			Namespace: fmt.Sprintf("n%d", random.IntN(5)), Name: fmt.Sprintf("o%d", random.IntN(8)),
			Template: fmt.Sprintf("t%d", random.IntN(3)),
		}
		key := i.Namespace + "/" + i.Name
		if random.IntN(2) == 0 {
			require.Same(t, model[key], stored.put(i))
			model[key] = i
		} else {
			require.Equal(t, model[key] != nil, stored.remove(i.Namespace, i.Name))
			delete(model, key)
		}
		require.ElementsMatch(t, ofTemplate(model, i.Template), stored.of(i.Template))
		require.True(t, slices.IsSortedFunc(stored.byNamespace[i.Namespace],
			func(a, b *populate.Reduced) int { return strings.Compare(a.Name, b.Name) }))
	}
	for _, i := range model {
		stored.remove(i.Namespace, i.Name)
	}
	require.Equal(t, newItems(), stored, "nothing is left of removed items")
}

func ofTemplate(model map[string]*populate.Reduced, template string) []*populate.Reduced {
	var of []*populate.Reduced
	for _, i := range model {
		if i.Template == template {
			of = append(of, i)
		}
	}
	return of
}

func TestItemsExceptThoseOfAList(t *testing.T) {
	stored := newItems()
	kept, other := &populate.Reduced{Namespace: "a", Name: "kept"}, &populate.Reduced{Namespace: "b", Name: "other"}
	stored.put(kept)
	stored.put(other)
	list := []*populate.Reduced{{Namespace: "a", Name: "kept", ResourceVersion: "2"}, {Namespace: "a", Name: "new"}}
	require.Equal(t, []*populate.Reduced{other}, stored.except(list))
	require.Empty(t, stored.except(append(list, other)))
}
