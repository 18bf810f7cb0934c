package population

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/freshness"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/watch"
)

// NewStored returns an index of the templates as a manager's cache has them. They may be newer than those that the
// controller of templates has accepted.
func NewStored(ctx context.Context, mgr ctrl.Manager) (*match.Index, error) {
	stored := match.NewIndex()
	set := func(before, template *v1alpha1.NamespaceTemplate) {
		if template == nil {
			stored.Delete(before.Name)
			return
		}
		stored.Set(template)
	}
	return stored, watch.OnChange(ctx, mgr.GetCache(), &v1alpha1.NamespaceTemplate{}, set)
}

// Acceptance knows which of the stored templates are accepted: the index has those.
type Acceptance struct {
	// Live reads from the API server.
	Live  client.Reader
	Index *match.Index
	// Stored has the templates as the cache has them.
	Stored *match.Index

	// listing is held while the templates are listed.
	listing sync.Mutex
	// mu guards what follows.
	mu     sync.Mutex
	latest listed
	// unlisted names the templates of the start that have kinds whose first list has not arrived or timed out. Their
	// namespaces wait.
	unlisted map[string]struct{}
}

// Each new namespace that no template selects needs a list of all templates. So that lists do not keep an API server
// busy, each one is followed by a pause that is listPauseFactor times as long, but at most longestListPause, because
// these namespaces wait. Those that come meanwhile are queued for its end, so that the workers are free for others.
// They all share the next list, which is newer than they are. Deletions of undeclared objects, which need a list that
// begins after they are planned, do not wait for the end of the pause: each list would serve only a few of many.
const (
	listPauseFactor  = 4
	longestListPause = time.Second
)

// listed is the result of a list of the templates.
type listed struct {
	begun time.Time
	// next is when the next list may begin.
	next time.Time
	err  error
	// unaccepted has the generations of the templates that were not accepted.
	unaccepted map[string]generation
	// asOf is the resourceVersion of the list. A list that failed keeps that of the one before, and its templates.
	asOf string
}

// Behind returns after which time to try again if a template selects a namespace that was not populated with its
// current generation, or zero: the template was accepted since, or is not accepted yet. For a namespace that no
// template seems to select, the API server is asked for templates that are not in the cache.
func (a *Acceptance) Behind(
	ctx context.Context, ns *corev1.Namespace, populated []*v1alpha1.NamespaceTemplate,
) (time.Duration, error) {
	if len(populated) == 0 {
		if wait, err := a.Current(ctx, ns.ResourceVersion, ns); err != nil || wait > 0 {
			return wait, err
		}
	}
	for _, template := range a.Stored.Match(ns) {
		indexed := a.Index.Get(template.Name)
		if indexed == nil || !sameGeneration(indexed, template) ||
			match.DisabledReason(indexed) != match.DisabledReason(template) {
			return requeueSoon, nil
		}
	}
	// This comes last, because a template that was skipped above may have been accepted just then.
	if !slices.EqualFunc(a.Index.Match(ns), populated, sameGeneration) {
		return requeueSoon, nil
	}
	return 0, nil
}

func sameGeneration(a, b *v1alpha1.NamespaceTemplate) bool {
	return a.UID == b.UID && a.Generation == b.Generation
}

// Current returns zero if all templates are accepted that select a namespace in one of several states: as they were at
// a resourceVersion, or as they are now if the resourceVersion is empty. Otherwise, or if that is unknown until the
// next list, it returns after which time to ask again.
func (a *Acceptance) Current(ctx context.Context, asOf string, states ...*corev1.Namespace) (time.Duration, error) {
	unaccepted, wait, err := a.unaccepted(ctx, asOf)
	if err != nil || wait > 0 {
		return wait, err
	}
	for name, stored := range unaccepted {
		template, err := a.read(ctx, name, stored)
		if err != nil {
			return 0, err
		}
		if template != nil && slices.ContainsFunc(states, func(ns *corev1.Namespace) bool {
			return a.Index.Explain(template, ns).Matches
		}) {
			return requeueSoon, nil
		}
	}
	return 0, nil
}

// read returns a template in a generation or a later one, or nil if it does not exist any more.
func (a *Acceptance) read(ctx context.Context, name string, at generation) (*v1alpha1.NamespaceTemplate, error) {
	if template := a.Stored.Get(name); template != nil && at.isReachedBy(template) {
		return template, nil
	}
	template := &v1alpha1.NamespaceTemplate{}
	err := a.Live.Get(ctx, client.ObjectKey{Name: name}, template)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get template %s, which is not accepted yet: %w", name, err)
	}
	return template, nil
}

type generation struct {
	uid    types.UID
	number int64
}

// isReachedBy reports whether a template has the generation, or a later one.
func (g generation) isReachedBy(template *v1alpha1.NamespaceTemplate) bool {
	return template.UID == g.uid && template.Generation >= g.number
}

