package population

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestNamespaceIsFreshUntilItIsLookedAt(t *testing.T) {
	ledger := NewLedger(func(string) {})
	require.False(t, ledger.Fresh("a", "1"), "it was there before")
	ledger.Born("a", "1", time.Now())
	require.True(t, ledger.Fresh("a", "1"))
	require.False(t, ledger.Fresh("a", "2"), "it is another one")
	born := ledger.Record("a", "1", nil, false)
	require.True(t, born.IsZero(), "it is not populated yet")
	require.False(t, ledger.Fresh("a", "1"))
	born = ledger.Record("a", "1", nil, true)
	require.False(t, born.IsZero())
	require.True(t, ledger.Record("a", "1", nil, true).IsZero(), "it was populated before")
}

// A template's roll-out finds a namespace in the cache before the event of its creation comes.
func TestBirthAfterTheFirstLookChangesNothing(t *testing.T) {
	ledger := NewLedger(func(string) {})
	ledger.Record("a", "1", nil, true)
	ledger.Born("a", "1", time.Now())
	require.False(t, ledger.Fresh("a", "1"))
}

func TestWhatComesLateOfANamespaceIsNotTakenForItsSuccessor(t *testing.T) {
	ledger := NewLedger(func(string) {})
	ledger.Born("a", "1", time.Now())
	ledger.Born("a", "2", time.Now())
	ledger.Record("a", "1", map[string]Standing{"t": {State: Failed}}, false)
	ledger.Forget("a")
	require.True(t, ledger.Fresh("a", "2"))
	require.Zero(t, ledger.Summary("t").Counts)
}

func TestSummaryCountsNamespacesOnce(t *testing.T) {
	changed := map[string]int{}
	ledger := NewLedger(func(template string) { changed[template]++ })
	ledger.Expect("t", 0, []string{"a", "b", "c", "d", "e"})
	require.Equal(t, Summary{Counts: v1alpha1.NamespaceCounts{Matched: 5}, Pending: 5}, ledger.Summary("t"))
	failure := v1alpha1.ObjectFailure{Namespace: "b", Object: "configmap/x", Message: "no"}
	ledger.Record("a", "1", map[string]Standing{"t": {State: Populated}}, true)
	ledger.Record("b", "1", map[string]Standing{"t": {State: Failed, Failures: []v1alpha1.ObjectFailure{failure}}},
		false)
	ledger.Record("c", "1", map[string]Standing{"t": {State: Drifted}}, true)
	ledger.Record("d", "1", map[string]Standing{"t": {State: OptedOut}}, false)
	ledger.Record("e", "1", nil, false)
	require.Equal(t, Summary{
		Counts:   v1alpha1.NamespaceCounts{Matched: 3, Populated: 1, Failed: 1, Drifted: 1, OptedOut: 1},
		Failures: []v1alpha1.ObjectFailure{failure},
	}, ledger.Summary("t"))
	before := changed["t"]
	ledger.Record("a", "1", map[string]Standing{"t": {State: Populated}}, true)
	require.Equal(t, before, changed["t"], "nothing changed")
	ledger.Forget("a")
	require.ElementsMatch(t, []string{"b", "c", "d"}, ledger.Drop("t"))
	require.Zero(t, ledger.Summary("t").Counts)
}

func TestNothingIsSettledBeforeEveryNamespaceOfTheStartWasSeen(t *testing.T) {
	changed := map[string]int{}
	ledger := NewLedger(func(template string) { changed[template]++ })
	require.False(t, ledger.Settled("t"), "it was not opened")
	ledger.Open([]string{"a", "b"})
	ledger.Record("a", "1", map[string]Standing{"t": {State: Populated}}, true)
	require.False(t, ledger.Settled("t"))
	require.False(t, ledger.Settled("selects none"))
	clear(changed)
	ledger.Forget("b")
	require.True(t, ledger.Settled("t"))
	require.Equal(t, map[string]int{"t": 1, "selects none": 1}, changed, "the status of every template is due")
}

func TestALookThatBeganBeforeAChangeIsNotAboutIt(t *testing.T) {
	ledger := NewLedger(func(string) {})
	ledger.Expect("t", 2, []string{"a"})
	ledger.Record("a", "1", map[string]Standing{"t": {Generation: 1, State: Populated}}, true)
	require.Equal(t, 1, ledger.Summary("t").Pending)
	ledger.Record("a", "1", map[string]Standing{"t": {Generation: 2, State: Populated}}, true)
	require.Zero(t, ledger.Summary("t").Pending)
	ledger.Expect("t", 1, []string{"a"})
	require.Equal(t, 1, ledger.Summary("t").Pending, "it was deleted and created anew")
}

func TestLatestIsOurOwnWriteUntilTheCacheKnowsIt(t *testing.T) {
	version := func(uid, resourceVersion string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "a", UID: types.UID(uid), ResourceVersion: resourceVersion,
		}}
	}
	ledger := NewLedger(func(string) {})
	cached, written := version("1", "9"), version("1", "10")
	ledger.Written(written)
	require.Same(t, cached, ledger.Latest(cached), "nobody looked at it, or it is gone")

	ledger.Record("a", "1", nil, true)
	require.Same(t, cached, ledger.Latest(cached), "nothing was written")
	ledger.Written(written)
	require.Same(t, written, ledger.Latest(cached))
	require.Same(t, written, ledger.Latest(cached), "as often as it is asked")
	other := version("2", "8")
	require.Same(t, other, ledger.Latest(other), "it is another namespace")
	ledger.Written(version("2", "11"))
	require.Same(t, written, ledger.Latest(cached), "that was about another namespace")

	caughtUp := version("1", "10")
	require.Same(t, caughtUp, ledger.Latest(caughtUp))
	require.Same(t, cached, ledger.Latest(cached), "what was written is let go of")

	ledger.Written(written)
	ledger.Record("a", "2", nil, true)
	require.Same(t, cached, ledger.Latest(cached), "another one took its name")
}
