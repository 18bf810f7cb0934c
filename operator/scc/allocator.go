package scc

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Pool has the blocks of user IDs and the SELinux levels that are allocated to namespaces.
type Pool struct {
	// IDs are the user IDs of all blocks, and Size is the number of IDs in each block.
	IDs    v1alpha1.IDRange
	Size   int64
	Levels Levels
}

// Levels are SELinux levels with some categories each.
type Levels struct {
	// Prefix is the beginning of each level, and Each the number of its categories.
	Prefix string
	Each   int
	// PerNamespace is the number of levels that are reserved for a namespace. Its annotation has the first of them.
	PerNamespace int
}

// categories is the number of categories in SELinux, and maxEach the number in a level at most.
const (
	categories = 1024
	maxEach    = 5
)

// NewPool returns a Pool. ids has a range of user IDs and the size of a block, such as 1000000000-1999999999/10000.
// levels has the prefix of levels and their number of categories, such as s0:/2. labelsPerNamespace is the number of
// levels that are reserved for a namespace.
func NewPool(ids, levels string, labelsPerNamespace int) (Pool, error) {
	pool, err := parseIDs(ids)
	if err != nil {
		return pool, fmt.Errorf(
			"%q is not a range of user IDs and a block size, such as 1000000000-1999999999/10000: %w", ids, err)
	}
	prefix, each, _ := strings.Cut(levels, "/")
	number, err := parseID(each)
	if err != nil || number < 1 || number > maxEach || !strings.HasSuffix(prefix, ":") {
		return pool, fmt.Errorf(
			"%q is not a prefix of SELinux levels and a number of categories from 1 to %d, such as s0:/2", levels,
			maxEach)
	}
	pool.Levels = Levels{Prefix: prefix, Each: int(number), PerNamespace: labelsPerNamespace}
	if labelsPerNamespace < 1 || pool.blocks() > combinations(categories, pool.Levels.Each)/labelsPerNamespace {
		return pool, fmt.Errorf(
			"%q has %d blocks with %d SELinux levels each, more than there are levels of %q: use larger blocks or fewer IDs",
			ids, pool.blocks(), labelsPerNamespace, levels)
	}
	return pool, nil
}

func parseIDs(text string) (Pool, error) {
	ids, size, _ := strings.Cut(text, "/")
	block, err := parseBlock(ids)
	if err != nil {
		return Pool{}, err
	}
	pool := Pool{IDs: block}
	if pool.Size, err = parseID(size); err == nil && (pool.Size < 1 || pool.Size > block.Max-block.Min+1) {
		err = fmt.Errorf("the block size %d is not between 1 and the size of the range", pool.Size)
	}
	return pool, err
}

// combinations returns the number of sets of k elements out of n.
func combinations(n, k int) int {
	result := 1
	for i := range k {
		result = result * (n - i) / (i + 1)
	}
	return max(result, 0)
}

func (p Pool) blocks() int { return int((p.IDs.Max - p.IDs.Min + 1) / p.Size) }

// block returns the user IDs of a block.
func (p Pool) block(number int) v1alpha1.IDRange {
	first := p.IDs.Min + int64(number)*p.Size
	return v1alpha1.IDRange{Min: first, Max: first + p.Size - 1}
}

// annotations returns the annotations of a namespace that has a block and its level.
func (p Pool) annotations(number int) map[string]string {
	ids := fmt.Sprintf("%d/%d", p.block(number).Min, p.Size)
	return map[string]string{
		v1alpha1.UIDRangeAnnotation: ids, v1alpha1.SupplementalGroupsAnnotation: ids,
		v1alpha1.MCSAnnotation: p.Levels.Level(number),
	}
}

// numberOf returns the number of the block with exactly these user IDs, and whether there is one.
func (p Pool) numberOf(ids v1alpha1.IDRange) (int, bool) {
	number := (ids.Min - p.IDs.Min) / p.Size
	return int(number), ids.Min >= p.IDs.Min && number < int64(p.blocks()) && p.block(int(number)) == ids
}

// Level returns the SELinux level of a block. Of all sets of categories, in the order of their highest elements, it is
// the one at position block * PerNamespace.
func (l Levels) Level(block int) string {
	rank := block * l.PerNamespace
	var chosen []string
	for k := l.Each; k > 0; k-- {
		category := sort.Search(categories, func(c int) bool { return combinations(c, k) > rank }) - 1
		rank -= combinations(category, k)
		chosen = append(chosen, fmt.Sprintf("c%d", category))
	}
	return l.Prefix + strings.Join(chosen, ",")
}