// unaccepted returns the generations, by name, of the templates that are not accepted as they were at a
// resourceVersion, or as they are now if the resourceVersion is empty. It lists the templates only if no earlier list
// is as new, and from time to time while some are not accepted: they may have been deleted, and are then never
// accepted. Of the namespaces that need a list at the same time, such as those of a policy space that moves, one lists
// them for all. During the pause after a list that is older than the resourceVersion, unaccepted returns how long the
// pause still lasts.
func (a *Acceptance) unaccepted(ctx context.Context, asOf string) (map[string]generation, time.Duration, error) {
	called := time.Now()
	if known, isKnown, err := a.latestUnaccepted(asOf, called); isKnown {
		return known, 0, err
	}
	a.listing.Lock()
	defer a.listing.Unlock()
	if known, isKnown, err := a.latestUnaccepted(asOf, called); isKnown {
		return known, 0, err
	}
	if pause := a.pause(); pause > 0 && asOf != "" {
		return nil, pause, nil
	}
	latest := a.list(ctx)
	return a.withoutAcceptance(latest.unaccepted), 0, latest.err
}

// pause returns how long the next list has to wait.
func (a *Acceptance) pause() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Until(a.latest.next)
}

// latestUnaccepted returns the templates by the latest list, and whether that suffices: it was begun after a time, or
// is as new as a resourceVersion. The error is that of a list which was begun after the time.
func (a *Acceptance) latestUnaccepted(
	asOf string, called time.Time,
) (unaccepted map[string]generation, isKnown bool, err error) {
	a.mu.Lock()
	latest := a.latest
	a.mu.Unlock()
	unaccepted = a.withoutAcceptance(latest.unaccepted)
	if latest.begun.After(called) {
		return unaccepted, true, latest.err
	}
	isListed := asOf != "" && freshness.AtLeast(latest.asOf, asOf)
	isRecent := time.Since(latest.begun) < requeueSoon || time.Now().Before(latest.next)
	return unaccepted, isListed && (len(unaccepted) == 0 || isRecent), nil
}

// withoutAcceptance returns those of some templates that are not accepted.
func (a *Acceptance) withoutAcceptance(templates map[string]generation) map[string]generation {
	unaccepted := map[string]generation{}
	for name, stored := range templates {
		if !a.accepted(name, stored) {
			unaccepted[name] = stored
		}
	}
	return unaccepted
}

// list lists the templates, and returns the result, which it keeps.
func (a *Acceptance) list(ctx context.Context) listed {
	begun := time.Now()
	list, err := leadership.ListMetadata(ctx, a.Live, v1alpha1.GroupVersion.WithKind("NamespaceTemplateList"))
	next := time.Now().Add(min(listPauseFactor*time.Since(begun), longestListPause))
	unaccepted := map[string]generation{}
	if err == nil {
		for i := range list.Items {
			item := &list.Items[i]
			if g := (generation{item.UID, item.Generation}); !a.accepted(item.Name, g) {
				unaccepted[item.Name] = g
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.latest.begun, a.latest.next = begun, next; err != nil {
		a.latest.err = fmt.Errorf("list templates that are not accepted yet: %w", err)
	} else {
		a.latest = listed{begun: begun, next: next, unaccepted: unaccepted, asOf: list.ResourceVersion}
	}
	return a.latest
}

// accepted reports whether a generation of a template, or a later one, is accepted.
func (a *Acceptance) accepted(name string, g generation) bool {
	indexed := a.Index.Get(name)
	return indexed != nil && g.isReachedBy(indexed)
}

// WaitsForObjects reports whether a template selects a namespace whose objects were not all listed at the start.
func (a *Acceptance) WaitsForObjects(ns *corev1.Namespace) bool {
	a.mu.Lock()
	unlisted := maps.Clone(a.unlisted)
	a.mu.Unlock()
	if len(unlisted) == 0 {
		return false
	}
	// The index does not have a template none of whose revisions exists.
	selecting := slices.Concat(a.Index.Match(ns), a.Stored.Match(ns))
	return slices.ContainsFunc(selecting, func(t *v1alpha1.NamespaceTemplate) bool {
		_, isUnlisted := unlisted[t.Name]
		return isUnlisted
	})
}

func (a *Acceptance) isUnlisted(template string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, isUnlisted := a.unlisted[template]
	return isUnlisted
}

// pendingRetry returns how often a template is reconciled while its kinds are being listed.
func (a *Acceptance) pendingRetry(template string) time.Duration {
	if a.isUnlisted(template) {
		return oldPendingRetry
	}
	return newPendingRetry
}

// setUnlisted records that the objects of a template of the start are not known yet.
func (a *Acceptance) setUnlisted(template string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unlisted == nil {
		a.unlisted = map[string]struct{}{}
	}
	a.unlisted[template] = struct{}{}
}

// setListed records that the objects of a template are known, or that it is known why they cannot be listed.
func (a *Acceptance) setListed(template string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.unlisted, template)
}
