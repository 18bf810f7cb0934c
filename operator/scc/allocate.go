package scc

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Pool is what namespaces are given from: blocks of user ids, and SELinux levels of two categories.
type Pool struct {
	// Ids are those of all blocks, and Size how many each has.
	IDs  v1alpha1.IDRange
	Size int64
}

// categories are how many of them SELinux has, and labelsPerNamespace how many pairs of them each namespace takes up: those of
// OpenShift.
const (
	categories         = 1024
	labelsPerNamespace = 5
)

// ParsePool reads first-last/size: 1000000000-1999999999/10000.
func ParsePool(text string) (Pool, error) {
	ids, size, _ := strings.Cut(text, "/")
	blocks, err := ParseBlocks(ids)
	if err != nil {
		return Pool{}, fmt.Errorf("%q is no range and size of blocks, such as 1000000000-1999999999/10000: %w", text, err)
	}
	pool := Pool{IDs: blocks[0]}
	if pool.Size, err = parseID(size); err != nil || len(blocks) > 1 || pool.Size < 1 || pool.Size > pool.IDs.Max-pool.IDs.Min+1 {
		return Pool{}, fmt.Errorf("%q is no range and size of blocks, such as 1000000000-1999999999/10000", text)
	}
	if pairs := categories * (categories - 1) / 2; pool.blocks() > pairs/labelsPerNamespace {
		return Pool{}, fmt.Errorf("%q makes %d blocks, and there are SELinux levels for %d: choose larger blocks or fewer ids",
			text, pool.blocks(), pairs/labelsPerNamespace)
	}
	return pool, nil
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

// Level returns the SELinux level of a block: of all pairs of categories, ordered by the higher one, every fifth.
func Level(block int) string {
	rank := block * labelsPerNamespace
	high := int((1 + math.Sqrt(float64(1+8*rank))) / 2)
	return fmt.Sprintf("s0:c%d,c%d", high, rank-high*(high-1)/2)
}

// Holder is a namespace that is to be given what it lacks.
type Holder struct {
	Name        string
	Created     time.Time
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

// Allocate gives every namespace what it lacks, or shares with an older one by mistake. Blocks are given in turn from next on,
// and the number with which to go on is returned: a block that somebody gave back rests as long as possible. An error comes with
// the allocations that could be made.
func Allocate(pool Pool, next int, holders []Holder) ([]Allocation, int, error) {
	holders = slices.Clone(holders)
	slices.SortFunc(holders, func(a, b Holder) int { return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name)) })
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
	slices.SortFunc(ranges, func(a, b owned) int { return cmp.Or(cmp.Compare(a.Min, b.Min), cmp.Compare(a.age, b.age)) })
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
		wrong[younger.name] = fmt.Sprintf("its user ids %d-%d are also those of namespace %s", younger.Min, younger.Max, older.name)
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
			allocation.Annotations[v1alpha1.MCSAnnotation] = Level(number)
		}
		return allocation, nil
	}
	if !hasGroups {
		allocation.Annotations[v1alpha1.SupplementalGroupsAnnotation] = ids
	}
	if !hasLevel {
		block, _ := uidRange(holder.Annotations) // it is right, or wrong says so
		number, one := a.pool.numberOf(block)
		if !one || a.levels[normalLevel(Level(number))] {
			var err error
			if number, err = a.fresh(); err != nil {
				return allocation, err
			}
		}
		allocation.Annotations[v1alpha1.MCSAnnotation] = Level(number)
		a.levels[normalLevel(Level(number))] = true
	}
	return allocation, nil
}

// fresh returns the next block of which nobody has anything.
func (a *allocator) fresh() (int, error) {
	for range a.pool.blocks() {
		number := a.next % a.pool.blocks()
		a.next = (number + 1) % a.pool.blocks()
		block, level := a.pool.block(number), normalLevel(Level(number))
		if a.used[number] || a.levels[level] || slices.ContainsFunc(a.taken, func(t v1alpha1.IDRange) bool { return t.Min <= block.Max && block.Min <= t.Max }) {
			continue
		}
		a.used[number], a.levels[level] = true, true
		return number, nil
	}
	return 0, ErrPoolExhausted
}
