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

// Pool is what namespaces are given from: blocks of user ids, and SELinux levels.
type Pool struct {
	// IDs are those of all blocks, and Size how many each has.
	IDs    v1alpha1.IDRange
	Size   int64
	Levels Levels
}

// Levels are SELinux levels of some categories each.
type Levels struct {
	// Prefix is what they begin with, and Each how many categories each has.
	Prefix string
	Each   int
	// PerNamespace is how many of them each namespace takes up, of which it is given the first.
	PerNamespace int
}

// categories are how many of them SELinux has, and maxEach how many a level can have.
const (
	categories = 1024
	maxEach    = 5
)

// NewPool reads a range of ids and the size of blocks, 1000000000-1999999999/10000, and the beginning of levels and
// their number of categories, s0:/2, of which each namespace takes up labelsPerNamespace.
func NewPool(ids, levels string, labelsPerNamespace int) (Pool, error) {
	pool, err := parseIDs(ids)
	if err != nil {
		return pool, fmt.Errorf("%q is no range and size of blocks, such as 1000000000-1999999999/10000: %w", ids, err)
	}
	prefix, each, _ := strings.Cut(levels, "/")
	number, err := parseID(each)
	if err != nil || number < 1 || number > maxEach || !strings.HasSuffix(prefix, ":") {
		return pool, fmt.Errorf(
			"%q is no beginning of levels and number of categories, such as s0:/2: there can be 1 to %d", levels,
			maxEach)
	}
	pool.Levels = Levels{Prefix: prefix, Each: int(number), PerNamespace: labelsPerNamespace}
	if labelsPerNamespace < 1 || pool.blocks() > combinations(categories, pool.Levels.Each)/labelsPerNamespace {
		return pool, fmt.Errorf("%q makes %d blocks, and with %d labels for each there are not as many of %q: choose larger blocks or fewer ids",
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
		err = fmt.Errorf("a block can't have %d ids", pool.Size)
	}
	return pool, err
}

// combinations are how many sets of k there are of n.
func combinations(n, k int) int {
	result := 1
	for i := range k {
		result = result * (n - i) / (i + 1)
	}
	return max(result, 0)
}

func (p Pool) blocks() int { return int((p.IDs.Max - p.IDs.Min + 1) / p.Size) }

// block returns the ids of a block by its number.
func (p Pool) block(number int) v1alpha1.IDRange {
	first := p.IDs.Min + int64(number)*p.Size
	return v1alpha1.IDRange{Min: first, Max: first + p.Size - 1}
}

// numberOf returns the block that these ids are, if they are one.
func (p Pool) numberOf(ids v1alpha1.IDRange) (int, bool) {
	number := (ids.Min - p.IDs.Min) / p.Size
	return int(number), ids.Min >= p.IDs.Min && number < int64(p.blocks()) && p.block(int(number)) == ids
}

// Level returns the SELinux level of a block: of all sets of categories, ordered by the highest ones, every so many.
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

// Holder is a namespace that is to be given what it lacks.
type Holder struct {
	Name        string
	Created     metav1.Time
	Annotations map[string]string
}

// Allocation are annotations that a namespace is to be given.
type Allocation struct {
	Namespace   string
	Annotations map[string]string
	// Repairs says what was wrong with those that it has; empty if it has none.
	Repairs string
}

// ErrPoolExhausted says that all blocks are taken.
var ErrPoolExhausted = errors.New("there is no block of user ids left: give the operator a larger --scc-uid-range")

// allocator gives blocks away.
type allocator struct {
	pool Pool
	next int
	// used are the blocks that are taken, and taken are ids that are no block of the pool's.
	used  map[int]bool
	taken []v1alpha1.IDRange
	// levels are those that are taken.
	levels map[string]bool
}

// Allocate gives every namespace what it lacks, or shares with an older one by mistake. Blocks are given in turn from
// next on, and the number with which to go on is returned: a block that somebody gave back rests as long as possible.
// An error comes with the allocations that could be made.
func Allocate(pool Pool, next int, holders []Holder) ([]Allocation, int, error) {
	holders = slices.Clone(holders)
	slices.SortFunc(holders, func(a, b Holder) int {
		return cmp.Or(a.Created.Compare(b.Created.Time), strings.Compare(a.Name, b.Name))
	})
	a := &allocator{pool: pool, next: next, levels: map[string]bool{}, used: map[int]bool{}}
	wrong := a.take(holders)
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

// take notes what the namespaces have, the oldest first, and returns what is wrong with some.
func (a *allocator) take(holders []Holder) map[string]string {
	wrong := map[string]string{}
	owners := map[string]string{}
	type owned struct {
		v1alpha1.IDRange
		age  int
		name string
	}
	var ranges []owned
	for age, holder := range holders {
		if _, there := holder.Annotations[v1alpha1.UIDRangeAnnotation]; !there {
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
		wrong[younger.name] = fmt.Sprintf("its user ids %d-%d are also those of namespace %s", younger.Min, younger.Max,
			older.name)
		last = older
	}
	for i := range ranges {
		if wrong[ranges[i].name] != "" {
			continue
		}
		if number, one := a.pool.numberOf(ranges[i].IDRange); one {
			a.used[number] = true
		} else {
			a.taken = append(a.taken, ranges[i].IDRange)
		}
	}
	for _, holder := range holders {
		level := holder.Annotations[v1alpha1.MCSAnnotation]
		if level == "" || wrong[holder.Name] != "" {
			continue
		}
		key := normalLevel(level)
		if owner, taken := owners[key]; taken {
			wrong[holder.Name] = fmt.Sprintf("its SELinux level %s is also that of namespace %s", level, owner)
			continue
		}
		owners[key] = holder.Name
		a.levels[key] = true
	}
	return wrong
}

// complete returns what a namespace lacks.
func (a *allocator) complete(holder Holder, wrong string) (Allocation, error) {
	allocation := Allocation{Namespace: holder.Name, Annotations: map[string]string{}, Repairs: wrong}
	ids, hasIDs := holder.Annotations[v1alpha1.UIDRangeAnnotation]
	_, hasGroups := holder.Annotations[v1alpha1.SupplementalGroupsAnnotation]
	hasLevel := holder.Annotations[v1alpha1.MCSAnnotation] != ""
	if wrong != "" || !hasIDs {
		number, err := a.fresh()
		if err != nil {
			return allocation, err
		}
		block := a.pool.block(number)
		ids = fmt.Sprintf("%d/%d", block.Min, a.pool.Size)
		allocation.Annotations[v1alpha1.UIDRangeAnnotation] = ids
		if wrong != "" || !hasGroups {
			allocation.Annotations[v1alpha1.SupplementalGroupsAnnotation] = ids
		}
		if wrong != "" || !hasLevel {
			allocation.Annotations[v1alpha1.MCSAnnotation] = a.pool.Levels.Level(number)
		}
		return allocation, nil
	}
	if !hasGroups {
		allocation.Annotations[v1alpha1.SupplementalGroupsAnnotation] = ids
	}
	if !hasLevel {
		block, _ := uidRange(holder.Annotations) // it is right, or wrong says so
		number, one := a.pool.numberOf(block)
		if !one || a.levels[normalLevel(a.pool.Levels.Level(number))] {
			var err error
			if number, err = a.fresh(); err != nil {
				return allocation, err
			}
		}
		allocation.Annotations[v1alpha1.MCSAnnotation] = a.pool.Levels.Level(number)
		a.levels[normalLevel(a.pool.Levels.Level(number))] = true
	}
	return allocation, nil
}

// fresh returns the next block of which nobody has anything.
func (a *allocator) fresh() (int, error) {
	for range a.pool.blocks() {
		number := a.next % a.pool.blocks()
		a.next = (number + 1) % a.pool.blocks()
		block, level := a.pool.block(number), normalLevel(a.pool.Levels.Level(number))
		if a.used[number] || a.levels[level] || slices.ContainsFunc(a.taken, func(t v1alpha1.IDRange) bool {
			return t.Min <= block.Max && block.Min <= t.Max
		}) {
			continue
		}
		a.used[number], a.levels[level] = true, true
		return number, nil
	}
	return 0, ErrPoolExhausted
}
