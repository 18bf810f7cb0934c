package selectors

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Users without the verb use on all templates share the data with one another, so that none of them can fill it: the
// rules of one of their templates or configurations take at most share bytes, and all rules up to reserve bytes less
// than there is room for. The reserve is for users who may use all templates.
const (
	share   = 4 << 10
	reserve = 200 << 10
)

// SizeOf returns how many bytes of the data rules take at most. Rules of templates that populate namespaces do not
// count, since they are abridged if they do not fit.
func SizeOf(rules []Rule) int {
	return size(slices.DeleteFunc(slices.Clone(rules), Rule.populates))
}

// CheckShare returns an error if a user without the verb use on all templates may not add rules, which the set has
// already.
func (s Set) CheckShare(added []Rule) error {
	if size := SizeOf(added); size > share {
		return fmt.Errorf("its selectors take %d bytes of the record of selectors, and those of a user without the verb use "+
			"on all namespacetemplates at most %d: select by fewer labels and values", size, share)
	}
	all := slices.Collect(maps.Keys(s))
	if SizeOf(all) > maxSize-reserve {
		return fullError(all, maxSize-reserve)
	}
	return nil
}

// maxLargest is how many templates and initializers an error names.
const maxLargest = 5

// fullError returns the error for rules that take more than a limit. It names the largest templates and initializers.
func fullError(rules []Rule, limit int) error {
	sizes := map[string]int{}
	for _, rule := range rules {
		if !rule.populates() {
			sizes[rule.owner()] += rule.size()
		}
	}
	names := slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(sizes[b]-sizes[a], strings.Compare(a, b))
	})
	var largest []string
	for _, name := range names[:min(len(names), maxLargest)] {
		largest = append(largest, fmt.Sprintf("%s (%d KiB)", name, (sizes[name]+1<<10-1)>>10))
	}
	return fmt.Errorf("the selectors of templates that require permission, and of initializers, take more than %d KiB: "+
		"remove some, or select by fewer labels; the largest are %s", limit>>10, strings.Join(largest, ", "))
}

// owner returns the template or the initializer that the rule is of, in words.
func (r Rule) owner() string {
	first, _, _ := strings.Cut(string(r), " ")
	kind, name, _ := strings.Cut(first, ":")
	if kind+":" == Initializes {
		return "initializer " + name
	}
	return "template " + name
}
