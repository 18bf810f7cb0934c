package population

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/engine/rollout"
	"nstpl.dev/nstpl/operator/internal/objects"
	"nstpl.dev/nstpl/operator/internal/queue"
)

// state is the part of a template that decides about objects in all namespaces alike. What differs between them is in
// the layers.
type state struct {
	off string
	// accepted is the message of the Accepted condition, because kinds may become available without a change of the
	// template.
	accepted  string
	restarted string
	// tree is the tree from which the template was compiled.
	tree string
	// keepsRevoked decides whether namespaces that have earlier revisions keep the grants of these.
	keepsRevoked bool
	// outside decides about objects and exemptions in namespaces that the template does not select.
	outside outside
}

// outside is what conditions of namespaces name that a template does not select, or selects no more.
type outside struct {
	deletionPolicy v1alpha1.DeletionPolicy
	selector       string
}

// Rollouts takes the steps of the rollouts of templates, and queues the namespaces that they reach.
type Rollouts struct {
	// Namespaces are the cached ones.
	Namespaces corev1listers.NamespaceLister
	Index      *match.Index
	Objects    *objects.Store
	Results    *Results
	Remains    *Remains
	Queue      *queue.Queue
	Exclude    []string
	Metrics    *Metrics
	Recorder   events.EventRecorder

	mu    sync.Mutex
	known map[string]*known
}

// known is what is known about the rollout of a template. A template has one reconciliation at a time, which alone uses
// it.
type known struct {
	// rolledOut is the state of the template that was rolled out last.
	rolledOut state
	// failedBefore has the namespaces that failed before the newest revision reached them. It is nil while nothing is
	// known about them.
	failedBefore rollout.FailedBefore
}

// of returns what is known about a template.
func (r *Rollouts) of(template string) *known {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[string]*known{}
	}
	if r.known[template] == nil {
		r.known[template] = &known{}
	}
	return r.known[template]
}

func acceptedOf(template *v1alpha1.NamespaceTemplate) *metav1.Condition {
	return apimeta.FindStatusCondition(template.Status.Conditions, v1alpha1.TemplateAccepted)
}

func stateOf(template *v1alpha1.NamespaceTemplate) state {
	s := state{
		off: match.DisabledReason(template), restarted: template.Annotations[v1alpha1.RestartedAtAnnotation],
		tree: template.Labels[v1alpha1.TreeLabel], keepsRevoked: template.Spec.Rollout.KeepsRevoked(),
		outside: outside{
			template.Spec.DeletionPolicy, metav1.FormatLabelSelector(template.Spec.Namespaces.LabelSelector),
		},
	}
	if accepted := acceptedOf(template); accepted != nil {
		s.accepted = accepted.Message
	}
	return s
}

// queueChanged queues the namespaces that have another revision of a template than before. If the state of the template
// changed, it queues all namespaces that a revision selects, or that have objects of the template. If only what decides
// about other namespaces changed, it queues those of them that no revision selects.
func (r *Rollouts) queueChanged(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, before, layers rollout.Layers,
) error {
	now, was, isNew := stateOf(template), r.of(template.Name).rolledOut, before == nil
	hasChangedOutside := !isNew && now.outside != was.outside
	was.outside = now.outside
	hasChanged := !isNew && now != was
	if !isNew && !hasChanged && !hasChangedOutside && sameReach(before, layers) {
		return nil
	}
	both := append(append(rollout.Layers{}, layers...), before...)
	namespaces, err := r.selectedBy(both)
	if err != nil {
		return err
	}
	affected := map[string]struct{}{}
	pending := map[int64][]string{}
	revokes := mayRevoke(before, layers)
	for _, ns := range namespaces {
		layer := layers.For(ns)
		if layer == nil && now.off == "" && selects(&layers[0], ns) {
			r.Results.SetAhead(template.Name, ns.Name)
		}
		isSame := !hasChanged && sameRevision(before.For(ns), layer)
		if !isSame || revokes && layer != nil {
			affected[ns.Name] = struct{}{}
		}
		if isSame {
			continue
		}
		if layer != nil && now.off == "" && selects(layer, ns) {
			pending[layer.Template.Generation] = append(pending[layer.Template.Generation], ns.Name)
		}
	}
	if hasChanged || isNew || hasChangedOutside {
		holding, err := r.holding(ctx, template)
		if err != nil {
			return err
		}
		if !hasChanged && !isNew {
			for _, ns := range namespaces {
				delete(holding, ns.Name)
			}
		}
		maps.Copy(affected, holding)
	}
	for generation, names := range pending {
		r.Results.SetPending(template.Name, generation, names)
	}
	// Namespaces of a team, which the same templates select, often have similar names: these are compiled once.
	r.Queue.Enqueue(queue.Rollout, 0, slices.Sorted(maps.Keys(affected))...)
	r.of(template.Name).rolledOut = now
	return nil
}

