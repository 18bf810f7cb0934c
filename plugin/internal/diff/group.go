package diff

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// group is the same change in one or several namespaces: the same action on an object of the same name, with the same
// fields before and after.
type group struct {
	items []*item
}

// groups returns the groups of the differences, in the order of their first namespaces. If full is true, each
// difference is a group of its own.
func (r *report) groups(full bool) []*group {
	return groupsOf(r.differences(), func(i *item) string {
		if full {
			return i.fullKey()
		}
		return i.groupKey()
	})
}

// groupsOf returns the items with the same key as groups, in the order of the first items.
func groupsOf(items []*item, keyOf func(*item) string) []*group {
	var groups []*group
	byKey := map[string]*group{}
	for _, i := range items {
		key := keyOf(i)
		if byKey[key] == nil {
			byKey[key] = &group{}
			groups = append(groups, byKey[key])
		}
		byKey[key].items = append(byKey[key].items, i)
	}
	return groups
}

// fullKey returns the key of an object that is shown in full.
func (i *item) fullKey() string {
	return strings.Join([]string{i.Context, i.Namespace, i.Object}, "\x00")
}

// groupKey returns the key of a change that several namespaces of a cluster may have in common.
func (i *item) groupKey() string {
	changed, err := json.Marshal(i.Fields)
	if err != nil {
		changed = []byte(i.Namespace)
	}
	isExact := fmt.Sprint(i.Estimate == "")
	parts := []string{i.Context, i.sharedObject(), i.Template, string(i.Action), i.Fails, isExact, string(changed)}
	return strings.Join(parts, "\x00")
}

// sharedObject returns the object as it is named for several namespaces.
func (i *item) sharedObject() string {
	if i.change.Metadata != nil {
		return "namespace"
	}
	return i.Object
}

// example returns the item that is shown in full: one whose dry run was sent in its own namespace, if there is any.
func (g *group) example() *item {
	for _, i := range g.items {
		if i.DryRunNamespace == i.Namespace {
			return i
		}
	}
	return g.items[0]
}

// namespaces returns the first few namespaces.
func (g *group) namespaces() string {
	var names []string
	for _, i := range g.items {
		names = append(names, i.Namespace)
	}
	return output.FirstFew(names)
}

// lines returns a line for each field of a change in several namespaces: "in 108 namespaces (a, b, c and 105 more):
// resourcequota/budget spec.hard.pods 50 -> 60". It returns none for a change in one namespace, which is shown in full,
// unless the object is kept.
func (g *group) lines() []string {
	if len(g.items) == 1 && g.items[0].Action != actionKeep {
		return nil
	}
	first := g.example()
	prefix := fmt.Sprintf("in %s (%s): %s ", output.Count(len(g.items), "namespace"), g.namespaces(),
		first.sharedObject())
	suffix := ""
	switch {
	case first.Fails != "":
		suffix = " (would fail)"
	case len(first.Fields) > 0 && first.Action != actionConfigure:
		suffix = " (" + first.Action.done() + ")"
	}
	if len(first.Fields) == 0 {
		return []string{prefix + first.Action.done() + suffix}
	}
	var lines []string
	for _, f := range first.Fields {
		lines = append(lines, prefix+f.String()+suffix)
	}
	return lines
}

// noteFailures prints a note for each change that the API server would reject, and for each object that would be
// replaced.
func noteFailures(s cli.Session, groups []*group) {
	for _, g := range groups {
		switch first := g.example(); {
		case first.Fails != "":
			s.Note("%s: %s would fail: %s", g.namespaces(), first.Object, first.Fails)
		case first.Action == actionReplace:
			s.Note("%s: %s cannot be updated in place, so it would be deleted and recreated", g.namespaces(),
				first.Object)
		}
	}
}

