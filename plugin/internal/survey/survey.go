// Package survey computes what the operator would do in namespaces, with the permissions of the user who runs the
// plugin.
//
// Declare renders the objects that templates declare for a namespace. Compare also lists the metadata of the objects in
// many namespaces and plans the changes as the operator plans them; diff and preview show these changes. ReadLive reads
// the objects of many changes. DryRun sends a dry run for one change and returns what the API server would store. A
// Verifier also compares the contents of objects that are unchanged according to their metadata.
//
// A kind that the user may not list, or the API server cannot list, is Unreadable. Its objects are unknown, and are
// never treated as absent.
package survey

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// Namespace holds what templates declare for a namespace, and what the operator would do in it.
type Namespace struct {
	populate.Declared
	// Skipped is the reason why no template populates the namespace, or empty.
	Skipped string
	Changes []populate.Change
	// Unchanged is how many further objects are as declared, if the scope omits them.
	Unchanged int
}

// Plan returns what the operator would do in the namespace, as a plan. It declares nothing if the scope omits objects.
func (n Namespace) Plan() populate.Plan {
	return populate.Plan{Declared: n.Declared, Changes: n.Changes}
}

// Findings returns what a user should know about the namespace, as the operator would report it before its writes.
func (n Namespace) Findings() []populate.Finding {
	return populate.Findings(n.Plan(), populate.Result{})
}

// BrokenTemplates returns the findings about templates that cannot be rendered for the namespace.
func (n Namespace) BrokenTemplates() []populate.Finding {
	return slices.DeleteFunc(n.Findings(), func(finding populate.Finding) bool {
		return finding.Reason != populate.FindingBrokenTemplate && finding.Reason != populate.FindingValueMissing
	})
}

// Survey holds the observed objects of some namespaces. Namespaces returns what the operator would do in them.
type Survey struct {
	// Unreadable holds the kinds that could not be listed: one entry for all namespaces, or one entry for each
	// namespace if namespaces were listed one by one.
	Unreadable []Unreadable

	cache      *render.Cache
	sources    populate.Sources
	index      *match.Index
	namespaces []*corev1.Namespace
	scope      Scope
	// observed are the objects with the label of a template, and others the objects without it. Both have an element
	// for each list request.
	observed, others []populate.Listed
	// settled are planned namespaces that further objects cannot change. It is empty unless the scope omits unchanged
	// objects.
	settled map[string]Namespace
}

// Unreadable is a kind that the user may not list, or that the API server cannot list. It is an error with a message
// for the user.
type Unreadable struct {
	Kind schema.GroupKind
	// Namespace is empty if all namespaces were listed at once.
	Namespace string
	// Resource is the resource and its group: "secrets", "networkpolicies.networking.k8s.io".
	Resource string
	// Err is why the API server cannot list the kind; nil if the user may not.
	Err error
}

// NewUnreadable returns the Unreadable for a kind that the API server refuses to list, with err.
func NewUnreadable(kind schema.GroupKind, namespace string, err error) Unreadable {
	unreadable := Unreadable{Kind: kind, Namespace: namespace, Resource: strings.ToLower(kind.String())}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind != "" {
		details := status.Status().Details
		unreadable.Resource = schema.GroupResource{Group: details.Group, Resource: details.Kind}.String()
	}
	if !apierrors.IsForbidden(err) {
		unreadable.Err = err
	}
	return unreadable
}

func (u Unreadable) Error() string {
	if u.Err != nil {
		return fmt.Sprintf("the API server cannot list %s: %v", u.Resource, u.Err)
	}
	if u.Namespace == metav1.NamespaceAll {
		return fmt.Sprintf("you cannot list %s in all namespaces", u.Resource)
	}
	return fmt.Sprintf("you cannot list %s in namespace %s", u.Resource, u.Namespace)
}

// Scope limits the objects that are compared.
type Scope struct {
	// AllNamespaces lists the objects of all namespaces at once, instead of namespace by namespace.
	AllNamespaces bool
	// Template, if not empty, is the only template whose objects are compared.
	Template string
	// OmitUnchanged counts the objects that are as declared, instead of returning them. The namespaces then lack what
	// is declared for them.
	OmitUnchanged bool
	// Gone are templates that the index no longer has. Their objects are compared, too.
	Gone []*v1alpha1.NamespaceTemplate
}

