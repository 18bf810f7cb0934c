package policyspace

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
)

// settlingAge is how long after its creation a namespace may have no counted usage because the API server has not
// counted it for the first time.
const settlingAge = 10 * time.Second

// firstCounts remembers in which new namespaces usage was counted. It distinguishes a namespace that has no counted
// usage because it is new from one that lost its usage quota. It is safe for concurrent use. The zero value is ready to
// use; no namespace is new before start is called.
type firstCounts struct {
	mu sync.Mutex
	// since is when this process began to remember. Older namespaces may have been counted before.
	since time.Time
	// counted maps a namespace in a policy space to the creation time of the namespace.
	counted map[memberKey]time.Time
}

type memberKey struct {
	space     string
	namespace types.UID
}

// start sets the time since when namespaces are remembered. Only the first call has an effect.
func (f *firstCounts) start(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since.IsZero() {
		f.since = now
	}
}

// add remembers that the usage of a namespace was counted in a policy space that enforces a limit.
func (f *firstCounts) add(space *v1alpha1.PolicySpace, ns *corev1.Namespace) {
	if isOld := time.Since(ns.CreationTimestamp.Time) > settlingAge; isOld || len(space.Status.Hard) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := memberKey{space.Name, ns.UID}
	if _, isKnown := f.counted[key]; isKnown {
		return
	}
	maps.DeleteFunc(f.counted, func(_ memberKey, created time.Time) bool { return time.Since(created) > settlingAge })
	if f.counted == nil {
		f.counted = map[memberKey]time.Time{}
	}
	f.counted[key] = ns.CreationTimestamp.Time
}

// isNew reports whether a namespace without counted usage is so new that its usage was never counted.
func (f *firstCounts) isNew(space *v1alpha1.PolicySpace, ns *corev1.Namespace) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, wasCounted := f.counted[memberKey{space.Name, ns.UID}]
	return !wasCounted && ns.CreationTimestamp.After(f.since) &&
		(initialize.Initializing(ns) || time.Since(ns.CreationTimestamp.Time) <= settlingAge)
}
