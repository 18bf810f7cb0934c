// Package objects caches the metadata of every populated object by kind, so that the operator knows the contents of a
// namespace without asking the API server.
package objects

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// listTimeout is how long the first list of a kind may take before the kind counts as unavailable. The list goes on.
const listTimeout = 10 * time.Second

// refusedTimeout is what is left of it once the API server has refused the list.
const refusedTimeout = 2 * time.Second

// Store watches populated objects. Informers start when a kind is first needed and run until the context given to New
// ends.
type Store struct {
	//nolint:containedctx // informers outlive the calls that start them
	ctx     context.Context
	client  metadata.Interface
	mapper  meta.RESTMapper
	reviews authorizationclient.SelfSubjectAccessReviewInterface
	changed func(namespace string)

	mu    sync.Mutex
	kinds map[schema.GroupKind]*kind
	// others are the objects without a template's label, of kinds that a template is authoritative for.
	others map[schema.GroupKind]*kind
	// unavailable says why a kind was not watched when that was tried last.
	unavailable map[schema.GroupKind]error
}

// New returns a store that calls changed with the namespace of each populated object that somebody else changed or
// deleted.
func New(ctx context.Context, client metadata.Interface, mapper meta.RESTMapper,
	reviews authorizationclient.SelfSubjectAccessReviewInterface, changed func(namespace string),
) *Store {
	return &Store{
		ctx: ctx, client: client, mapper: mapper, reviews: reviews, changed: changed,
		kinds: map[schema.GroupKind]*kind{}, others: map[schema.GroupKind]*kind{},
		unavailable: map[schema.GroupKind]error{},
	}
}

// Observe returns what is in a namespace, of all kinds watched so far. It says which of the declared kinds are not.
func (s *Store) Observe(namespace string, declared []schema.GroupKind) populate.Observed {
	observed := populate.Observed{
		Lost:       map[populate.ObjectID]*metav1.PartialObjectMetadata{},
		Unreadable: map[schema.GroupKind]error{},
		Tampered:   map[types.UID]bool{},
	}
	watched := s.watched(s.kinds)
	for _, kind := range declared {
		if _, ok := watched[kind]; !ok {
			observed.Unreadable[kind] = s.why(kind)
		}
	}
	for groupKind, kind := range watched {
		for _, object := range kind.in(namespace) {
			observed.Objects = append(observed.Objects, object)
			if kind.tampered(object) {
				observed.Tampered[object.UID] = true
			}
		}
		for name, object := range kind.lostIn(namespace) {
			observed.Lost[populate.ObjectID{GroupKind: groupKind, Name: name}] = object
		}
	}
	for _, kind := range s.watched(s.others) {
		observed.Others = append(observed.Others, kind.in(namespace)...)
	}
	return observed
}

// Forget drops what is remembered of a namespace that is gone, or that nothing is populated in.
func (s *Store) Forget(namespace string) {
	for _, kind := range s.watched(s.kinds) {
		kind.forget(namespace)
	}
}

// ErrPending says that a kind's first list has not come yet, and may come soon.
var ErrPending = errors.New("the first list has not come yet")

// Watch makes sure that a kind is watched. It does not wait for the kind's objects: the error is ErrPending as long as
// they may come soon. Any other says what is missing: the kind itself, a right of the operator's, or an answer.
func (s *Store) Watch(ctx context.Context, groupKind schema.GroupKind) error {
	err := s.watch(ctx, groupKind, s.kinds, populate.Labelled)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unavailable[groupKind] = err; err == nil {
		delete(s.unavailable, groupKind)
	}
	return err
}

// WatchOthers does the same for those objects of a kind that no template populated.
func (s *Store) WatchOthers(ctx context.Context, groupKind schema.GroupKind) error {
	return s.watch(ctx, groupKind, s.others, populate.Unlabelled)
}

func (s *Store) watch(
	ctx context.Context, groupKind schema.GroupKind, among map[schema.GroupKind]*kind, selector string,
) error {
	s.mu.Lock()
	known := among[groupKind]
	s.mu.Unlock()
	if known == nil {
		mapping, err := s.mapper.RESTMapping(groupKind)
		if err != nil {
			return err
		}
		if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
			return fmt.Errorf("%s is not namespace-scoped: take it out of the template", groupKind)
		}
		if err := CheckRights(ctx, s.reviews, mapping.Resource); err != nil {
			return err
		}
		known = s.start(mapping, among, selector)
	}
	return known.listed()
}

