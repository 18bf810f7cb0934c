package population

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// State is what became of a template in a namespace.
type State int

// The states, of which a namespace counts under one for each template that matches it.
const (
	Pending State = iota
	Populated
	Failed
	Drifted
	OptedOut
)

// Standing is how a template stands in a namespace.
type Standing struct {
	// Generation of the template that this is about. A look that began before a change says nothing about what came of
	// it.
	Generation int64
	State      State
	Failures   []v1alpha1.ObjectFailure
	// Overridden are the objects that the template and another one both declare here.
	Overridden []populate.Overridden
}

// Ledger keeps in memory what became of each namespace. It is made anew at each start, from the first look at every
// namespace; until then the templates' status is left as it was found.
type Ledger struct {
	changed func(template string)

	mu         sync.Mutex
	namespaces map[string]*record
	// standings are by template and namespace, and standsIn says under which templates a namespace is found there.
	standings map[string]map[string]Standing
	standsIn  map[string]map[string]struct{}
	// unseen are the namespaces that were there at the start and were not looked at yet.
	unseen map[string]struct{}
	// waiting are the templates whose status waits until no namespace is unseen.
	waiting map[string]struct{}
}

type record struct {
	uid types.UID
	// born is when the creation of the namespace was seen; zero for those older than this process.
	born time.Time
	// seen says that the namespace was looked at once.
	seen bool
	// written is the namespace as it was after our last write, until the cache knows that too.
	written *corev1.Namespace
}

// NewLedger returns a ledger that calls changed for each template whose standing changed somewhere.
func NewLedger(changed func(template string)) *Ledger {
	return &Ledger{
		changed:    changed,
		namespaces: map[string]*record{},
		waiting:    map[string]struct{}{},
		standings:  map[string]map[string]Standing{},
		standsIn:   map[string]map[string]struct{}{},
	}
}

// Open says which namespaces were there at the start.
func (l *Ledger) Open(namespaces []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unseen = map[string]struct{}{}
	for _, name := range namespaces {
		l.unseen[name] = struct{}{}
	}
}

// Settled reports whether every namespace that was there at the start was looked at. If not, changed is called for the
// template when that is so, whether it selects a namespace or not.
func (l *Ledger) Settled(template string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	settled := l.unseen != nil && len(l.unseen) == 0
	if !settled {
		l.waiting[template] = struct{}{}
	}
	return settled
}

// Born notes that a namespace's creation was seen. It may have been looked at already: a cache knows it a moment before
// its event comes.
func (l *Ledger) Born(namespace string, uid types.UID, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.namespaces[namespace]; known != nil && known.uid == uid {
		return
	}
	l.namespaces[namespace] = &record{uid: uid, born: at}
}

// Fresh tells whether a namespace was created under our eyes and not looked at since. Whatever a cache still knows of
// its name is then of a namespace that had the name before.
func (l *Ledger) Fresh(namespace string, uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.namespaces[namespace]
	return known.fresh() && known.uid == uid
}

// fresh may be asked of a record that is not there.
func (r *record) fresh() bool {
	return r != nil && !r.born.IsZero() && !r.seen
}

// Record notes how the templates that match a namespace stand in it. It returns when its creation was seen, the first
// time that all is populated, and otherwise the zero time.
func (l *Ledger) Record(
	namespace string, uid types.UID, standings map[string]Standing, populated bool,
) (born time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.namespaces[namespace]
	if known.fresh() && known.uid != uid {
		// This is about a namespace that had the name before.
		return time.Time{}
	}
	if known == nil || known.uid != uid {
		known = &record{uid: uid}
		l.namespaces[namespace] = known
	}
	known.seen = true
	if populated {
		born, known.born = known.born, time.Time{}
	}
	for template := range l.standsIn[namespace] {
		if _, still := standings[template]; !still {
			l.remove(template, namespace)
		}
	}
	for template, standing := range standings {
		if l.standings[template][namespace].Generation <= standing.Generation {
			l.set(template, namespace, standing)
		}
	}
	l.see(namespace)
	return born
}

// Written notes a namespace as the API server stored it with a write of ours.
func (l *Ledger) Written(ns *corev1.Namespace) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.namespaces[ns.Name]; known != nil && known.uid == ns.UID {
		known.written = ns
	}
}

