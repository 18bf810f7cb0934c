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

// listTimeout is how long the first list of a kind may go on without an object that arrives, before the kind counts as
// unavailable. The watch continues to try.
const listTimeout = 10 * time.Second

// patience is how long Wait waits for the first list of a kind without an object that arrives.
const patience = time.Second

// failedTimeout is the remaining time after the list failed for the first time.
const failedTimeout = 2 * time.Second

// AskAgain is how long Watch gives the same answer about a kind that the cluster does not have, or that the operator's
// ClusterRoles do not allow: many templates may declare it, and no event tells of a new right.
const AskAgain = 5 * time.Second

// Store watches populated objects. Watches start when a kind is first needed and run until the context given to New
// ends.
type Store struct {
	//nolint:containedctx // watches outlive the calls that start them
	ctx context.Context
	Options

	mu    sync.Mutex
	kinds map[schema.GroupKind]*kind
	// others watch the objects without a template's label, of kinds for which a template is authoritative.
	others map[schema.GroupKind]*kind
	// ignored are, by namespace, the kinds in others of which the latest plan of a namespace considers no objects.
	ignored map[string][]schema.GroupKind
	// unavailable are the kinds that could not be watched when they were needed last.
	unavailable map[schema.GroupKind]unavailable
	// changes counts the calls of KindsChanged.
	changes int
}

// unavailable is why a kind cannot be watched.
type unavailable struct {
	err error
	// until is when the API server is asked again, or zero.
	until time.Time
}

// Options are what New needs.
type Options struct {
	Client metadata.Interface
	Mapper meta.RESTMapper
	// Reviews are asked whether the operator may watch a kind.
	Reviews authorizationclient.SelfSubjectAccessReviewInterface
	// Changed is called with the namespace of each object that another client changed or deleted, unless Consider has
	// ruled that out.
	Changed func(namespace string)
	// Rediscover returns a mapper that knows what the API server serves now. Mapper may remember what it served before.
	Rediscover func() (meta.RESTMapper, error)
	// Turned is called when the objects of a kind become unknown after they were known, when they are known again, and
	// when a kind can be watched that could not be watched before.
	Turned func(kind schema.GroupKind)
}

// New returns a store whose watches end with ctx.
func New(ctx context.Context, o Options) *Store {
	return &Store{
		ctx: ctx, Options: o,
		kinds: map[schema.GroupKind]*kind{}, others: map[schema.GroupKind]*kind{},
		ignored: map[string][]schema.GroupKind{}, unavailable: map[schema.GroupKind]unavailable{},
	}
}

// Observe returns the objects in a namespace with a template's label of all watched kinds, and those without one of the
// considered kinds. The declared kinds that are not watched are Unreadable.
func (s *Store) Observe(namespace string, declared, considered []schema.GroupKind) populate.Observed {
	s.Consider(namespace, considered)
	observed := populate.Observed{
		Lost:       map[populate.ObjectID]*metav1.PartialObjectMetadata{},
		Unreadable: map[schema.GroupKind]error{},
		Tampered:   map[types.UID]bool{},
	}
	watched := s.watched(s.kinds)
	for _, kind := range declared {
		if _, ok := watched[kind]; !ok {
			observed.Unreadable[kind] = s.unknownReason(kind)
		}
	}
	for groupKind, kind := range watched {
		for _, object := range kind.objectsIn(namespace) {
			observed.Objects = append(observed.Objects, object)
			if kind.tampered(object) {
				observed.Tampered[object.UID] = true
			}
		}
		for name, object := range kind.lostIn(namespace) {
			observed.Lost[populate.ObjectID{GroupKind: groupKind, Name: name}] = object
		}
	}
	for groupKind, kind := range s.watched(s.others) {
		if slices.Contains(considered, groupKind) {
			observed.Others = append(observed.Others, kind.objectsIn(namespace)...)
		}
	}
	return observed
}

// Consider records the kinds of which the plan of a namespace considers objects without a template's label. Until the
// next call for the namespace, Changed is not called for objects of other kinds. What changes before that is in what
// the next plan observes.
func (s *Store) Consider(namespace string, kinds []schema.GroupKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ignored []schema.GroupKind
	for kind := range s.others {
		if !slices.Contains(kinds, kind) {
			ignored = append(ignored, kind)
		}
	}
	if s.ignored[namespace] = ignored; ignored == nil {
		delete(s.ignored, namespace)
	}
}

// othersChanged calls Changed after a change of an object without a template's label, unless the plan of its namespace
// ignores the kind.
func (s *Store) othersChanged(namespace string, kind schema.GroupKind) {
	s.mu.Lock()
	isIgnored := slices.Contains(s.ignored[namespace], kind)
	s.mu.Unlock()
	if !isIgnored {
		s.Changed(namespace)
	}
}

// NamespaceEnded records that the namespace of a name has ended, and that there may be a new one of the same name. The
// deletion of the earlier one's objects, which the watches may deliver later, is not attributed to another client.
func (s *Store) NamespaceEnded(namespace string) {
	s.considerAll(namespace)
	for _, kind := range s.all() {
		kind.namespaceEnded(namespace)
	}
}

