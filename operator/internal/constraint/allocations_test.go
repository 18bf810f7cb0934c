package constraint

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/patch"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/test/controlplane"
)

// A patch of an earlier leader changes nothing if the API server receives it after another write to the annotations on
// which the allocation depends.
func TestLateAllocationsAreRejected(t *testing.T) {
	t.Parallel()
	cluster := controlplane.New(t)
	api, err := client.New(cluster.RESTConfig(), client.Options{})
	require.NoError(t, err)
	merge := func(t *testing.T, object client.Object, patch string) {
		t.Helper()
		require.NoError(t, api.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	annotations := func(key, value string) string {
		return fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, key, value)
	}
	given := map[string]string{
		v1alpha1.UIDRangeAnnotation: "2000/10", v1alpha1.SupplementalGroupsAnnotation: "2000/10",
		v1alpha1.MCSAnnotation: "s0:c2,c0",
	}
	level := map[string]string{v1alpha1.MCSAnnotation: "s0:c2,c0"}
	ids := map[string]string{v1alpha1.UIDRangeAnnotation: "1000/10"}
	for i, c := range []struct {
		before, given map[string]string
		meanwhile     string
		late          bool
	}{
		{given: given},
		// the patch cannot tell which annotations were added
		{given: given, meanwhile: annotations("a", "b"), late: true},
		{given: given, meanwhile: annotations(v1alpha1.UIDRangeAnnotation, "1000/10"), late: true},
		{given: given, before: map[string]string{"a": "b"}},
		{given: given, before: map[string]string{"a": "b"}, meanwhile: annotations("a", "c")},
		{
			given: given, before: map[string]string{"a": "b"},
			meanwhile: annotations(v1alpha1.UIDRangeAnnotation, "1000/10"), late: true,
		},
		{
			given: given, before: map[string]string{"a": "b"},
			meanwhile: annotations(v1alpha1.MCSAnnotation, "s0:c1,c0"), late: true,
		},
		{given: given, before: ids},
		{given: given, before: ids, meanwhile: annotations(v1alpha1.UIDRangeAnnotation, "3000/10"), late: true},
		{given: level, before: ids},
		{given: level, before: ids, meanwhile: annotations(v1alpha1.UIDRangeAnnotation, "3000/10"), late: true},
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("allocation-", i), Annotations: c.before,
		}}
		require.NoError(t, api.Create(t.Context(), ns))
		seen := ns.DeepCopy()
		if c.meanwhile != "" {
			merge(t, ns, c.meanwhile)
		}
		after := ns.DeepCopy()
		err := api.Status().Patch(t.Context(), after, allocationPatch(seen, c.given))
		if c.late {
			require.True(t, patch.IsStale(err), "%d: %v", i, err)
			require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(ns), after))
			require.Equal(t, ns.Annotations, after.Annotations, i)
			continue
		}
		require.NoError(t, err, i)
		require.Subset(t, after.Annotations, c.given, i)
	}
}

func namespace(name string, created int64, annotations map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), CreationTimestamp: metav1.Unix(created, 0), Annotations: annotations,
	}}
}

// block returns the annotations of a block of the pool of TestAllocationsOfNamespaces.
func block(number int64) map[string]string {
	ids := fmt.Sprintf("%d/10", 1000+10*number)
	return map[string]string{
		v1alpha1.UIDRangeAnnotation: ids, v1alpha1.SupplementalGroupsAnnotation: ids,
		v1alpha1.MCSAnnotation: scc.Levels{Prefix: "s0:", Each: 2, PerNamespace: 1}.Level(int(number)),
	}
}

// Which namespaces of a list are given which annotations.
func TestAllocationsOfNamespaces(t *testing.T) {
	t.Parallel()
	pool, err := scc.NewPool("1000-1039/10", "s0:/2", 1)
	require.NoError(t, err)
	withoutLevel := block(1)
	delete(withoutLevel, v1alpha1.MCSAnnotation)
	for name, test := range map[string]struct {
		namespaces []*corev1.Namespace
		written    map[types.UID]map[string]string
		next       int
		want       map[string]map[string]string
		repaired   []string
		// missing are the namespaces whose written annotations the cache still does not show.
		missing []types.UID
	}{
		"the oldest first": {
			namespaces: []*corev1.Namespace{namespace("b", 2, nil), namespace("a", 3, nil), namespace("c", 1, nil)},
			want:       map[string]map[string]string{"c": block(0), "b": block(1), "a": block(2)},
		},
		"from the next block": {
			namespaces: []*corev1.Namespace{namespace("a", 1, nil)}, next: 2,
			want: map[string]map[string]string{"a": block(2)},
		},
		"exempt namespaces": {
			namespaces: []*corev1.Namespace{namespace("kube-system", 1, nil), namespace("a", 2, nil)},
			want:       map[string]map[string]string{"a": block(0)},
		},
		"a block that a namespace has": {
			namespaces: []*corev1.Namespace{namespace("a", 2, block(0)), namespace("b", 1, nil)},
			want:       map[string]map[string]string{"b": block(1)},
		},
		"a namespace that lacks a level": {
			namespaces: []*corev1.Namespace{namespace("a", 1, withoutLevel)},
			want: map[string]map[string]string{
				"a": {v1alpha1.MCSAnnotation: block(1)[v1alpha1.MCSAnnotation]},
			},
		},
		"a block that two namespaces have": {
			namespaces: []*corev1.Namespace{namespace("young", 2, block(0)), namespace("old", 1, block(0))}, next: 1,
			want: map[string]map[string]string{"young": block(1)}, repaired: []string{"young"},
		},
		"annotations that the cache does not show yet": {
			namespaces: []*corev1.Namespace{namespace("a", 1, nil), namespace("b", 2, nil)},
			written:    map[types.UID]map[string]string{"a": block(0)}, next: 1,
			want: map[string]map[string]string{"b": block(1)}, missing: []types.UID{"a"},
		},
		"annotations that the cache shows": {
			namespaces: []*corev1.Namespace{namespace("a", 1, block(0))},
			written:    map[types.UID]map[string]string{"a": block(0)}, next: 1,
		},
		"annotations that a user changed since": {
			namespaces: []*corev1.Namespace{namespace("a", 1, block(3))},
			written:    map[types.UID]map[string]string{"a": block(0)}, next: 1,
		},
		"a deleted namespace of the same name": {
			namespaces: []*corev1.Namespace{namespace("a", 1, nil)},
			written:    map[types.UID]map[string]string{"an older UID": block(0)}, next: 1,
			want: map[string]map[string]string{"a": block(1)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holders, missing := holdersOf(test.namespaces, []string{"kube-system"}, test.written)
			require.ElementsMatch(t, test.missing, slices.Collect(maps.Keys(missing)))
			allocations, _, err := scc.Allocate(pool, test.next, holders)
			require.NoError(t, err)
			given := map[string]map[string]string{}
			var repaired []string
			for _, allocation := range allocations {
				given[allocation.Namespace] = allocation.Annotations
				if allocation.Repairs != "" {
					repaired = append(repaired, allocation.Namespace)
				}
			}
			if test.want == nil {
				test.want = map[string]map[string]string{}
			}
			require.Equal(t, test.want, given)
			require.Equal(t, test.repaired, repaired)
		})
	}
}

