package namespace

import (
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/rollout"
)

// board holds the statuses of namespaces, as they were last shown, and what they are computed from.
type board struct {
	// index is nil if the user may not list templates.
	index      *match.Index
	namespaces map[string]*corev1.Namespace
	// showsAll is true if namespaces are shown that no template selects.
	showsAll bool
	// onlyFailing is true if only namespaces are shown that need attention.
	onlyFailing bool
	shown       map[string]namespaceStatus
	// exemptions holds those TemplateExemptions of each namespace that exist, also those not in force any more. Only a
	// watch sets it.
	exemptions map[string][]*v1alpha1.TemplateExemption
	// ends holds when the next exemption of a namespace expires.
	ends map[string]time.Time
	// stale holds the names of the namespaces whose status may have changed since it was shown.
	stale map[string]struct{}
}

// newBoard returns a board with namespaces, none of which was shown.
func newBoard(index *match.Index, namespaces []*corev1.Namespace, showsAll bool) *board {
	b := &board{
		index: index, namespaces: map[string]*corev1.Namespace{}, showsAll: showsAll,
		shown: map[string]namespaceStatus{}, stale: map[string]struct{}{},
		exemptions: map[string][]*v1alpha1.TemplateExemption{}, ends: map[string]time.Time{},
	}
	for _, ns := range namespaces {
		b.setNamespace(ns)
	}
	return b
}

func (b *board) setNamespace(ns *corev1.Namespace) {
	b.namespaces[ns.Name] = ns
	b.stale[ns.Name] = struct{}{}
}

func (b *board) deleteNamespace(name string) {
	delete(b.namespaces, name)
	b.stale[name] = struct{}{}
}

// setTemplate adds or replaces a template, with the revisions that namespaces have. A template of which only other
// parts of the status changed selects the same namespaces.
func (b *board) setTemplate(template *v1alpha1.NamespaceTemplate, layers rollout.Layers) {
	known := b.index.Get(template.Name)
	b.index.SetLayers(template, layers)
	if known == nil || known.UID != template.UID || known.Generation != template.Generation ||
		!maps.Equal(known.Annotations, template.Annotations) ||
		!reflect.DeepEqual(known.Status.Revisions, template.Status.Revisions) {
		b.setAllStale()
	}
}

func (b *board) deleteTemplate(name string) {
	b.index.Delete(name)
	b.setAllStale()
}

// setExemptions replaces the TemplateExemptions of a namespace.
func (b *board) setExemptions(namespace string, exemptions []*v1alpha1.TemplateExemption, now time.Time) {
	active, next := match.InForce(exemptions, metav1.NewTime(now))
	b.index.SetExemptions(namespace, active)
	delete(b.exemptions, namespace)
	delete(b.ends, namespace)
	if len(exemptions) > 0 {
		b.exemptions[namespace] = exemptions
	}
	if next != nil {
		b.ends[namespace] = next.Time
	}
	b.stale[namespace] = struct{}{}
}

// nextEnd returns when the next exemption expires, or the zero time.
func (b *board) nextEnd() time.Time {
	var next time.Time
	for _, end := range b.ends {
		if next.IsZero() || end.Before(next) {
			next = end
		}
	}
	return next
}

// expire removes the exemptions that have expired.
func (b *board) expire(now time.Time) {
	for namespace, end := range b.ends {
		if !end.After(now) {
			b.setExemptions(namespace, b.exemptions[namespace], now)
		}
	}
}

func (b *board) setAllStale() {
	for name := range b.namespaces {
		b.stale[name] = struct{}{}
	}
}

// changes returns the statuses that differ from those that were shown, in the order of the names, and records that they
// are shown now. The last status of a namespace that is not watched any more has the reason Deleted.
func (b *board) changes() []namespaceStatus {
	changed := []namespaceStatus{}
	for _, name := range slices.Sorted(maps.Keys(b.stale)) {
		before, wasShown := b.shown[name]
		ns := b.namespaces[name]
		if ns == nil {
			if wasShown {
				delete(b.shown, name)
				changed = append(changed, deleted(before))
			}
			continue
		}
		now := newNamespaceStatus(b.index, ns)
		isShown := b.showsAll || len(now.Templates) > 0 || populate.PopulatedCondition(ns) != nil ||
			now.needsAttention()
		isShown = isShown && (now.needsAttention() || !b.onlyFailing)
		if !isShown && !wasShown || wasShown && reflect.DeepEqual(before, now) {
			continue
		}
		changed = append(changed, now)
		delete(b.shown, name)
		if isShown {
			b.shown[name] = now
		}
	}
	clear(b.stale)
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