// Forget drops the lost objects of a namespace that was deleted or is not populated.
func (s *Store) Forget(namespace string) {
	s.considerAll(namespace)
	for _, kind := range s.all() {
		kind.forget(namespace)
	}
}

// considerAll has Changed called for all kinds, until the namespace has a plan.
func (s *Store) considerAll(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ignored, namespace)
}

// ErrPending is returned as long as the first list of a kind is expected soon.
var ErrPending = errors.New("the first list has not arrived yet")

// Watch starts to watch a kind unless it is watched already. It does not wait for the first list: until that arrives or
// times out, the error is ErrPending. Any other error says why the kind cannot be watched: the cluster does not have
// the kind, the operator lacks a right, or the list failed.
func (s *Store) Watch(ctx context.Context, groupKind schema.GroupKind) error {
	return s.watch(ctx, groupKind, s.kinds, populate.Labelled)
}

// WatchOthers is like Watch, for the objects of a kind that do not have a template's label.
func (s *Store) WatchOthers(ctx context.Context, groupKind schema.GroupKind) error {
	return s.watch(ctx, groupKind, s.others, populate.Unlabelled)
}

func (s *Store) watch(
	ctx context.Context, groupKind schema.GroupKind, among map[schema.GroupKind]*kind, selector string,
) error {
	s.mu.Lock()
	watched, before, changes := among[groupKind], s.unavailable[groupKind], s.changes
	s.mu.Unlock()
	switch {
	case watched != nil:
		return watched.listed()
	case time.Now().Before(before.until):
		return before.err
	}
	mapping, err := s.allowed(ctx, groupKind)
	s.setUnavailable(groupKind, err, changes)
	if err != nil {
		return err
	}
	watched = s.start(mapping, among, selector)
	if before.err != nil {
		s.Turned(groupKind)
	}
	return watched.listed()
}

// allowed returns the mapping of a kind that the cluster has and that the operator may watch.
func (s *Store) allowed(ctx context.Context, groupKind schema.GroupKind) (*meta.RESTMapping, error) {
	mapping, err := namespaced(s.Mapper, groupKind)
	if err != nil {
		return nil, err
	}
	return mapping, CheckRights(ctx, s.Reviews, mapping.Resource)
}

// setUnavailable records why a kind cannot be watched, or that it can if err is nil. The number of changes is that of
// before the API server was asked: an answer that is older than a change is not given again.
func (s *Store) setUnavailable(groupKind schema.GroupKind, err error, changes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.unavailable, groupKind)
		return
	}
	problem := unavailable{err: err}
	_, lacksRight := errors.AsType[*MissingRule](err)
	if (lacksRight || meta.IsNoMatchError(err)) && changes == s.changes {
		problem.until = time.Now().Add(AskAgain)
	}
	s.unavailable[groupKind] = problem
}

// KindsChanged has Watch ask the API server about the kinds of an API group again.
func (s *Store) KindsChanged(group string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	for kind, problem := range s.unavailable {
		if kind.Group == group {
			s.unavailable[kind] = unavailable{err: problem.err}
		}
	}
}

// Wait returns when the first list of each kind has arrived or timed out, or nothing of it has arrived for a second:
// the other kinds do not wait for one that the API server cannot list. It returns an error only if ctx is done.
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

// Unlisted returns why the objects of a kind are unknown. It returns nil if they are known, or if the cluster does not
// have the kind.
func (s *Store) Unlisted(groupKind schema.GroupKind) error {
	err := s.unknownReason(groupKind)
	if meta.IsNoMatchError(err) {
		return nil
	}
	return err
}

// OthersUnlisted is like Unlisted, for the objects of a kind that do not have a template's label. It also returns nil
// if WatchOthers was not called for the kind.
func (s *Store) OthersUnlisted(groupKind schema.GroupKind) error {
	s.mu.Lock()
	watched, err := s.others[groupKind], s.unavailable[groupKind].err
	s.mu.Unlock()
	if watched != nil {
		err = watched.listed()
	}
	if meta.IsNoMatchError(err) {
		return nil
	}
	return err
}

// unknownReason returns why the objects of a kind are unknown, or nil if they are known.
func (s *Store) unknownReason(groupKind schema.GroupKind) error {
	s.mu.Lock()
	watched, problem := s.kinds[groupKind], s.unavailable[groupKind]
	s.mu.Unlock()
	switch {
	case watched != nil:
		return watched.listed()
	case problem.err != nil:
		return problem.err
	}
	return fmt.Errorf("%s is not watched yet", groupKind)
}

// start returns a kind, and starts its watch unless it runs.
func (s *Store) start(mapping *meta.RESTMapping, among map[schema.GroupKind]*kind, selector string) *kind {
	groupKind := mapping.GroupVersionKind.GroupKind()
	s.mu.Lock()
	defer s.mu.Unlock()
	if started := among[groupKind]; started != nil {
		return started
	}
	changed := s.Changed
	if selector == populate.Unlabelled {
		changed = func(namespace string) { s.othersChanged(namespace, groupKind) }
	}
	started := newKind(mapping, options{
		client: s.Client, selector: selector, changed: changed,
		remap:  func() (*meta.RESTMapping, error) { return s.remap(groupKind) },
		turned: func() { s.Turned(groupKind) },
	})
	among[groupKind] = started
	started.start(s.ctx)
	return started
}