// Wait returns when no kind is pending any more: their objects are known, or they took too long.
func (s *Store) Wait(ctx context.Context) error {
	s.mu.Lock()
	all := slices.Concat(slices.Collect(maps.Values(s.kinds)), slices.Collect(maps.Values(s.others)))
	s.mu.Unlock()
	for _, kind := range all {
		if err := kind.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Unlisted returns why the objects of a kind are not known, or nil: they are, or the cluster has no such kind.
func (s *Store) Unlisted(groupKind schema.GroupKind) error {
	s.mu.Lock()
	known, unavailable := s.kinds[groupKind], s.unavailable[groupKind]
	s.mu.Unlock()
	switch {
	case known != nil:
		return known.listed()
	case unavailable == nil:
		return fmt.Errorf("%s is not watched yet", groupKind)
	case meta.IsNoMatchError(unavailable):
		return nil
	}
	return unavailable
}

func (s *Store) why(kind schema.GroupKind) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.unavailable[kind]; err != nil {
		return err
	}
	return fmt.Errorf("%s is not watched yet", kind)
}

func (s *Store) start(mapping *meta.RESTMapping, among map[schema.GroupKind]*kind, selector string) *kind {
	groupKind := mapping.GroupVersionKind.GroupKind()
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := among[groupKind]; known != nil {
		return known
	}
	known := newKind(s.client, mapping, selector, s.changed)
	among[groupKind] = known
	known.start(s.ctx)
	return known
}

// watched returns the kinds whose objects are known.
func (s *Store) watched(among map[schema.GroupKind]*kind) map[schema.GroupKind]*kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	watched := make(map[schema.GroupKind]*kind, len(among))
	for groupKind, kind := range among {
		if kind.listed() == nil {
			watched[groupKind] = kind
		}
	}
	return watched
}

// Expect records which objects a plan may delete. Call it before the plan is applied, and Record after that.
func (s *Store) Expect(plan populate.Plan) {
	for _, change := range plan.Changes {
		if known := s.kindOf(change); known != nil && change.Observed != nil {
			known.leave(change.Observed.UID, change.MayDelete())
		}
	}
}

// kindOf returns the informer that watches the object of a change, or nil.
func (s *Store) kindOf(change populate.Change) *kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	if change.Undeclared && change.Observed.Labels[v1alpha1.TemplateNameLabel] == "" {
		return s.others[change.Kind.GroupKind()]
	}
	return s.kinds[change.Kind.GroupKind()]
}

// Record takes in the result of a plan, so that the next plan knows it before the watch delivers it.
func (s *Store) Record(plan populate.Plan, result populate.Result) {
	for _, outcome := range result.Outcomes {
		known := s.kindOf(outcome.Change)
		if known == nil {
			continue
		}
		switch {
		case outcome.Observed == nil:
		case outcome.Deleted:
			known.deleted(outcome.Observed)
		case outcome.MaybeDeleted:
			known.maybeDeleted(outcome.Observed)
		}
		if outcome.Written != nil {
			known.wrote(plan.Namespace.Name, outcome.Written)
		}
		if outcome.Failure != nil && outcome.Failure.Unanswered() {
			known.answerLost(plan.Namespace.Name, outcome.Name)
		}
	}
	for _, change := range plan.Changes {
		if known := s.kindOf(change); known != nil && change.Observed != nil && change.MayDelete() {
			known.stay(change.Observed.UID)
		}
	}
}

// Populated returns the namespaces that hold objects of a template, with those objects.
func (s *Store) Populated(template string) map[string][]*metav1.PartialObjectMetadata {
	found := map[string][]*metav1.PartialObjectMetadata{}
	for _, kind := range s.watched(s.kinds) {
		for _, object := range kind.of(template) {
			found[object.Namespace] = append(found[object.Namespace], object)
		}
	}
	return found
}

// verbs are what the operator needs on a kind: to watch it, to apply and to prune. An apply that creates is checked for
// create and patch both.
var verbs = []string{"list", "watch", "create", "patch", "delete"}

// CheckRights says which rule the operator's ClusterRole lacks for a resource: a MissingRule, or that it could not ask.
func CheckRights(
	ctx context.Context, reviews authorizationclient.SelfSubjectAccessReviewInterface,
	resource schema.GroupVersionResource,
) error {
	var missing []string
	for _, verb := range verbs {
		review, err := reviews.Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Group: resource.Group, Version: resource.Version, Resource: resource.Resource, Verb: verb,
				},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("ask for the operator's rights on %s: %w", resource.GroupResource(), err)
		}
		if !review.Status.Allowed {
			missing = append(missing, verb)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return &MissingRule{Resource: resource.GroupResource(), Verbs: missing}
}

// MissingRule is a rule that the operator's ClusterRole lacks.
type MissingRule struct {
	Resource schema.GroupResource
	Verbs    []string
}

func (m *MissingRule) Error() string {
	return fmt.Sprintf(`the operator may not %s %s: add a ClusterRole with the label %s: "true" and the rule `+
		`{apiGroups: [%q], resources: [%q], verbs: [%s]}`,
		strings.Join(m.Verbs, ", "), m.Resource, v1alpha1.AggregateLabel, m.Resource.Group, m.Resource.Resource,
		strings.Join(verbs, ", "))
}