// Latest returns a namespace that was read from a cache, or the one of our last write if the cache is behind it: what
// is written already must not be written again. Neither may be changed.
func (l *Ledger) Latest(cached *corev1.Namespace) *corev1.Namespace {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.namespaces[cached.Name]
	if known == nil || known.uid != cached.UID || known.written == nil {
		return cached
	}
	if order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion,
		known.written.ResourceVersion); err == nil && order < 0 {
		return known.written
	}
	known.written = nil
	return cached
}

// Forget drops a namespace that is gone, unless another one was born under its name.
func (l *Ledger) Forget(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.namespaces[namespace].fresh() {
		return
	}
	delete(l.namespaces, namespace)
	for template := range l.standsIn[namespace] {
		l.remove(template, namespace)
	}
	l.see(namespace)
}

// Expect notes that a generation of a template is on its way to namespaces.
func (l *Ledger) Expect(template string, generation int64, namespaces []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, namespace := range namespaces {
		l.set(template, namespace, Standing{Generation: generation, State: Pending})
	}
}

// Drop forgets a template that is gone. It returns the namespaces that it matched.
func (l *Ledger) Drop(template string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	namespaces := slices.Collect(maps.Keys(l.standings[template]))
	for _, namespace := range namespaces {
		l.remove(template, namespace)
	}
	return namespaces
}

// Summary adds up how a template stands: failures and overridden objects in ascending order of namespaces, at most
// ten each.
func (l *Ledger) Summary(template string) Summary {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 10
	var sum Summary
	there := l.standings[template]
	for _, standing := range there {
		switch standing.State {
		case Pending:
			sum.Pending++
		case Populated:
			sum.Counts.Populated++
		case Failed:
			sum.Counts.Failed++
		case Drifted:
			sum.Counts.Drifted++
		case OptedOut:
			sum.Counts.OptedOut++
		}
	}
	sum.Counts.Matched = int32(len(there)) - sum.Counts.OptedOut
	if sum.Counts.Failed == 0 && !anyOverridden(there) {
		return sum
	}
	for _, namespace := range slices.Sorted(maps.Keys(there)) {
		standing := there[namespace]
		sum.Failures = append(sum.Failures, standing.Failures[:min(len(standing.Failures), most-len(sum.Failures))]...)
		for _, overridden := range standing.Overridden {
			if len(sum.Overridden) < most && !slices.Contains(sum.Overridden, overridden) {
				sum.Overridden = append(sum.Overridden, overridden)
			}
		}
	}
	return sum
}

// Summary is how a template stands in all namespaces that it matches.
type Summary struct {
	Counts     v1alpha1.NamespaceCounts
	Pending    int
	Failures   []v1alpha1.ObjectFailure
	Overridden []populate.Overridden
}

func anyOverridden(there map[string]Standing) bool {
	for _, standing := range there {
		if len(standing.Overridden) > 0 {
			return true
		}
	}
	return false
}

// set and remove are called with the lock held.
func (l *Ledger) set(template, namespace string, standing Standing) {
	if l.standings[template] == nil {
		l.standings[template] = map[string]Standing{}
	}
	if l.standsIn[namespace] == nil {
		l.standsIn[namespace] = map[string]struct{}{}
	}
	before, ok := l.standings[template][namespace]
	l.standings[template][namespace] = standing
	l.standsIn[namespace][template] = struct{}{}
	if !ok || !same(before, standing) {
		l.changed(template)
	}
}

func (l *Ledger) remove(template, namespace string) {
	delete(l.standings[template], namespace)
	delete(l.standsIn[namespace], template)
	if len(l.standings[template]) == 0 {
		delete(l.standings, template)
	}
	if len(l.standsIn[namespace]) == 0 {
		delete(l.standsIn, namespace)
	}
	l.changed(template)
}

func same(a, b Standing) bool {
	return a.State == b.State && slices.Equal(a.Failures, b.Failures) &&
		slices.EqualFunc(a.Overridden, b.Overridden, func(x, y populate.Overridden) bool { return x == y })
}

// see is called with the lock held. When the last namespace of the start was seen, every status is due that waits.
func (l *Ledger) see(namespace string) {
	if _, ok := l.unseen[namespace]; !ok {
		return
	}
	delete(l.unseen, namespace)
	if len(l.unseen) == 0 {
		for template := range l.waiting {
			l.changed(template)
		}
		clear(l.waiting)
	}
}
