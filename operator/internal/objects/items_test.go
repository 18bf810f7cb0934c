package objects

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever is stored and removed, items has what a plain map would have.
func TestItemsAreAMap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	stored, model := newItems(), map[string]*item{}
	for range 20_000 {
		i := &item{
			namespace: fmt.Sprintf("n%d", random.IntN(5)), name: fmt.Sprintf("o%d", random.IntN(8)),
			template: fmt.Sprintf("t%d", random.IntN(3)),
		}
		key := i.namespace + "/" + i.name
		if random.IntN(2) == 0 {
			require.Same(t, model[key], stored.put(i))
			model[key] = i
		} else {
			require.Equal(t, model[key] != nil, stored.remove(i.namespace, i.name))
			delete(model, key)
		}
		require.ElementsMatch(t, ofTemplate(model, i.template), stored.of(i.template))
		require.True(t, slices.IsSortedFunc(stored.byNamespace[i.namespace],
			func(a, b *item) int { return strings.Compare(a.name, b.name) }))
	}
	for _, i := range model {
		stored.remove(i.namespace, i.name)
	}
	require.Equal(t, newItems(), stored, "nothing is left of removed items")
}

func ofTemplate(model map[string]*item, template string) []*item {
	var of []*item
	for _, i := range model {
		if i.template == template {
			of = append(of, i)
		}
	}
	return of
}

func TestItemsExceptThoseOfAList(t *testing.T) {
	stored := newItems()
	kept, other := &item{namespace: "a", name: "kept"}, &item{namespace: "b", name: "other"}
	stored.put(kept)
	stored.put(other)
	list := []*item{{namespace: "a", name: "kept", version: "2"}, {namespace: "a", name: "new"}}
	require.Equal(t, []*item{other}, stored.except(list))
	require.Empty(t, stored.except(append(list, other)))
}
