package selectors

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Keys of the data. The other keys begin with labelPrefix.
const (
	// keyAny has the rules that begin with a label of any value, and keyAll those that begin with none.
	keyAny, keyAll = "any", "all"
	labelPrefix    = "label."
)

// maxSize is the size in bytes from which the data is abridged. The API server stores ConfigMaps of up to 1 MiB, and
// pending additions take a part.
const maxSize = 700 << 10

// maxGroupSize is the size in bytes from which the rules of templates are abridged that a namespace's label is compared
// with, or that every namespace is. Some 300 KiB take the API server a second, and more are denied.
const maxGroupSize = 16 << 10

// maxKeySize is the size in bytes from which the rules of templates in one key of the data are abridged. For each label
// of a namespace, the API server searches the text of a key, and 700 KiB cost it a quarter of what an expression may.
const maxKeySize = 64 << 10

// Set is a set of rules.
type Set map[Rule]struct{}

// Add adds rules.
func (s Set) Add(rules ...Rule) {
	for _, rule := range rules {
		s[rule] = struct{}{}
	}
}

// everyNamespace is the rule of templates that select every namespace.
const everyNamespace = Rule(Populates)

// populates reports whether the rule has no purpose but that templates populate the namespace.
func (r Rule) populates() bool { return strings.HasPrefix(string(r), Populates) }

// Data returns the rules as the data of a ConfigMap. If they do not fit into a ConfigMap, every namespace counts as
// populated by a template. Data returns an error if the other rules alone do not fit.
func (s Set) Data() (map[string]string, error) {
	rules := slices.Collect(maps.Keys(s))
	if _, ok := s[everyNamespace]; ok {
		rules = withoutPopulating(rules)
	}
	if size(rules) > maxSize {
		rules = withoutPopulating(rules)
	}
	if size(rules) > maxSize {
		return nil, fullError(rules, maxSize)
	}
	counts := map[string]int{}
	for _, rule := range rules {
		for _, labels := range rule.lookups() {
			for _, label := range labels {
				counts[label]++
			}
		}
	}
	groups := map[string][]Rule{} // by label, or "" for rules that require none
	for _, rule := range rules {
		labels := rarest(rule.lookups(), counts)
		for _, label := range labels {
			groups[label] = append(groups[label], rule)
		}
		if len(labels) == 0 {
			groups[""] = append(groups[""], rule)
		}
	}
	for label, rules := range groups {
		if populatingSize(rules) > maxGroupSize {
			groups[label] = abridged(label, rules)
		}
	}
	limitKeys(groups)
	lines := map[string][]string{}
	for label, rules := range groups {
		for _, rule := range rules {
			if label == "" {
				lines[keyAll] = append(lines[keyAll], string(rule))
			} else {
				lines[keyOf(label)] = append(lines[keyOf(label)], label+" "+string(rule))
			}
		}
	}
	data := map[string]string{}
	for key, all := range lines {
		slices.Sort(all)
		// The policies rely on the first and the last character.
		data[key] = "\n" + strings.Join(all, "\n") + "\n"
	}
	return data, nil
}

// populatingSize returns how many bytes the rules of templates that populate namespaces take.
func populatingSize(rules []Rule) int {
	size := 0
	for _, rule := range rules {
		if rule.populates() {
			size += len(rule)
		}
	}
	return size
}

// limitKeys abridges the largest groups of each key until all groups of the key are small enough together. The API
// server searches the text of a key for each label of a namespace.
func limitKeys(groups map[string][]Rule) {
	size := func(label string) int { return populatingSize(groups[label]) + len(label)*len(groups[label]) }
	labels, sizes := map[string][]string{}, map[string]int{}
	for label, rules := range groups {
		if key := keyOf(label); label != "" && populatingSize(rules) > 0 {
			labels[key] = append(labels[key], label)
			sizes[key] += size(label)
		}
	}
	for key, all := range labels {
		slices.SortFunc(all, func(a, b string) int { return cmp.Or(size(b)-size(a), strings.Compare(a, b)) })
		for _, label := range all {
			if sizes[key] <= maxKeySize {
				break
			}
			sizes[key] -= size(label)
			groups[label] = abridged(label, groups[label])
			sizes[key] += size(label)
		}
	}
}

// abridged returns the rules that are found by a label, or without one, with which every namespace with the label
// counts as populated by a template: the API server evaluates all rules of a label one by one, and denies requests
// whose evaluation costs too much.
func abridged(label string, rules []Rule) []Rule {
	return append(slices.DeleteFunc(rules, Rule.populates), Rule(strings.TrimSpace(Populates+" "+label)))
}

// withoutPopulating returns the rules with everyNamespace in place of all rules of templates that populate namespaces.
func withoutPopulating(rules []Rule) []Rule {
	return append(slices.DeleteFunc(rules, Rule.populates), everyNamespace)
}

// size returns how many bytes of the data the rules take at most.
func size(rules []Rule) int {
	total := 0
	for _, rule := range rules {
		total += rule.size()
	}
	return total
}

// size returns how many bytes of the data the rule takes at most: a line for each label by which it is looked up.
func (r Rule) size() int {
	most := len(r) + 1
	for _, labels := range r.lookups() {
		lines := 0
		for _, label := range labels {
			lines += len(label) + len(" ") + len(r) + 1
		}
		most = max(most, lines)
	}
	return most
}

// rarest returns those of some lists of labels whose most frequent label is the least frequent. It prefers few labels.
func rarest(lookups [][]string, counts map[string]int) []string {
	frequency := func(labels []string) int {
		most := 0
		for _, label := range labels {
			most = max(most, counts[label])
		}
		return most
	}
	if len(lookups) == 0 {
		return nil
	}
	return slices.MinFunc(lookups, func(a, b []string) int {
		return cmp.Or(frequency(a)-frequency(b), len(a)-len(b), strings.Compare(a[0], b[0]))
	})
}

// keyOf returns the key of the data with the rules that begin with a label.
func keyOf(label string) string {
	_, value, exact := strings.Cut(label, "=")
	switch {
	case !exact:
		return keyAny
	case value == "":
		return labelPrefix
	}
	return labelPrefix + value[len(value)-1:]
}

// Parse returns the rules in the data of a ConfigMap. It ignores keys that Data does not use.
func Parse(data map[string]string) Set {
	set := Set{}
	for key, text := range data {
		if key != keyAny && key != keyAll && !strings.HasPrefix(key, labelPrefix) {
			continue
		}
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if line == "" {
				continue
			}
			if key != keyAll {
				_, line, _ = strings.Cut(line, " ")
			}
			set.Add(Rule(line))
		}
	}
	return set
}