// Declare returns what templates declare for a namespace, without changes. It sends no request, except for those of
// sources, which may be nil: then copies have no content.
func Declare(
	cache *render.Cache, sources populate.Sources, index *match.Index, ns *corev1.Namespace,
) Namespace {
	templates, skipped := Matching(index, ns)
	if skipped != "" {
		return Namespace{Declared: populate.Declared{Namespace: ns}, Skipped: skipped}
	}
	return Namespace{Declared: populate.Declare(cache, ns, templates, populate.Inputs{
		Exemptions: index.Exemptions(ns.Name), Sources: sources, Newest: index.Newest(ns),
	})}
}

// DeclaredBy returns the objects that a revision of a template declares for a namespace that it selects. They are not
// complete if the revision cannot be rendered.
func DeclaredBy(revision *v1alpha1.NamespaceTemplate, ns *corev1.Namespace) (ids []populate.ObjectID, isComplete bool) {
	planned := Declare(render.NewCache(), nil, match.NewIndex(revision), ns)
	for _, object := range planned.Objects {
		ids = append(ids, object.ID())
	}
	if len(planned.Metadata) > 0 {
		ids = append(ids, populate.ObjectID{GroupKind: render.NamespaceKind.GroupKind(), Name: ns.Name})
	}
	return ids, len(planned.Broken) == 0
}

// Compare lists the objects of namespaces, to compare them with what templates declare. It lists only metadata, and
// each kind once. Two versions of a namespace, one after the other, need no more requests than one.
func Compare(
	ctx context.Context, c *cluster.Cluster, index *match.Index, namespaces []*corev1.Namespace, scope Scope,
) (*Survey, error) {
	s := &Survey{
		cache: render.NewCache(), sources: Sources(ctx, c), index: index, namespaces: namespaces, scope: scope,
		settled: map[string]Namespace{},
	}
	var names []string // the namespaces to list
	kinds := map[schema.GroupKind]bool{}
	add := func(used []schema.GroupKind) {
		for _, kind := range used {
			kinds[kind] = true
		}
	}
	add(populate.KindsToObserve(scope.templates(index)))
	inUse := map[*v1alpha1.NamespaceTemplate]bool{}
	for _, ns := range namespaces {
		templates, skipped := Matching(index, ns)
		if skipped != "" {
			continue
		}
		names = append(names, ns.Name)
		for _, template := range templates {
			if isNew := !inUse[template]; isNew && (scope.Template == "" || scope.Template == template.Name) {
				inUse[template] = true
				add(declaredKinds(template))
			}
		}
	}
	inForce := slices.Concat(scope.templates(index), slices.Collect(maps.Keys(inUse))) // also in an earlier revision
	names = slices.Compact(names)
	if scope.AllNamespaces && len(names) > 0 {
		names = []string{metav1.NamespaceAll}
	}
	authoritative := populate.Authoritative(inForce)
	slices.SortFunc(authoritative, byName)
	if err := s.observe(ctx, c, slices.SortedFunc(maps.Keys(kinds), byName), authoritative, names); err != nil {
		return nil, err
	}
	return s, s.observeOthers(ctx, c, authoritative)
}

func declaredKinds(template *v1alpha1.NamespaceTemplate) []schema.GroupKind {
	var kinds []schema.GroupKind
	for _, kind := range render.KindsOf(render.AllDeclarations(template)) {
		kinds = append(kinds, kind.GroupKind())
	}
	return kinds
}

func byName(a, b schema.GroupKind) int {
	return strings.Compare(a.String(), b.String())
}

// Namespaces returns the planned namespaces, until ctx ends. It plans few namespaces at a time, so that the rendered
// objects of thousands of namespaces are never in memory together.
func (s *Survey) Namespaces(ctx context.Context) iter.Seq[Namespace] {
	const atATime = 64
	return func(yield func(Namespace) bool) {
		for some := range slices.Chunk(s.namespaces, atATime) {
			for _, planned := range cluster.Each(some, s.planned) {
				if ctx.Err() != nil || !yield(planned) {
					return
				}
			}
		}
	}
}

// planned returns what the operator would do in a namespace.
func (s *Survey) planned(ns *corev1.Namespace) Namespace {
	if settled, ok := s.settled[ns.Name]; ok {
		return settled
	}
	planned := s.plan(ns, s.index)
	if s.scope.OmitUnchanged {
		var changes []populate.Change // a slice of its own, since it stays in memory
		for _, change := range planned.Changes {
			if change.Action != populate.Unchanged {
				changes = append(changes, change)
			}
		}
		planned.Changes, planned.Unchanged = changes, len(planned.Changes)-len(changes)
		planned.Declared = populate.Declared{
			Namespace: ns, Omitted: planned.Omitted, Overridden: planned.Overridden, Withheld: planned.Withheld,
			Broken: planned.Broken, Exempt: planned.Exempt,
		}
	}
	return planned
}

