package policyspace

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/freshness"
	"nstpl.dev/nstpl/operator/quota"
)

// departureTime is how long the census remembers a namespace that left. It is longer than a reservation lasts.
const departureTime = 2 * time.Minute

// needsInterval is the least time between two looks at whether the census is needed.
const needsInterval = 50 * time.Millisecond

// census has the namespaces with a policyspace label, while some policy space limits their number. It is the store of a
// reflector of its own. An informer hands objects over one by one, also those of a list, in any order, so its cache is
// as new as no known resourceVersion; the census is as new as upTo. It is safe for concurrent use.
type census struct {
	client metadata.Interface
	// isNeeded reports whether some policy space limits the number of namespaces. check makes Start call it.
	isNeeded func(context.Context) (bool, error)
	check    chan struct{}

	mu sync.Mutex
	// upTo is the resourceVersion up to which the census has seen everything, or empty before the first list.
	upTo string
	// placed are the namespaces by name, and bySpace by policy space and name.
	placed  map[string]placedNamespace
	bySpace map[string]map[string]placedNamespace
	// departed are the namespaces that left, by UID: they were deleted, or lost the label.
	departed map[types.UID]departure
	// changed is closed and replaced when the census changes.
	changed chan struct{}
	// listener is called with the policy spaces in which a namespace was before a change, or is after it.
	listener func(spaces []string)
}

// placedNamespace is a namespace with a policyspace label.
type placedNamespace struct {
	name, creator, version string
	uid                    types.UID
	// space is the policy space of the label. It is empty for a system namespace, which belongs to none.
	space string
	// kept is the nearest policy space of the depth labels if the namespace has not left it, although its label names
	// another one: that one does not exist, or is of a tree that does not adopt the namespace. Otherwise, it is empty.
	// The namespace counts in both, like its usage: see hierarchy.Charged.
	kept string
}

// spaces returns the policy spaces in which a namespace is.
func (n placedNamespace) spaces() []string {
	return slices.DeleteFunc([]string{n.space, n.kept}, func(space string) bool { return space == "" })
}

// isIn reports whether a namespace is in one of some policy spaces.
func (n placedNamespace) isIn(spaces map[string]bool) bool { return spaces[n.space] || spaces[n.kept] }

// countsLike reports whether a namespace is counted in the same policy spaces as before.
func (n placedNamespace) countsLike(before placedNamespace) bool {
	return n.space == before.space && n.kept == before.kept && n.uid == before.uid
}

// departure is when a namespace left, as a resourceVersion and as the time of this process.
type departure struct {
	version string
	at      time.Time
}

func newCensus(client metadata.Interface, isNeeded func(context.Context) (bool, error)) *census {
	c := &census{client: client, isNeeded: isNeeded, check: make(chan struct{}, 1), listener: func([]string) {}}
	c.clear()
	return c
}

// clear forgets everything. The caller holds mu, or is the only user.
func (c *census) clear() {
	c.upTo, c.placed, c.bySpace = "", map[string]placedNamespace{}, map[string]map[string]placedNamespace{}
	c.departed, c.changed = map[types.UID]departure{}, make(chan struct{})
}

// needsChanged makes Start find out whether the census is needed.
func (c *census) needsChanged() {
	select {
	case c.check <- struct{}{}:
	default:
	}
}

// NeedLeaderElection returns false: all replicas decide about namespaces.
func (*census) NeedLeaderElection() bool { return false }

// Start watches namespaces while the census is needed, until ctx ends.
func (c *census) Start(ctx context.Context) error {
	stop := func() {}
	defer func() { stop() }()
	c.needsChanged()
	for isRunning := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-c.check:
		}
		isNeeded, err := c.isNeeded(ctx)
		switch {
		case err != nil:
			ctrl.LoggerFrom(ctx).Error(err, "cannot find out whether the number of namespaces is limited")
			c.needsChanged()
		case isNeeded && !isRunning:
			stop, isRunning = c.watch(ctx), true
		case !isNeeded && isRunning:
			stop()
			stop, isRunning = func() {}, false
			c.mu.Lock()
			c.clear()
			c.mu.Unlock()
		}
		select { // one look is enough for many changes
		case <-ctx.Done():
		case <-time.After(needsInterval):
		}
	}
}

