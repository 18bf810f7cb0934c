package policyspace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/freshness"
	"nstpl.dev/nstpl/operator/quota"
)

// placedIn returns the metadata of a namespace whose creator is jane.
func placedIn(space, name string, uid types.UID, version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: uid, ResourceVersion: version, Labels: map[string]string{v1alpha1.PolicySpaceLabel: space},
		Annotations: map[string]string{v1alpha1.CreatorAnnotation: "jane"},
	}}
}

// censusOf returns a census with the namespaces of a list.
func censusOf(t *testing.T, version string, namespaces ...*metav1.PartialObjectMetadata) *census {
	t.Helper()
	c := newCensus(nil, nil)
	list := make([]any, 0, len(namespaces))
	for _, ns := range namespaces {
		list = append(list, ns)
	}
	require.NoError(t, c.Replace(list, version))
	return c
}

func reservationOf(name string, uid types.UID, since string) v1alpha1.NamespaceReservation {
	return v1alpha1.NamespaceReservation{Name: name, UID: uid, Since: since, Creator: "jane"}
}

func TestCensusReportsMovedAndReplacedNamespaces(t *testing.T) {
	t.Parallel()
	c := censusOf(t, "5", placedIn("a", "n", "1", "5"))
	var reported []string
	c.listener = func(spaces []string) { reported = append(reported, strings.Join(spaces, ">")) }
	for _, test := range []struct {
		ns   *metav1.PartialObjectMetadata
		want []string
	}{
		{placedIn("a", "n", "1", "6"), nil},
		{placedIn("b", "n", "1", "7"), []string{"a>b"}},
		{placedIn("b", "n", "2", "8"), []string{"b>b"}},
	} {
		reported = nil
		require.NoError(t, c.Update(test.ns))
		require.Equal(t, test.want, reported, test.ns.ResourceVersion)
	}
	reported = nil
	require.NoError(t, c.Replace([]any{placedIn("b", "n", "3", "10")}, "10"))
	require.Equal(t, []string{"b>b"}, reported, "replaced while nothing was watched")
}

func TestCensusCountsNamespacesAndReservations(t *testing.T) {
	t.Parallel()
	in := map[string]bool{"a": true}
	about := reservationOf("new", "9", "")
	for name, test := range map[string]struct {
		reservations []v1alpha1.NamespaceReservation
		about        v1alpha1.NamespaceReservation
		// stays says that b1 has the depth label of a.
		stays bool
		want  quota.NamespaceUse
	}{
		"those that exist": {about: about, want: quota.NamespaceUse{Existing: 2, ExistingOfCreator: 2}},
		"another creator": {
			about: v1alpha1.NamespaceReservation{Name: "new", Creator: "john"}, want: quota.NamespaceUse{Existing: 2},
		},
		"not the one that is placed": {
			about: reservationOf("a1", "1", "5"), want: quota.NamespaceUse{Existing: 1, ExistingOfCreator: 1},
		},
		"those that are being created": {
			about: about, reservations: []v1alpha1.NamespaceReservation{reservationOf("r", "8", "")},
			want: quota.NamespaceUse{Existing: 2, ExistingOfCreator: 2, Reserved: 1, ReservedOfCreator: 1},
		},
		"those that exist are reserved no more": {
			about: about, reservations: []v1alpha1.NamespaceReservation{reservationOf("a1", "1", "")},
			want: quota.NamespaceUse{Existing: 2, ExistingOfCreator: 2},
		},
		"one that is about to move there": {
			about: about, reservations: []v1alpha1.NamespaceReservation{reservationOf("b1", "3", "7")},
			want: quota.NamespaceUse{Existing: 2, ExistingOfCreator: 2, Reserved: 1, ReservedOfCreator: 1},
		},
		"one that changed otherwise did not move": {
			about: about, reservations: []v1alpha1.NamespaceReservation{reservationOf("b1", "3", "6")},
			want: quota.NamespaceUse{Existing: 2, ExistingOfCreator: 2},
		},
		"a name counts once": {
			about: about, reservations: []v1alpha1.NamespaceReservation{
				reservationOf("a1", "8", ""), reservationOf("r", "9", ""), reservationOf("r", "10", ""),
			},
			want: quota.NamespaceUse{Existing: 2, ExistingOfCreator: 2, Reserved: 1, ReservedOfCreator: 1},
		},
		"its own reservation": {
			about: about, reservations: []v1alpha1.NamespaceReservation{about},
			want: quota.NamespaceUse{Existing: 2, ExistingOfCreator: 2},
		},
		"one that its label moves, and that stays": {
			about: about, stays: true, want: quota.NamespaceUse{Existing: 3, ExistingOfCreator: 3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := censusOf(t, "10", placedIn("a", "a1", "1", "5"), placedIn("a", "a2", "2", "6"), placedIn("b", "b1", "3", "7"),
				placedIn("a", "kube-public", "4", "8")) // a system namespace belongs to no policy space
			if test.stays {
				stays := placedIn("b", "b1", "3", "8")
				stays.Labels["a"+v1alpha1.DepthLabelSuffix] = "0"
				require.NoError(t, c.Update(stays))
				both := c.count(map[string]bool{"a": true, "b": true}, nil, v1alpha1.NamespaceReservation{})
				require.Equal(t, 3, both.Existing, "each once")
			}
			require.Equal(t, test.want, c.count(in, test.reservations, test.about))
		})
	}
}