// Holder is a namespace with the annotations that it already has.
type Holder struct {
	Name        string
	Created     metav1.Time
	Annotations map[string]string
}

// Allocation has the annotations that must be set on a namespace.
type Allocation struct {
	Namespace   string
	Annotations map[string]string
	// Repairs is what is wrong with its current annotations, or empty if they are only incomplete.
	Repairs string
}

// ReasonPoolExhausted is the reason of the condition Ready of the constraints that take IDs from the namespace, while
// there are none for some namespaces.
const ReasonPoolExhausted = "UserIDsExhausted"

// ErrPoolExhausted reports that every block is in use.
var ErrPoolExhausted = errors.New("every block of user IDs is in use: start the operator with a larger --scc-uid-range")

// allocator allocates blocks and levels that no namespace uses.
type allocator struct {
	pool Pool
	next int
	// used are the blocks that namespaces have, and foreign the user IDs that namespaces have and that are not a block
	// of the pool.
	used    map[int]bool
	foreign []owned
	// levels are the levels that namespaces have.
	levels map[string]bool
}

// owned are the user IDs of a namespace. A namespace of less age is older.
type owned struct {
	v1alpha1.IDRange
	age  int
	name string
}

// Allocate returns the annotations that namespaces lack. A namespace whose user IDs overlap with those of an older
// namespace, or whose level is that of an older one, gets a new block. Blocks are allocated in turn, from the block
// next on, and Allocate returns the next block for the following call: the block of a deleted namespace is used again
// as late as possible. With an error, Allocate also returns the allocations that were possible.
func Allocate(pool Pool, next int, holders []Holder) ([]Allocation, int, error) {
	holders = inOrderOfAge(holders)
	a := newAllocator(pool, next)
	wrong := a.recordExisting(holders)
	var allocations []Allocation
	for _, holder := range holders {
		allocation, err := a.complete(holder, wrong[holder.Name])
		if err != nil {
			return allocations, a.next, err
		}
		if len(allocation.Annotations) > 0 {
			allocations = append(allocations, allocation)
		}
	}
	return allocations, a.next, nil
}

// NextFree returns the annotations for the next blocks that no namespace uses, or ErrPoolExhausted if there are none:
// as many as are wanted if there are, but at most a 64th of the pool. It also returns the next block for the following
// call.
func NextFree(pool Pool, next, wanted int, holders []Holder) ([]map[string]string, int, error) {
	a := newAllocator(pool, next)
	a.recordExisting(inOrderOfAge(holders))
	var blocks []map[string]string
	var exhausted error
	for range min(wanted, max(1, pool.blocks()/64)) {
		number, err := a.nextFree()
		if err != nil {
			exhausted = err
			break
		}
		blocks = append(blocks, pool.annotations(number))
	}
	if len(blocks) == 0 {
		return nil, a.next, exhausted
	}
	return blocks, a.next, nil
}

func newAllocator(pool Pool, next int) *allocator {
	return &allocator{pool: pool, next: next, levels: map[string]bool{}, used: map[int]bool{}}
}

// inOrderOfAge returns the holders in the order of their ages, the oldest first.
func inOrderOfAge(holders []Holder) []Holder {
	holders = slices.Clone(holders)
	slices.SortFunc(holders, func(a, b Holder) int {
		return cmp.Or(a.Created.Compare(b.Created.Time), strings.Compare(a.Name, b.Name))
	})
	return holders
}

// recordExisting records the user IDs and levels that namespaces have, and returns what is wrong with them, by
// namespace. holders are in the order of their ages, the oldest first.
func (a *allocator) recordExisting(holders []Holder) map[string]string {
	wrong := map[string]string{}
	a.recordIDs(holders, wrong)
	a.recordLevels(holders, wrong)
	return wrong
}

