package namespace

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// board holds the statuses of namespaces, as they were last shown, and what they are computed from.
type board struct {
	// index is nil if the user may not list templates.
	index *match.Index
	// isOutdated is true if the index could not be read when it was read last.
	isOutdated bool
	namespaces []*corev1.Namespace
	// showsAll is true if namespaces are shown that no template selects.
	showsAll bool
	// onlyFailing is true if only namespaces are shown that need attention.
	onlyFailing bool
	shown       map[string]namespaceStatus
}

// changes returns the statuses that differ from those that were shown, and records that they are shown now. The last
// status of a namespace that is not watched any more has the reason Deleted.
func (b *board) changes() []namespaceStatus {
	changed, before := []namespaceStatus{}, b.shown
	b.shown = map[string]namespaceStatus{}
	for _, ns := range b.namespaces {
		last, wasShown := before[ns.Name]
		delete(before, ns.Name)
		now := newNamespaceStatus(b.index, ns)
		isShown := b.showsAll || len(now.Templates) > 0 || populate.PopulatedCondition(ns) != nil ||
			now.needsAttention()
		isShown = isShown && (now.needsAttention() || !b.onlyFailing)
		if isShown {
			b.shown[ns.Name] = now
		}
		if (isShown || wasShown) && !reflect.DeepEqual(last, now) {
			changed = append(changed, now)
		}
	}
	for _, last := range before {
		changed = append(changed, deleted(last))
	}
	return changed
}

// deleted returns the last status of a namespace that was deleted, or whose labels do not match -l any more.
func deleted(before namespaceStatus) namespaceStatus {
	return namespaceStatus{
		Namespace: before.Namespace, Populated: notPopulated, State: settled, Templates: []string{},
		Reason:  "Deleted",
		Message: "the namespace was deleted, or its labels do not match any more", created: before.created,
	}
}