func TestCensusEndsReservationsOfKnownNamespaces(t *testing.T) {
	t.Parallel()
	c := censusOf(t, "10", placedIn("a", "a1", "1", "5"))
	all := []v1alpha1.NamespaceReservation{
		reservationOf("a1", "1", ""), reservationOf("a2", "2", ""), reservationOf("a3", "3", "11"),
	}
	remaining, asOf := c.remaining(all)
	require.Equal(t, all[1:], remaining)
	require.Equal(t, "5", asOf)

	require.NoError(t, c.Add(placedIn("a", "a2", "2", "11")))
	require.NoError(t, c.Delete(placedIn("a", "a2", "2", "12")))
	require.NoError(t, c.Add(placedIn("a", "a3", "3", "11")))
	remaining, asOf = c.remaining(all)
	require.Equal(t, all[2:], remaining, "a deleted namespace was seen, and a move goes on from a seen state")
	require.Equal(t, "5", asOf)
	require.NoError(t, c.Update(placedIn("b", "a3", "3", "13")))
	remaining, asOf = c.remaining(all)
	require.Empty(t, remaining)
	require.Equal(t, "13", asOf)
	require.NoError(t, c.Replace([]any{placedIn("a", "a1", "4", "20")}, "21"))
	remaining, _ = c.remaining(append(all, reservationOf("a1", "4", ""), reservationOf("a1", "5", "")))
	require.Equal(t, []v1alpha1.NamespaceReservation{reservationOf("a1", "5", "")}, remaining,
		"a list ends the reservations of those that it replaces")
	require.Equal(t, []string{"a"}, c.spaces())
}

func TestCensusIsAsNewAsItsLastChange(t *testing.T) {
	t.Parallel()
	c := newCensus(nil, nil)
	require.False(t, c.wait(t.Context(), "", 0), "before the first list it is as new as nothing")
	require.NoError(t, c.Replace(nil, "10"))
	require.True(t, c.wait(t.Context(), "", 0))
	require.True(t, c.wait(t.Context(), "10", 0))
	require.False(t, c.wait(t.Context(), "11", 0))
	go func() { _ = c.Bookmark("11") }()
	require.True(t, c.wait(t.Context(), "11", time.Minute))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, c.wait(ended, "12", time.Minute))
}

// Requests on two replicas with late censuses, lost and late writes, moves, deletions and a leader that ends
// reservations follow one another at random. The number of namespaces never exceeds the limit.
func TestNumberOfNamespacesNeverExceedsTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 4
	full := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // the tests are reproducible
		cluster := newSimulation(t, limit)
		for range 200 {
			replica := cluster.replicas[r.IntN(2)]
			name := fmt.Sprint("n", r.IntN(9))
			switch r.IntN(11) {
			case 0, 1, 2:
				cluster.requestCreation(replica, name)
			case 3, 4, 5:
				cluster.store(r)
			case 6:
				cluster.delete(name)
			case 7:
				replica.receive(t, cluster.events)
			case 8:
				cluster.settle(replica)
			case 9:
				cluster.requestMove(replica, name)
			case 10:
				cluster.leave(name)
			}
			inSpace := cluster.namespacesInSpace()
			require.LessOrEqual(t, inSpace, limit, "seed %d", seed)
			if inSpace == limit {
				full++
			}
		}
	}
	require.Greater(t, full, 1000, "the limit is reached often, so that a mistake would exceed it")
}

// simulation is an API server with namespaces in the policy spaces s, which limits their number, and other, and two
// replicas of the operator.
type simulation struct {
	space    *v1alpha1.PolicySpace
	stored   map[string]*metav1.PartialObjectMetadata
	allowed  []v1alpha1.NamespaceReservation
	events   []simulatedEvent
	version  int
	replicas [2]*simulatedReplica
}

type simulatedEvent struct {
	object    *metav1.PartialObjectMetadata
	isDeleted bool
}

// simulatedReplica has a census that has seen some events.
type simulatedReplica struct {
	census   *census
	received int
}