// plan returns what the operator would do in a namespace with the templates of an index.
func (s *Survey) plan(ns *corev1.Namespace, index *match.Index) Namespace {
	planned := Declare(s.cache, s.sources, index, ns)
	if planned.Skipped == "" {
		plan := populate.NewPlan(planned.Declared, index, s.observedIn(ns.Name))
		if condition := populate.PopulatedCondition(ns); condition != nil && populate.IsMisplacement(condition.Reason) {
			plan = plan.WithoutDeletions(index)
		}
		planned.Changes = s.scope.limitChanges(plan.Keeping(s.cache, index.Ahead(ns)).Changes)
	}
	return planned
}

func (s *Survey) observedIn(namespace string) populate.Observed {
	observed := populate.Observed{Unreadable: map[schema.GroupKind]error{}}
	for _, listed := range s.observed {
		observed.Objects = append(observed.Objects, listed.In(namespace)...)
	}
	for _, listed := range s.others {
		observed.Others = append(observed.Others, listed.In(namespace)...)
	}
	for _, u := range s.Unreadable {
		if u.Namespace == metav1.NamespaceAll || u.Namespace == namespace {
			observed.Unreadable[u.Kind] = u
		}
	}
	return observed
}

// templates returns the templates whose objects are in the scope. A template may match no namespace.
func (s Scope) templates(index *match.Index) []*v1alpha1.NamespaceTemplate {
	templates := append(index.All(), s.Gone...)
	if s.Template != "" {
		templates = slices.DeleteFunc(templates, func(t *v1alpha1.NamespaceTemplate) bool {
			return t.Name != s.Template
		})
	}
	return templates
}

func (s Scope) limitChanges(changes []populate.Change) []populate.Change {
	if s.Template == "" {
		return changes
	}
	var limited []populate.Change
	for _, change := range changes {
		if of, isOf := change.Of(s.Template); isOf {
			limited = append(limited, of)
		}
	}
	return limited
}

// listRequest is a request for the objects of a kind in a namespace, or in all namespaces if namespace is empty.
type listRequest struct {
	kind      schema.GroupKind
	namespace string
	selector  string
}

type listResult struct {
	listRequest
	listed populate.Listed
	err    error
}

// list sends all requests, several at a time.
func list(ctx context.Context, c *cluster.Cluster, requests []listRequest) []listResult {
	observer := populate.Observer{Client: c.Metadata, Mapper: c.Mapper, ChunkSize: c.ChunkSize}
	return cluster.Each(requests, func(r listRequest) listResult {
		listed, err := observer.Observe(ctx, r.kind, r.namespace, r.selector)
		return listResult{r, listed, err}
	})
}

// observe lists every kind in every namespace. It lists the objects with the label of a template, and for authoritative
// kinds also the objects without it.
func (s *Survey) observe(
	ctx context.Context, c *cluster.Cluster, kinds, authoritative []schema.GroupKind, namespaces []string,
) error {
	var requests []listRequest
	for _, namespace := range namespaces {
		for _, kind := range kinds {
			requests = append(requests, listRequest{kind, namespace, populate.Labelled})
		}
		for _, kind := range authoritative {
			requests = append(requests, listRequest{kind, namespace, populate.Unlabelled})
		}
	}
	for _, r := range list(ctx, c, requests) {
		if err := s.noteUnreadable(r); err != nil {
			return err
		}
		if r.selector == populate.Unlabelled {
			s.others = append(s.others, r.listed)
		} else {
			s.observed = append(s.observed, r.listed)
		}
	}
	return nil
}

// noteUnreadable remembers a kind that the API server does not list: its objects are unknown. A kind that it does not
// know was removed after discovery was read, and has none. noteUnreadable returns the error of a request that the API
// server did not answer.
func (s *Survey) noteUnreadable(r listResult) error {
	_, isAnswered := errors.AsType[*apierrors.StatusError](r.err)
	switch {
	case r.err == nil, apierrors.IsNotFound(r.err):
		return nil
	case !isAnswered:
		return fmt.Errorf("list %s: %w", r.kind, r.err)
	}
	s.Unreadable = append(s.Unreadable, NewUnreadable(r.kind, r.namespace, r.err))
	return nil
}