// noteEstimates prints a note for each change that is an estimate or unknown.
func noteEstimates(s cli.Session, groups []*group) {
	for _, g := range groups {
		switch first := g.example(); {
		case first.Estimate == "":
		case first.DryRunNamespace == "":
			s.ForContext(first.Context).Note("%s: %s is not shown: %s", g.namespaces(), first.Object, first.Estimate)
		default:
			s.ForContext(first.Context).Note("%s: %s is an estimate, because %s", g.namespaces(), first.Object,
				first.Estimate)
		}
	}
}

// noteUnknown prints notes about what could not be compared in clusters.
func noteUnknown(replies []cli.Reply[*report]) {
	for _, r := range replies {
		if r.Value == nil {
			continue
		}
		for _, unknown := range r.Value.Unknown {
			r.Note("not compared: %s", unknown)
		}
	}
}

// noteUnmatched turns the errors about clusters in which no namespace matches the selector into notes, if a namespace
// matches in another cluster. Otherwise, the selector may be misspelled, and the errors remain.
func noteUnmatched(replies []cli.Reply[*report]) {
	if !slices.ContainsFunc(replies, func(r cli.Reply[*report]) bool { return r.Value != nil }) {
		return
	}
	for i := range replies {
		if _, isUnmatched := errors.AsType[cli.UnmatchedError](replies[i].Err); isUnmatched {
			replies[i].Note("%v", replies[i].Err)
			replies[i].Err = nil
		}
	}
}

// noteNotPopulated prints which namespaces are not populated, and so not compared, and why.
func (r *report) noteNotPopulated(s cli.Session) {
	for _, skipped := range r.NotPopulated {
		s.ForContext(skipped.Context).Note("not populated: %s: %s", output.FirstFew(skipped.Namespaces),
			skipped.Message)
	}
}

// noteLeftAlone prints a note for each reason why the operator leaves objects alone.
func (r *report) noteLeftAlone(s cli.Session, removes bool) {
	what := "left alone"
	if removes {
		what = "would stay"
	}
	groups := groupsOf(r.leftAlone(), func(i *item) string { return i.Reason + "\x00" + i.Context })
	slices.SortStableFunc(groups, func(a, b *group) int {
		return strings.Compare(a.items[0].Reason, b.items[0].Reason)
	})
	for _, g := range groups {
		var objects []string
		for _, i := range g.items {
			objects = append(objects, i.Object)
		}
		s.ForContext(g.items[0].Context).Note("%s: %s in %s: %s", what, output.FirstFew(objects), g.namespaces(),
			g.items[0].Reason)
	}
}

// noteReasons prints a note with the reason for each difference, once for all namespaces with the same one.
func (r *report) noteReasons(s cli.Session) {
	for _, g := range groupsOf(r.differences(), func(i *item) string {
		return strings.Join([]string{i.Object, i.Template, i.Reason, string(i.Action)}, "\x00")
	}) {
		i := g.items[0]
		s.Note("%s: %s: %s (template %s): %s", g.namespaces(), i.Object, i.Action.words(), i.Template, i.Reason)
	}
}

// noteSummary prints the numbers of different objects and namespaces: "4 differences in 2 of 3 namespaces: 3 created, 1
// pruned; 1 would fail".
func (r *report) noteSummary(s cli.Session) {
	skipped := r.notPopulated()
	all, others := output.Count(r.Summary.Namespaces-skipped, "namespace"), ""
	if skipped > 0 {
		others = fmt.Sprintf("; %s not compared", output.Count(skipped, "namespace"))
	}
	if r.Summary.DifferentObjects == 0 {
		known := ""
		if r.isRecorded || len(r.Unknown) > 0 {
			known = "known "
		}
		s.Note("no %sdifferences in %s%s", known, all, others)
		return
	}
	var counts []string
	for _, known := range actions {
		if n := r.Summary.Actions[known.action]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, known.done))
		}
	}
	failing := ""
	if n := r.Summary.Failing; n > 0 {
		failing = fmt.Sprintf("; %d would fail", n)
	}
	s.Note("%s in %d of %s: %s%s%s", output.Count(r.Summary.DifferentObjects, "difference"),
		r.Summary.DifferentNamespaces, all, strings.Join(counts, ", "), failing, others)
}
