package repository

import (
	"fmt"
	"strings"
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
	r := &Repositories{}
	one, other := r.of(repositoryOf("one")), r.of(repositoryOf("other"))
	begin := time.Unix(1, 0)
	late := begin.Add(pendingFor + 1)
	id := inventory.ID{Name: "a"}
	require.False(t, one.areOver(id, begin))
	require.False(t, one.areOver(id, begin.Add(pendingFor)))
	require.True(t, one.areOver(id, late))
	require.False(t, other.areOver(id, late))
	require.False(t, one.areOver(inventory.ID{Name: "b"}, late))
	delete(one.unanswered, id)
	require.False(t, one.areOver(id, late))
	require.True(t, one.areOver(id, late.Add(pendingFor+1)))
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

// A record without room for another object has room for any commit and path.
func TestAFullRecordHasRoomForTheNextCommit(t *testing.T) {
	t.Parallel()
	r := &record{created: map[types.UID]bool{}, trees: map[string]bool{}, inForce: committed{commit: "a", path: "b"}}
	r.trees[strings.Repeat("x", r.room("full")-1)] = true
	require.Zero(t, r.room("full"))
	r.trees["full"] = true
	r.inForce = committed{commit: "sha512:" + strings.Repeat("f", 128), path: strings.Repeat("\U0001F332", 512)}
	require.LessOrEqual(t, sizeOf(r.data()), maxRecordSize)
	require.LessOrEqual(t, len(r.inForce.String()), inForceSize)
}

// A UID is in one value of the record only.
func TestTheRecordOfDeletions(t *testing.T) {
	t.Parallel()
	set := func(uids ...types.UID) map[types.UID]bool {
		all := map[types.UID]bool{}
		for _, uid := range uids {
			all[uid] = true
		}
		return all
	}
	r := &record{created: set("a", "b", "c", "d", "e"), deletions: inventory.Deletions{
		Waiting: set("b"), Kept: set("e"), Decided: set("c"), Confirmed: set("d"),
	}}
	data := r.data()
	require.Equal(t, map[string]string{
		"created": "a\n", "pending": "", "waiting": "b\n", "kept": "e\n", "decided": "c\n", "confirmed": "d\n",
	}, data)
	read := &record{created: map[types.UID]bool{}}
	read.readDeletions(data)
	require.Equal(t, r.deletions, read.deletions)
	require.Equal(t, set("a", "b", "c", "d", "e"), read.created)
}

// The value of pending objects is split at white space, which names may contain.
func TestPendingNamesMayContainWhiteSpace(t *testing.T) {
	t.Parallel()
	pending := map[inventory.ID]bool{}
	for _, name := range []string{"system:viewer", "a b", "a\nb", "a\u00a0b", "ä+b", "%20"} {
		pending[inventory.ID{
			GroupKind: schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}, Name: name,
		}] = true
	}
	value := lines(pendingLines(pending))
	require.Equal(t, pending, pendingOf(value))
	require.Contains(t, value, "ClusterRole.rbac.authorization.k8s.io/system:viewer\n")
}