// queued records the requests that are added to a queue.
type queued struct {
	backoff.Queue
	now, later []string
}

func (q *queued) Add(request reconcile.Request) { q.now = append(q.now, request.Name) }

func (q *queued) AddAfter(request reconcile.Request, _ time.Duration) {
	q.later = append(q.later, request.Name)
}

// Which events reconcile a namespace alone, and which all of them, whose request has no name.
func TestEventsThatAllocate(t *testing.T) {
	t.Parallel()
	plain, held, complete := namespace("plain", 1, nil), namespace("held", 1, nil), namespace("complete", 1, block(0))
	held.Labels = map[string]string{v1alpha1.InitializingLabel: "true"}
	given := namespace("given", 1, nil)
	withGiven, withOther := namespace("given", 1, block(1)), namespace("given", 1, block(2))
	opened := namespace("held", 1, nil)
	recreated := namespace("given", 2, nil)
	recreated.UID = "another"
	for name, test := range map[string]struct {
		event      any
		now, later []string
	}{
		"the start":                     {event.CreateEvent{Object: plain, IsInInitialList: true}, []string{""}, nil},
		"a new namespace":               {event.CreateEvent{Object: plain}, []string{"plain"}, nil},
		"one that waits for its report": {event.CreateEvent{Object: held}, nil, []string{"held"}},
		"one that opens without a block": {
			event.UpdateEvent{ObjectOld: held, ObjectNew: opened}, []string{"held"}, nil,
		},
		"one that comes with a block": {event.CreateEvent{Object: complete}, []string{""}, nil},
		"what it was given":           {event.UpdateEvent{ObjectOld: given, ObjectNew: withGiven}, nil, nil},
		"what it was not given":       {event.UpdateEvent{ObjectOld: given, ObjectNew: withOther}, []string{""}, nil},
		"a block is removed":          {event.UpdateEvent{ObjectOld: withGiven, ObjectNew: given}, []string{""}, nil},
		"another change":              {event.UpdateEvent{ObjectOld: plain, ObjectNew: plain}, nil, nil},
		"created again":               {event.UpdateEvent{ObjectOld: given, ObjectNew: recreated}, []string{"given"}, nil},
		"deleted":                     {event.DeleteEvent{Object: plain}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &Allocations{Blocks: &Blocks{given: map[types.UID]map[string]string{given.UID: block(1)}}}
			queue := &queued{}
			switch e := test.event.(type) {
			case event.CreateEvent:
				r.handler().Create(t.Context(), e, queue)
			case event.UpdateEvent:
				r.handler().Update(t.Context(), e, queue)
			case event.DeleteEvent:
				r.handler().Delete(t.Context(), e, queue)
			}
			require.Equal(t, test.now, queue.now)
			require.Equal(t, test.later, queue.later)
		})
	}
}

// An initializing namespace is given a block by its first report, unless it waits for other initializers only.
func TestAwaitsReport(t *testing.T) {
	t.Parallel()
	pending := func(list string, conditions ...corev1.NamespaceCondition) *corev1.Namespace {
		ns := namespace("a", 1, map[string]string{v1alpha1.PendingAnnotation: list})
		ns.Labels = map[string]string{v1alpha1.InitializingLabel: "true"}
		ns.Status.Conditions = conditions
		return ns
	}
	failed := corev1.NamespaceCondition{Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionFalse}
	plain := namespace("a", 1, nil)
	for name, test := range map[string]struct {
		ns   *corev1.Namespace
		want bool
	}{
		"of a namespace that templates select": {pending("other,namespace-template"), true},
		"of one that is not populated yet":     {pending("namespace-template", failed), false},
		"of one that others initialize":        {pending("other"), false},
		"of one that is open":                  {plain, false},
	} {
		require.Equal(t, test.want, awaitsReport(test.ns), name)
	}
}