// watch starts a reflector. The returned function ends it, and returns when it has ended.
func (c *census) watch(ctx context.Context) (stop func()) {
	namespaces := c.client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces"))
	source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = v1alpha1.PolicySpaceLabel
			return namespaces.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = v1alpha1.PolicySpaceLabel
			return namespaces.Watch(ctx, options)
		},
	}, c.client)
	reflector := cache.NewReflectorWithOptions(source, &metav1.PartialObjectMetadata{}, c,
		cache.ReflectorOptions{Name: "namespaces of policyspaces"})
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reflector.RunWithContext(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// A census is the store of its reflector.
var _ cache.ReflectorBookmarkStore = &census{}

func placedOf(object any) placedNamespace {
	ns := object.(*metav1.PartialObjectMetadata)
	placed := placedNamespace{
		name: ns.Name, uid: ns.UID, creator: ns.Annotations[v1alpha1.CreatorAnnotation], version: ns.ResourceVersion,
	}
	spaces := append(hierarchy.CountedIn(&corev1.Namespace{ObjectMeta: ns.ObjectMeta}), "", "")
	placed.space, placed.kept = spaces[0], spaces[1]
	return placed
}

// Add stores a namespace that was created, or got the label.
func (c *census) Add(object any) error { return c.Update(object) }

// Update stores a namespace that was created or changed.
func (c *census) Update(object any) error {
	ns := placedOf(object)
	c.mu.Lock()
	before := c.put(ns)
	c.advance(ns.version)
	c.mu.Unlock()
	if !before.countsLike(ns) {
		c.listener(append(before.spaces(), ns.spaces()...))
	}
	return nil
}

// Delete removes a namespace that was deleted, or lost the label. The object has the resourceVersion of that change.
func (c *census) Delete(object any) error {
	ns := placedOf(object)
	c.mu.Lock()
	before := c.remove(ns.name, ns.version)
	c.advance(ns.version)
	c.mu.Unlock()
	c.listener(before)
	return nil
}

// Replace stores the namespaces of a list of a resourceVersion.
func (c *census) Replace(list []any, version string) error {
	var changes [][]string
	isListed := make(map[string]bool, len(list))
	c.mu.Lock()
	for _, object := range list {
		ns := placedOf(object)
		isListed[ns.name] = true
		if before := c.put(ns); !before.countsLike(ns) {
			changes = append(changes, append(before.spaces(), ns.spaces()...))
		}
	}
	for name := range c.placed {
		if !isListed[name] {
			changes = append(changes, c.remove(name, version))
		}
	}
	c.advance(version)
	c.mu.Unlock()
	for _, spaces := range changes {
		c.listener(spaces)
	}
	return nil
}

// Bookmark records that the census has seen everything up to a resourceVersion.
func (c *census) Bookmark(version string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(version)
	return nil
}

// Resync does nothing.
func (*census) Resync() error { return nil }

// put stores a namespace, and returns it as it was before. The caller holds mu.
func (c *census) put(ns placedNamespace) (before placedNamespace) {
	before, isKnown := c.placed[ns.name]
	if isKnown {
		if before.uid == ns.uid {
			c.removeFromSpaces(before)
		} else {
			c.remove(ns.name, ns.version) // it was deleted and created again
		}
	}
	c.placed[ns.name] = ns
	for _, space := range ns.spaces() {
		if c.bySpace[space] == nil {
			c.bySpace[space] = map[string]placedNamespace{}
		}
		c.bySpace[space][ns.name] = ns
	}
	return before
}

// removeFromSpaces removes a namespace from its policy spaces. The caller holds mu.
func (c *census) removeFromSpaces(ns placedNamespace) {
	for _, space := range ns.spaces() {
		delete(c.bySpace[space], ns.name)
		if len(c.bySpace[space]) == 0 {
			delete(c.bySpace, space)
		}
	}
}

// remove removes the namespace of a name, and returns its policy spaces. The caller holds mu.
func (c *census) remove(name, version string) (before []string) {
	old, isKnown := c.placed[name]
	if !isKnown {
		return nil
	}
	delete(c.placed, name)
	c.removeFromSpaces(old)
	for uid, left := range c.departed {
		if time.Since(left.at) > departureTime {
			delete(c.departed, uid)
		}
	}
	c.departed[old.uid] = departure{version, time.Now()}
	return old.spaces()
}

// advance records that the census is as new as a resourceVersion. The caller holds mu.
func (c *census) advance(version string) {
	c.upTo = version
	close(c.changed)
	c.changed = make(chan struct{})
}

// wait waits until the census is as new as a resourceVersion, which is empty for any, and reports whether it is.
func (c *census) wait(ctx context.Context, version string, timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		c.mu.Lock()
		isNew, changed := c.upTo != "" && freshness.AtLeast(c.upTo, version), c.changed
		c.mu.Unlock()
		if isNew {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// spaces returns the policy spaces in which namespaces are.
func (c *census) spaces() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.bySpace))
}