func newSimulation(t *testing.T, limit int) *simulation {
	t.Helper()
	space := countedSpace(resourceList(string(quota.Namespaces), fmt.Sprint(limit)), nil)
	s := &simulation{space: space, stored: map[string]*metav1.PartialObjectMetadata{}, version: 10}
	for i := range s.replicas {
		s.replicas[i] = &simulatedReplica{census: censusOf(t, "10")}
	}
	return s
}

// receive delivers the next event to the census of a replica.
func (r *simulatedReplica) receive(t *testing.T, events []simulatedEvent) {
	t.Helper()
	if r.received == len(events) {
		return
	}
	event := events[r.received]
	r.received++
	if event.isDeleted {
		require.NoError(t, r.census.Delete(event.object))
	} else {
		require.NoError(t, r.census.Add(event.object))
	}
}

// requestCreation asks a replica whether a namespace may be created. Another one of its name may exist then, or be
// created first.
func (s *simulation) requestCreation(r *simulatedReplica, name string) {
	s.version++
	s.request(r, reservationOf(name, types.UID(fmt.Sprint("uid", s.version)), ""))
}

// requestMove asks a replica whether a namespace may move to the policy space s.
func (s *simulation) requestMove(r *simulatedReplica, name string) {
	if ns, exists := s.stored[name]; exists && !isInSpace(ns) {
		s.request(r, reservationOf(name, ns.UID, ns.ResourceVersion))
	}
}

// request asks a replica whether there is room for a namespace, as NamespaceQuota does it.
func (s *simulation) request(r *simulatedReplica, about v1alpha1.NamespaceReservation) {
	if !r.census.wait(context.Background(), s.space.Status.NamespacesAsOf, 0) {
		return
	}
	use := r.census.count(map[string]bool{"s": true}, s.space.Status.NamespaceReservations, about)
	if quota.CheckNamespaces(s.space, quota.Creator{Name: "jane"}, use) != nil {
		return
	}
	remaining, asOf := r.census.remaining(s.space.Status.NamespaceReservations)
	s.space.Status.NamespaceReservations = quota.WithReservation(remaining, about)
	s.space.Status.NamespacesAsOf = freshness.Newest(s.space.Status.NamespacesAsOf, asOf)
	s.allowed = append(s.allowed, about)
}

func isInSpace(ns *metav1.PartialObjectMetadata) bool {
	return ns.Labels[v1alpha1.PolicySpaceLabel] == "s"
}

func (s *simulation) namespacesInSpace() int {
	number := 0
	for _, ns := range s.stored {
		if isInSpace(ns) {
			number++
		}
	}
	return number
}

// put stores a state of a namespace.
func (s *simulation) put(space, name string, uid types.UID) {
	s.version++
	s.stored[name] = placedIn(space, name, uid, fmt.Sprint(s.version))
	s.events = append(s.events, simulatedEvent{object: s.stored[name]})
}

// store stores one of the allowed namespaces, or drops it from the requests, as if it was lost. It is also lost if its
// name exists, or if it changed before it moves. A reservation of a lost request would only expire; the leader ends it
// here, except that of a move which came too late: the census ends that by itself.
func (s *simulation) store(r *rand.Rand) {
	if len(s.allowed) == 0 {
		return
	}
	i := r.IntN(len(s.allowed))
	about := s.allowed[i]
	s.allowed = slices.Delete(s.allowed, i, i+1)
	existing, exists := s.stored[about.Name]
	if about.Since != "" && (!exists || existing.UID != about.UID || existing.ResourceVersion != about.Since) {
		return
	}
	if exists && about.Since == "" || r.IntN(4) == 0 {
		s.space.Status.NamespaceReservations = slices.DeleteFunc(s.space.Status.NamespaceReservations,
			func(r v1alpha1.NamespaceReservation) bool { return r == about })
		return
	}
	s.put("s", about.Name, about.UID)
}

// leave moves a namespace out of the policy space s.
func (s *simulation) leave(name string) {
	if ns, exists := s.stored[name]; exists && isInSpace(ns) {
		s.put("other", name, ns.UID)
	}
}

func (s *simulation) delete(name string) {
	if ns, exists := s.stored[name]; exists {
		s.version++
		gone := ns.DeepCopy()
		gone.ResourceVersion = fmt.Sprint(s.version)
		delete(s.stored, name)
		s.events = append(s.events, simulatedEvent{gone, true})
	}
}

// settle ends reservations as the leader does.
func (s *simulation) settle(r *simulatedReplica) {
	if !r.census.wait(context.Background(), s.space.Status.NamespacesAsOf, 0) {
		return
	}
	remaining, asOf := r.census.remaining(s.space.Status.NamespaceReservations)
	s.space.Status.NamespaceReservations = remaining
	s.space.Status.NamespacesAsOf = freshness.Newest(s.space.Status.NamespacesAsOf, asOf)
}
