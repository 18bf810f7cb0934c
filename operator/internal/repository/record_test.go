package repository

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inventory"
)

// A creation that was not answered is over after a while, which begins again with another request.
func TestUnansweredCreationsAreOverAfterAWhile(t *testing.T) {
	t.Parallel()
	var u unanswered
	begin := time.Unix(1, 0)
	late := begin.Add(pendingFor + 1)
	id := inventory.ID{Name: "a"}
	require.False(t, u.areOver("one", id, begin))
	require.False(t, u.areOver("one", id, begin.Add(pendingFor)))
	require.True(t, u.areOver("one", id, late))
	require.False(t, u.areOver("other", id, late))
	require.False(t, u.areOver("one", inventory.ID{Name: "b"}, late))
	u.forget("one", id)
	require.False(t, u.areOver("one", id, late))
	require.True(t, u.areOver("one", id, late.Add(pendingFor+1)))
	u.keep([]types.UID{"other"})
	require.Equal(t, []types.UID{"other"}, slices.Collect(maps.Keys(u.since)))
}

// Without a client, a write that reaches the API server panics.
func TestARecordThatIsTooLargeIsNotWritten(t *testing.T) {
	r := &record{pending: map[inventory.ID]bool{}}
	for i := range 20_000 {
		id := inventory.ID{
			GroupKind: schema.GroupKind{Group: "policy.nstpl.dev", Kind: "NamespaceTemplate"},
			Name:      fmt.Sprintf("foo-corp-directory-%d", i),
		}
		r.pending[id] = true
	}
	err := r.write(t.Context(), nil, &v1alpha1.PolicyRepository{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}})
	require.ErrorContains(t, err, "PolicyRepository fleet: the record of the objects")
	require.ErrorContains(t, err, "divide the tree among several PolicyRepositories")
}