// remap asks the API server how it serves a kind.
func (s *Store) remap(kind schema.GroupKind) (*meta.RESTMapping, error) {
	mapper, err := s.Rediscover()
	if err != nil {
		return nil, err
	}
	return namespaced(mapper, kind)
}

// namespaced returns the mapping of a kind. The error is a meta.NoKindMatchError if the cluster does not have the kind.
func namespaced(mapper meta.RESTMapper, kind schema.GroupKind) (*meta.RESTMapping, error) {
	mapping, err := mapper.RESTMapping(kind)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return nil, fmt.Errorf("%s is not namespace-scoped: remove it from the template", kind)
	}
	return mapping, nil
}

// all returns the kinds of which a watch of the objects with a template's label runs.
func (s *Store) all() []*kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.kinds))
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

// Expect records which objects a plan may delete. Call it before the plan is applied, and Record afterwards.
func (s *Store) Expect(plan populate.Plan) {
	for _, change := range plan.Changes {
		if kind := s.kindOf(change); kind != nil && change.Observed != nil && change.MayDelete() {
			kind.expectDeletion(change.Observed.UID)
		}
	}
}

// kindOf returns the kind that has the object of a change, or nil.
func (s *Store) kindOf(change populate.Change) *kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	if change.Undeclared && change.Observed.Labels[v1alpha1.TemplateNameLabel] == "" {
		return s.others[change.Kind.GroupKind()]
	}
	return s.kinds[change.Kind.GroupKind()]
}

// Record stores the result of a plan, so that the next plan considers it before the watch delivers it.
func (s *Store) Record(plan populate.Plan, result populate.Result) {
	for _, outcome := range result.Outcomes {
		kind := s.kindOf(outcome.Change)
		if kind == nil {
			continue
		}
		switch {
		case outcome.Observed == nil:
		case outcome.Deleted:
			kind.deleted(outcome.Observed)
		case outcome.MaybeDeleted:
			kind.maybeDeleted(outcome.Observed)
		}
		if outcome.Written != nil {
			kind.wrote(plan.Namespace.Name, outcome.Written)
		}
		// An unknown object was not applied.
		if outcome.Failure != nil && outcome.Failure.Unanswered() && outcome.Action != populate.Unknown {
			kind.answerLost(plan.Namespace.Name, outcome.Name)
		}
	}
	for _, change := range plan.Changes {
		if kind := s.kindOf(change); kind != nil && change.Observed != nil && change.MayDelete() {
			kind.planEnded(change.Observed.UID)
		}
	}
	s.forgetUndeclared(plan)
}

// forgetUndeclared drops the lost objects of a namespace that nothing declares any more: a client that deleted one has
// cleaned up, and has not changed what a later declaration finds.
func (s *Store) forgetUndeclared(plan populate.Plan) {
	if len(plan.Broken)+len(plan.Omitted) > 0 {
		return // it is unknown what is declared
	}
	declared := map[populate.ObjectID]bool{}
	for i := range plan.Objects {
		declared[plan.Objects[i].ID()] = true
	}
	for groupKind, kind := range s.watched(s.kinds) {
		kind.forgetOthers(plan.Namespace.Name, func(name string) bool {
			return declared[populate.ObjectID{GroupKind: groupKind, Name: name}]
		})
	}
}

// Populated returns the objects that have a template's label, by namespace.
func (s *Store) Populated(template string) map[string][]*metav1.PartialObjectMetadata {
	byNamespace := map[string][]*metav1.PartialObjectMetadata{}
	for _, kind := range s.watched(s.kinds) {
		for _, object := range kind.objectsOf(template) {
			byNamespace[object.Namespace] = append(byNamespace[object.Namespace], object)
		}
	}
	return byNamespace
}

// Names returns the objects in a namespace that have a template's label.
func (s *Store) Names(namespace string) []populate.ObjectID {
	var names []populate.ObjectID
	for groupKind, kind := range s.watched(s.kinds) {
		for _, name := range kind.namesIn(namespace) {
			names = append(names, populate.ObjectID{GroupKind: groupKind, Name: name})
		}
	}
	return names
}

// verbs are the verbs that the operator needs for a kind: to watch, apply and prune its objects. The API server
// requires both create and patch for an apply that creates an object.
var verbs = []string{"list", "watch", "create", "patch", "delete"}

// CheckRights returns a *MissingRule if the operator's ClusterRoles do not allow every necessary verb on a resource, or
// another error if the rights cannot be checked.
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
			return fmt.Errorf("check the operator's rights on %s: %w", resource.GroupResource(), err)
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

// MissingRule is the error for a rule that the operator's ClusterRoles do not contain.
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
