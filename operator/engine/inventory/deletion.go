package inventory

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// Deletions are decisions about namespaces that a tree created and no longer declares, by UID. A decision holds until
// the tree declares the namespace again, or the namespace is gone: nothing else answers what a person was asked. Only
// what the limit allowed becomes a question if the namespace is the last one of a later commit.
type Deletions struct {
	// Waiting are the namespaces whose deletion needs a confirmation, which persons are asked for.
	Waiting map[types.UID]bool
	// Kept are those that need one as well, but are protected, so that no confirmation is asked for yet.
	Kept map[types.UID]bool
	// Decided are those that are to be deleted, because the limit allowed it.
	Decided map[types.UID]bool
	// Confirmed are those that are to be deleted, because a person has confirmed it.
	Confirmed map[types.UID]bool
}

// Defaults of the deletion limit.
const (
	defaultNamespaces = 1
	defaultPercent    = 10
)

// Allowed returns how many of a tree's namespaces may be deleted without confirmation.
func Allowed(limit *v1alpha1.DeletionLimit, total int) int {
	number, percent := defaultNamespaces, defaultPercent
	if limit != nil && limit.Namespaces != nil {
		number = int(*limit.Namespaces)
	}
	if limit != nil && limit.Percent != nil {
		percent = int(*limit.Percent)
	}
	return min(number, max(1, total*percent/100))
}

// deleteNamespaces plans the deletion of namespaces that the tree created and no longer declares.
func (p *Plan) deleteNamespaces(undeclared []*unstructured.Unstructured, state State, options Options) {
	slices.SortFunc(undeclared, byName)
	p.Deletions = decide(undeclared, p.createsNamespaces(), state, options)
	for _, ns := range undeclared {
		switch {
		case isBeingDeleted(ns):
		case isProtected(ns):
			p.Protected = append(p.Protected, ns.GetName())
		case p.Deletions.Waiting[ns.GetUID()]:
			p.Waiting = append(p.Waiting, ns.GetName())
		case state.Undecided[render.IDOf(ns)]:
			p.Undecided = append(p.Undecided, render.IDOf(ns))
		default:
			p.Deletes = append(p.Deletes, ns)
		}
	}
}

// createsNamespaces reports whether the tree declares namespaces that do not exist yet.
func (p *Plan) createsNamespaces() bool {
	return slices.ContainsFunc(slices.Concat(p.Applies, p.Held), func(a Apply) bool {
		return a.Live == nil && render.IDOf(a.Declared).GroupKind == namespaceKind
	})
}

// decide decides about all undeclared namespaces. Those that are protected or being deleted count as well: a person who
// protects or deletes one of several namespaces has not confirmed the deletion of the others. While some wait that a
// confirmation would have deleted, all wait about which nothing was decided before. The last namespace of the tree
// waits, unless the commit creates others: what the limit allowed for an earlier commit does not count then.
//
// A confirmation holds for the namespaces that a person was shown: those that waited before it, and are not protected.
// The same commit may lack others by now, if spec.path was changed, or the protection of others has ended. A person who
// protects a namespace before it is deleted voids the confirmation.
func decide(undeclared []*unstructured.Unstructured, createsOthers bool, state State, options Options) Deletions {
	total := 0 // of the tree's namespaces, without those that are being deleted
	for id, live := range state.Live {
		if id.GroupKind == namespaceKind && state.Created[live.GetUID()] && !isBeingDeleted(live) {
			total++
		}
	}
	leaving := 0 // of these, the ones that are no longer declared
	for _, ns := range undeclared {
		if !isBeingDeleted(ns) {
			leaving++
		}
	}
	isLast := leaving == total && !createsOthers
	decided := Deletions{
		Waiting: map[types.UID]bool{}, Kept: map[types.UID]bool{},
		Decided: map[types.UID]bool{}, Confirmed: map[types.UID]bool{},
	}
	isAsked := false
	var undecided []*unstructured.Unstructured
	for _, ns := range undeclared {
		uid := ns.GetUID()
		wasConfirmed, wasAsked := state.Deletions.Confirmed[uid], state.Deletions.Waiting[uid]
		switch {
		case wasConfirmed && (!isProtected(ns) || isBeingDeleted(ns)):
			decided.Confirmed[uid] = true
		case state.Deletions.Decided[uid] && (!isLast || isBeingDeleted(ns)):
			decided.Decided[uid] = true
		case !wasAsked && !state.Deletions.Kept[uid] && !wasConfirmed:
			undecided = append(undecided, ns)
		case isProtected(ns):
			decided.Kept[uid] = true
		case options.Confirmed && wasAsked:
			isAsked, decided.Confirmed[uid] = true, true
		default:
			isAsked, decided.Waiting[uid] = true, true
		}
	}
	needsConfirmation := isAsked || len(undecided) > Allowed(options.Limit, total) || isLast
	for _, ns := range undecided {
		switch {
		case !needsConfirmation:
			decided.Decided[ns.GetUID()] = true
		case isProtected(ns):
			decided.Kept[ns.GetUID()] = true
		default:
			decided.Waiting[ns.GetUID()] = true
		}
	}
	return decided
}

// Digest identifies the namespaces that wait.
func (d Deletions) Digest() string {
	sum := sha256.New()
	for _, uid := range slices.Sorted(maps.Keys(d.Waiting)) {
		_, _ = sum.Write([]byte(uid + "\n"))
	}
	return hex.EncodeToString(sum.Sum(nil))
}
