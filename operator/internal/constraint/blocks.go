package constraint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/scc"
)

// nextBlockKey is the key, in the ConfigMap of allocations, of the number of the block that is given next.
const nextBlockKey = "next"

// reservedAtOnce is the number of blocks that are reserved for new namespaces at a time, of a pool that is large. Those
// that are left when the leader ends are used as late as possible.
const reservedAtOnce = 256

// Blocks gives blocks of user IDs and SELinux levels to namespaces while there are constraints. It writes down the next
// free block before it gives one away, so that another leader continues after it and no block is given twice. For new
// namespaces it has some blocks in reserve, so that not every one of them is compared with all others.
type Blocks struct {
	// Namespaces are the cached ones.
	Namespaces corev1listers.NamespaceLister
	ConfigMaps corev1client.ConfigMapInterface
	Pool       scc.Pool
	// Exempt lists the namespaces that are given nothing.
	Exempt []string
	// Constraints are the cached constraints. If there are none, namespaces are given nothing.
	Constraints *constraintCache
	// exhaustion notifies when the first namespace is given nothing because the pool is exhausted, when there is no
	// such namespace anymore, and when all namespaces have been compared for the first time since there are
	// constraints.
	exhaustion webhook.Changes

	mu sync.Mutex
	// lacking has the namespaces that are given nothing because the pool is exhausted. It is complete once isCompared
	// is true: all namespaces have been compared since the first constraint was created.
	lacking    sets.Set[types.UID]
	isCompared bool
	// reserve has the annotations for blocks that are written down as given and that no namespace has.
	reserve []map[string]string
	// given has the annotations that namespaces were given and that the cache may not show yet.
	given map[types.UID]map[string]string
}

// For returns the annotations for a block that a namespace without any of them is given, and nil if it is given none.
// They are the same until the cache shows them. The caller must not change them.
func (b *Blocks) For(ctx context.Context, ns *corev1.Namespace) (map[string]string, error) {
	if hasAllocation(ns) || slices.Contains(b.Exempt, ns.Name) {
		return nil, nil
	}
	if isNeeded, err := b.isNeeded(ctx); err != nil || !isNeeded {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if given := b.given[ns.UID]; given != nil {
		return given, nil
	}
	if len(b.reserve) == 0 {
		err := b.fillReserve(ctx)
		if errors.Is(err, scc.ErrPoolExhausted) {
			b.setLacking(ns.UID, true)
		}
		if err != nil {
			return nil, err
		}
	}
	block := b.reserve[0]
	b.reserve = b.reserve[1:]
	b.setGiven(ns.UID, block)
	return block, nil
}

// isNeeded reports whether there are constraints. If there are none, namespaces are given nothing, so all have to be
// compared again once there are some.
func (b *Blocks) isNeeded(ctx context.Context) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	constraints, err := b.Constraints.get(ctx)
	if err == nil && len(constraints) == 0 {
		b.isCompared = false
	}
	return len(constraints) > 0, err
}

func (b *Blocks) fillReserve(ctx context.Context) error {
	namespaces, err := b.Namespaces.List(labels.Everything())
	if err != nil {
		return err
	}
	holders, _ := holdersOf(namespaces, b.Exempt, b.given)
	return b.advance(ctx, func(next int) (after int, err error) {
		b.reserve, after, err = scc.NextFree(b.Pool, next, reservedAtOnce, holders)
		return after, err
	})
}

// Complete returns what namespaces lack and what is wrong with what they have, in comparison with all others. If the
// pool is exhausted, it returns the allocations that were possible and scc.ErrPoolExhausted.
func (b *Blocks) Complete(ctx context.Context, namespaces []*corev1.Namespace) ([]scc.Allocation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var holders []scc.Holder
	holders, b.given = holdersOf(namespaces, b.Exempt, b.given)
	b.reserve = nil // a namespace that came with annotations may have one of these blocks
	allocations, _, err := scc.Allocate(b.Pool, 0, holders)
	if len(allocations) == 0 && err == nil { // usually, and then no request is needed
		b.setCompared(nil)
		return nil, nil
	}
	var exhausted error
	err = b.advance(ctx, func(next int) (after int, err error) {
		allocations, after, exhausted = scc.Allocate(b.Pool, next, holders)
		return after, nil
	})
	if err != nil {
		return nil, err
	}
	uids := make(map[string]types.UID, len(namespaces))
	for _, ns := range namespaces {
		uids[ns.Name] = ns.UID
	}
	for _, allocation := range allocations {
		if allocation.Repairs == "" {
			b.setGiven(uids[allocation.Namespace], allocation.Annotations)
		}
		delete(uids, allocation.Namespace)
	}
	lacking := sets.New[types.UID]()
	for _, holder := range holders {
		_, hasIDs := holder.Annotations[v1alpha1.UIDRangeAnnotation]
		if uid, isLeft := uids[holder.Name]; exhausted != nil && isLeft && !hasIDs {
			lacking.Insert(uid)
		}
	}
	b.setCompared(lacking)
	return allocations, exhausted
}