// recordIDs records the user IDs that namespaces have. Namespaces with invalid ones, or with those of an older
// namespace, are added to wrong.
func (a *allocator) recordIDs(holders []Holder, wrong map[string]string) {
	var ranges []owned
	for age, holder := range holders {
		if _, exists := holder.Annotations[v1alpha1.UIDRangeAnnotation]; !exists {
			continue
		}
		ids, err := uidRange(holder.Annotations)
		if err != nil {
			wrong[holder.Name] = err.Error()
			continue
		}
		ranges = append(ranges, owned{ids, age, holder.Name})
	}
	slices.SortFunc(ranges, func(a, b owned) int {
		return cmp.Or(cmp.Compare(a.Min, b.Min), cmp.Compare(a.age, b.age))
	})
	var last *owned
	for i := range ranges {
		this := &ranges[i]
		if last == nil || this.Min > last.Max {
			last = this
			continue
		}
		younger, older := this, last
		if younger.age < older.age {
			younger, older = older, younger
		}
		wrong[younger.name] = fmt.Sprintf("its user IDs %d-%d overlap with those of namespace %s", younger.Min,
			younger.Max, older.name)
		last = older
	}
	for i := range ranges {
		if wrong[ranges[i].name] != "" {
			continue
		}
		if number, one := a.pool.numberOf(ranges[i].IDRange); one {
			a.used[number] = true
		} else {
			a.foreign = append(a.foreign, ranges[i])
		}
	}
}

// recordLevels records the levels of namespaces that are not wrong. Namespaces with the level of an older namespace are
// added to wrong.
func (a *allocator) recordLevels(holders []Holder, wrong map[string]string) {
	owners := map[string]string{}
	for _, holder := range holders {
		level := holder.Annotations[v1alpha1.MCSAnnotation]
		if level == "" || wrong[holder.Name] != "" {
			continue
		}
		key := normalLevel(level)
		if owner, used := owners[key]; used {
			wrong[holder.Name] = fmt.Sprintf("its SELinux level %s is also that of namespace %s", level, owner)
			continue
		}
		owners[key] = holder.Name
		a.levels[key] = true
	}
}

// complete returns the annotations that a namespace lacks, or all if wrong is not empty.
func (a *allocator) complete(holder Holder, wrong string) (Allocation, error) {
	allocation := Allocation{Namespace: holder.Name, Annotations: map[string]string{}, Repairs: wrong}
	ids, hasIDs := holder.Annotations[v1alpha1.UIDRangeAnnotation]
	_, hasGroups := holder.Annotations[v1alpha1.SupplementalGroupsAnnotation]
	hasLevel := holder.Annotations[v1alpha1.MCSAnnotation] != ""
	if wrong != "" || !hasIDs {
		number, err := a.nextFree()
		if err != nil {
			return allocation, err
		}
		allocation.Annotations = a.pool.annotations(number)
		if wrong == "" && hasGroups {
			delete(allocation.Annotations, v1alpha1.SupplementalGroupsAnnotation)
		}
		if wrong == "" && hasLevel {
			delete(allocation.Annotations, v1alpha1.MCSAnnotation)
		}
		return allocation, nil
	}
	if !hasGroups {
		allocation.Annotations[v1alpha1.SupplementalGroupsAnnotation] = ids
	}
	if !hasLevel {
		block, _ := uidRange(holder.Annotations) // valid, because wrong is empty
		number, one := a.pool.numberOf(block)
		if !one || a.levels[normalLevel(a.pool.Levels.Level(number))] {
			var err error
			if number, err = a.nextFree(); err != nil {
				return allocation, err
			}
		}
		allocation.Annotations[v1alpha1.MCSAnnotation] = a.pool.Levels.Level(number)
		a.levels[normalLevel(a.pool.Levels.Level(number))] = true
	}
	return allocation, nil
}

// nextFree returns the next block of which no namespace has a user ID or the level.
func (a *allocator) nextFree() (int, error) {
	for range a.pool.blocks() {
		number := a.next % a.pool.blocks()
		a.next = (number + 1) % a.pool.blocks()
		block, level := a.pool.block(number), normalLevel(a.pool.Levels.Level(number))
		if a.used[number] || a.levels[level] || slices.ContainsFunc(a.foreign, func(t owned) bool {
			return t.Min <= block.Max && block.Min <= t.Max
		}) {
			continue
		}
		a.used[number], a.levels[level] = true, true
		return number, nil
	}
	return 0, a.exhausted()
}

// exhausted returns ErrPoolExhausted. If a user gave a namespace more IDs than a block, it names the namespace that has
// most of the pool, because a larger pool may not be what is needed.
func (a *allocator) exhausted() error {
	count, name := a.pool.Size, ""
	for _, ids := range a.foreign {
		if here := min(ids.Max, a.pool.IDs.Max) - max(ids.Min, a.pool.IDs.Min) + 1; here > count {
			count, name = here, ids.name
		}
	}
	if name == "" {
		return ErrPoolExhausted
	}
	return fmt.Errorf("%w, or correct the annotation %s of namespace %s, which takes %d of these IDs", ErrPoolExhausted,
		v1alpha1.UIDRangeAnnotation, name, count)
}