// count counts the namespaces in some policy spaces, and the namespaces of reservations, without the one that is about
// to be placed there, which may be empty.
func (c *census) count(
	in map[string]bool, reservations []v1alpha1.NamespaceReservation, about v1alpha1.NamespaceReservation,
) quota.NamespaceUse {
	c.mu.Lock()
	defer c.mu.Unlock()
	var use quota.NamespaceUse
	for ns := range c.in(in) {
		if ns.name == about.Name {
			continue
		}
		use.Existing++
		if ns.creator == about.Creator {
			use.ExistingOfCreator++
		}
	}
	// A name counts once, and once for each of its creators: of several namespaces of a name, one can exist.
	type ofCreator struct{ name, creator string }
	counted, countedOf := map[string]bool{about.Name: true}, map[ofCreator]bool{{about.Name, about.Creator}: true}
	for _, r := range reservations {
		if c.hasEnded(r) {
			continue
		}
		existing, exists := c.placed[r.Name]
		exists = exists && existing.isIn(in)
		if !counted[r.Name] && !exists {
			counted[r.Name] = true
			use.Reserved++
		}
		if key := (ofCreator{r.Name, r.Creator}); r.Creator == about.Creator && !countedOf[key] &&
			(!exists || existing.creator != r.Creator) {
			countedOf[key] = true
			use.ReservedOfCreator++
		}
	}
	return use
}

// in yields each of the namespaces in some policy spaces once. The caller holds mu.
func (c *census) in(spaces map[string]bool) iter.Seq[placedNamespace] {
	return func(yield func(placedNamespace) bool) {
		for space := range spaces {
			for _, ns := range c.bySpace[space] {
				isCounted := ns.kept == space && spaces[ns.space]
				if !isCounted && !yield(ns) {
					return
				}
			}
		}
	}
}

// remaining returns the reservations that have not ended, and the newest resourceVersion of the namespaces of the
// others: a census that is as new counts them.
func (c *census) remaining(
	reservations []v1alpha1.NamespaceReservation,
) (remaining []v1alpha1.NamespaceReservation, asOf string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range reservations {
		if !c.hasEnded(r) {
			remaining = append(remaining, r)
		} else if ns, isPlaced := c.placed[r.Name]; isPlaced && ns.uid == r.UID {
			asOf = freshness.Newest(asOf, ns.version)
		}
	}
	return remaining, asOf
}

// hasEnded reports whether the census has seen the namespace of a reservation after the state from which the
// reservation goes on. Then the reserved write has been stored, or cannot be stored any more. The caller holds mu.
func (c *census) hasEnded(r v1alpha1.NamespaceReservation) bool {
	if ns, isPlaced := c.placed[r.Name]; isPlaced && ns.uid == r.UID {
		return freshness.Newer(ns.version, r.Since)
	}
	left, hasLeft := c.departed[r.UID]
	return hasLeft && freshness.Newer(left.version, r.Since)
}