// setCompared records which namespaces are given nothing, after all were compared. The caller holds the lock.
func (b *Blocks) setCompared(lacking sets.Set[types.UID]) {
	isFirst := !b.isCompared
	b.isCompared = true
	if b.replaceLacking(lacking); isFirst {
		b.exhaustion.Notify()
	}
}

// advance writes down the next block that allocate returns for the one that is written down.
func (b *Blocks) advance(ctx context.Context, allocate func(next int) (after int, err error)) error {
	record, err := b.ConfigMaps.Get(ctx, v1alpha1.AllocationsConfigMap, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get the ConfigMap with the next block of user IDs: %w", err)
	}
	next := nextBlock(record.Data)
	after, err := allocate(next)
	if err != nil || after == next {
		return err
	}
	if record.Data == nil {
		record.Data = map[string]string{}
	}
	record.Data[nextBlockKey] = strconv.Itoa(after)
	if _, err := b.ConfigMaps.Update(ctx, record, metav1.UpdateOptions{}); err != nil {
		b.reserve = nil
		return fmt.Errorf("reserve blocks of user IDs: %w", err)
	}
	return nil
}

// nextBlock returns the number of the block that is given next. It is 0 if the ConfigMap has no valid number: blocks
// that namespaces have are skipped in any case.
func nextBlock(data map[string]string) int {
	next, err := strconv.Atoi(data[nextBlockKey])
	if err != nil || next < 0 {
		return 0
	}
	return next
}

func (b *Blocks) setGiven(ns types.UID, annotations map[string]string) {
	if b.given == nil {
		b.given = map[types.UID]map[string]string{}
	}
	b.given[ns] = annotations
	b.setLacking(ns, false)
}

// setLacking records whether a namespace is given nothing because the pool is exhausted. The caller holds the lock.
func (b *Blocks) setLacking(ns types.UID, lacks bool) {
	lacking := b.lacking.Clone()
	if lacking.Delete(ns); lacks {
		lacking.Insert(ns)
	}
	b.replaceLacking(lacking)
}

func (b *Blocks) replaceLacking(lacking sets.Set[types.UID]) {
	before := len(b.lacking)
	b.lacking = lacking
	if (before == 0) != (len(lacking) == 0) {
		b.exhaustion.Notify()
	}
}

// isExhausted reports whether a namespace is given nothing because the pool is exhausted, and whether that is known.
func (b *Blocks) isExhausted() (isExhausted, isKnown bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.lacking) > 0, b.isCompared || len(b.lacking) > 0
}

// isGiven reports whether an allocation is what the namespace was given.
func (b *Blocks) isGiven(ns *corev1.Namespace) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	given := b.given[ns.UID]
	return given != nil && hasAll(ns.Annotations, given)
}

// forget forgets what a namespace was given, once the cache shows it or if it was not written.
func (b *Blocks) forget(ns types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.given, ns)
	b.setLacking(ns, false)
}

// holdersOf returns the namespaces that can be given annotations, with those that they have. given contains the
// annotations that were written and that the cache may not show yet; holdersOf adds them to the namespace, and returns
// the part of given that the cache still does not show.
func holdersOf(
	namespaces []*corev1.Namespace, exempt []string, given map[types.UID]map[string]string,
) ([]scc.Holder, map[types.UID]map[string]string) {
	holders := make([]scc.Holder, 0, len(namespaces))
	missing := map[types.UID]map[string]string{}
	for _, ns := range namespaces {
		if slices.Contains(exempt, ns.Name) {
			continue
		}
		holder := scc.Holder{Name: ns.Name, Created: ns.CreationTimestamp, Annotations: ns.Annotations}
		if unseen := given[ns.UID]; unseen != nil && !hasAny(ns.Annotations, unseen) {
			holder.Annotations = map[string]string{}
			maps.Copy(holder.Annotations, ns.Annotations)
			maps.Copy(holder.Annotations, unseen)
			missing[ns.UID] = unseen
		}
		holders = append(holders, holder)
	}
	return holders, missing
}

// hasAny reports whether one of the given annotations exists. All were written at once, so the cache shows that write
// or a later one, and its values count.
func hasAny(annotations, given map[string]string) bool {
	for key := range given {
		if annotations[key] != "" {
			return true
		}
	}
	return false
}

func hasAll(annotations, given map[string]string) bool {
	for key, value := range given {
		if annotations[key] != value {
			return false
		}
	}
	return true
}