// holding returns the namespaces that have objects, labels or annotations of a template, or exemptions from it.
func (r *Rollouts) holding(ctx context.Context, template *v1alpha1.NamespaceTemplate) (map[string]struct{}, error) {
	names, err := r.Remains.withMetadataOf(ctx, template)
	if err != nil {
		return nil, err
	}
	holding := map[string]struct{}{}
	for _, name := range append(names, r.Index.ExemptFrom(template.Name)...) {
		holding[name] = struct{}{}
	}
	for name := range r.Objects.Populated(template.Name) {
		holding[name] = struct{}{}
	}
	return holding, nil
}

// mayRevoke reports whether a new revision may take away grants in namespaces that it has not reached.
func mayRevoke(before, layers rollout.Layers) bool {
	if len(before) == 0 || sameRevision(&before[0], &layers[0]) {
		return false
	}
	return slices.ContainsFunc(layers[1:], func(layer rollout.Layer) bool {
		return slices.ContainsFunc(render.AllDeclarations(layer.Template), func(d render.Declaration) bool {
			return d.Group == rbacv1.GroupName
		})
	})
}

// sameReach reports whether every namespace has the same revision in both layers.
func sameReach(a, b rollout.Layers) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i].TemplateRevision, b[i].TemplateRevision
		if x.Name != y.Name || x.Generation != y.Generation || x.Wave != y.Wave || x.Reach != y.Reach ||
			(x.State == v1alpha1.RolloutComplete) != (y.State == v1alpha1.RolloutComplete) ||
			!x.StopTime.Equal(y.StopTime) {
			return false
		}
	}
	return true
}

func sameRevision(a, b *rollout.Layer) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Name == b.Name && a.Template.UID == b.Template.UID && a.Template.Generation == b.Template.Generation
}

// selects reports whether the selector of a layer selects a namespace. An invalid selector selects none.
func selects(layer *rollout.Layer, ns *corev1.Namespace) bool {
	selector, err := match.Selector(layer.Template.Spec.Namespaces)
	return err == nil && selector.Matches(labels.Set(ns.Labels))
}

// selectedBy returns the namespaces that any of the layers selects and that may be populated, and those that are opted
// out, which the status counts.
func (r *Rollouts) selectedBy(layers rollout.Layers) ([]*corev1.Namespace, error) {
	var all []*corev1.Namespace
	seen := map[string]struct{}{}
	for i := range layers {
		selector, err := match.Selector(layers[i].Template.Spec.Namespaces)
		if err != nil {
			continue // it selects nothing, and the status of the template says why
		}
		namespaces, err := list(r.Namespaces, selector)
		if err != nil {
			return nil, fmt.Errorf("list the namespaces of template %s: %w", layers[i].Template.Name, err)
		}
		for _, ns := range namespaces {
			if _, isListed := seen[ns.Name]; isListed {
				continue
			}
			seen[ns.Name] = struct{}{}
			if match.OptedOut(ns) || match.UnpopulatedReason(ns, r.Exclude...) == "" {
				all = append(all, ns)
			}
		}
	}
	return all, nil
}

// list returns the namespaces that a selector selects. Most templates of a tree require the name of one.
func list(from corev1listers.NamespaceLister, selector labels.Selector) ([]*corev1.Namespace, error) {
	name, isNamed := selector.RequiresExactMatch(corev1.LabelMetadataName)
	if !isNamed {
		return from.List(selector)
	}
	ns, err := from.Get(name)
	if err != nil || !selector.Matches(labels.Set(ns.Labels)) {
		return nil, client.IgnoreNotFound(err)
	}
	return []*corev1.Namespace{ns}, nil
}

// nextStep is the time after a step of a rollout in which namespaces are found that need not be populated.
const nextStep = 10 * time.Millisecond

// stepRetry is how often a rollout that progresses looks for its next step. The namespaces that it waits for may have
// been deleted, or not be selected any more, so that no result of theirs leads to the next step.
const stepRetry = 2 * time.Second

// advance takes the next step of the rollout of a template's newest revision. It returns after which time the step
// after that may be due, or 0. After a start, nothing is known until every namespace that the template may select has
// been reconciled once.
func (r *Rollouts) advance(
	template *v1alpha1.NamespaceTemplate, layers rollout.Layers, status *v1alpha1.NamespaceTemplateStatus,
) (time.Duration, error) {
	// A template that is disabled and enabled again continues its rollout.
	if len(status.Revisions) == 0 || status.Revisions[0].State == v1alpha1.RolloutComplete ||
		match.DisabledReason(template) != "" ||
		layers[0].Name != status.Revisions[0].Name || !r.Results.Complete(template.Name) {
		return 0, nil
	}
	members, err := r.members(template, layers)
	if err != nil {
		return 0, err
	}
	before := status.Revisions[0]
	next, wait := rollout.Advance(before, template.Spec.Rollout, members, time.Now())
	if next.State == v1alpha1.RolloutComplete {
		status.Revisions = []v1alpha1.TemplateRevision{next}
		return 0, nil
	}
	status.Revisions[0] = next
	if next.Wave != before.Wave || next.Reach != before.Reach {
		// After a restart, the namespaces that the revision reaches may all have it. They are not populated again, so
		// no result of theirs leads to the next step.
		wait = nextStep
	}
	if wait == 0 && next.State == v1alpha1.RolloutProgressing {
		wait = stepRetry
	}
	return wait, nil
}

func (r *Rollouts) forget(template string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, template)
}

// members returns the namespaces of a rollout, with what is known about them.
func (r *Rollouts) members(
	template *v1alpha1.NamespaceTemplate, layers rollout.Layers,
) ([]rollout.Member, error) {
	namespaces, err := r.selectedBy(layers)
	if err != nil {
		return nil, err
	}
	results := r.Results.Of(template.Name)
	newest := &layers[0]
	known := r.of(template.Name)
	before := known.failedBefore
	// A changed label or an exemption may exclude a namespace for a while, also when its batch is taken. That makes its
	// failure not a new one.
	failedBefore := rollout.FailedBefore{}
	maps.Copy(failedBefore, before)
	members := make([]rollout.Member, 0, len(namespaces))
	for _, ns := range namespaces {
		if r.Index.IsOutside(ns, template.Name) {
			continue
		}
		member := rollout.Member{
			Wave: newest.WaveOf(ns), Position: newest.PositionOf(ns.UID), Reached: newest.Reached(ns),
			IsNew: newest.StartTime.Before(&ns.CreationTimestamp),
		}
		result, isKnown := results[ns.Name]
		member.Failed = isKnown && result.State == Failed && result.Lasts
		member.IsUnknown = !isKnown || result.State == Pending ||
			result.State == Failed && result.Passes && !result.Lasts
		if !isKnown {
			member.Pending = selects(newest, ns)
		} else {
			member.Pending = member.IsUnknown || result.Generation < newest.Template.Generation
		}
		before.Next(failedBefore, ns, &member)
		members = append(members, member)
	}
	maps.DeleteFunc(failedBefore, func(uid types.UID, failing rollout.Failing) bool {
		ns, err := r.Namespaces.Get(failing.Name)
		return err != nil || ns.UID != uid
	})
	if before == nil {
		failedBefore.Confirm(newest.FailedBefore)
	}
	known.failedBefore = failedBefore
	return members, nil
}
