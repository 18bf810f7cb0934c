// Package survey computes what the operator would do in namespaces, with the permissions of the user who runs the
// plugin.
//
// Declare renders what templates declare for a namespace. Compare also lists the objects in many namespaces, by
// metadata only, and plans the changes as the operator plans them: diff and preview are views of these changes. DryRun
// looks at one change more closely, and asks the API server what it would store. A Verifier compares the contents of
// objects that are unchanged by their metadata.
//
// A kind that the user may not list is Unreadable. Its objects are unknown, and are never taken for absent.
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

// Namespace is what the operator would do in a namespace.
type Namespace struct {
	populate.Declared
	// Skipped is why no template populates the namespace, or empty.
	Skipped string
	Changes []populate.Change
}

// Survey is what the operator would do in some namespaces.
type Survey struct {
	// Unreadable holds the kinds that the user may not list: once for all namespaces, or once for each that was listed
	// by itself.
	Unreadable []Unreadable

	cache      *render.Cache
	index      *match.Index
	namespaces []*corev1.Namespace
	scope      Scope
	observed   map[string][]*metav1.PartialObjectMetadata
	others     map[string][]*metav1.PartialObjectMetadata
}

// Unreadable is a kind that the user may not list. It is an error with a message for the user.
type Unreadable struct {
	Kind schema.GroupKind
	// Namespace is empty if all namespaces were listed at once.
	Namespace string
	// Resource is the resource as roles name it: "secrets", "networkpolicies.networking.k8s.io".
	Resource string
}

// Refused returns the kind that the API server refused to list.
func Refused(kind schema.GroupKind, namespace string, err error) Unreadable {
	unreadable := Unreadable{Kind: kind, Namespace: namespace, Resource: strings.ToLower(kind.String())}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		details := status.Status().Details
		unreadable.Resource = schema.GroupResource{Group: details.Group, Resource: details.Kind}.String()
	}
	return unreadable
}

func (u Unreadable) Error() string {
	if u.Namespace == metav1.NamespaceAll {
		return fmt.Sprintf("you may not list %s in all namespaces", u.Resource)
	}
	return fmt.Sprintf("you may not list %s in namespace %s", u.Resource, u.Namespace)
}

// Scope limits the objects that are compared.
type Scope struct {
	// AllNamespaces lists the objects of all namespaces at once, and not of each namespace by itself.
	AllNamespaces bool
	// Template, if not empty, is the only template whose objects are compared.
	Template string
}

// Declare returns what templates declare for a namespace. It sends no request, and its result has no changes.
func Declare(cache *render.Cache, index *match.Index, ns *corev1.Namespace) Namespace {
	templates, skipped := populate.Matching(index, ns)
	if skipped != "" {
		return Namespace{Declared: populate.Declared{Namespace: ns}, Skipped: skipped}
	}
	return Namespace{Declared: populate.Declare(cache, ns, templates)}
}

// Compare compares namespaces with what templates declare for them. It lists metadata, once for each kind in use.
func Compare(
	ctx context.Context, c *cluster.Cluster, index *match.Index, namespaces []*corev1.Namespace, scope Scope,
) (*Survey, error) {
	s := &Survey{cache: render.NewCache(), index: index, namespaces: namespaces, scope: scope}
	var names []string // the namespaces to list
	kinds := map[schema.GroupKind]bool{}
	add := func(used []schema.GroupKind) {
		for _, kind := range used {
			kinds[kind] = true
		}
	}
	add(populate.KindsToObserve(scope.templates(index)))
	for _, ns := range namespaces {
		if declared := Declare(s.cache, index, ns); declared.Skipped == "" {
			names = append(names, ns.Name)
			add(populate.KindsToObserve(nil, scope.limit(declared.Declared)))
		}
	}
	if scope.AllNamespaces && len(names) > 0 {
		names = []string{metav1.NamespaceAll}
	}
	authoritative := populate.Authoritative(scope.templates(index))
	slices.SortFunc(authoritative, byName)
	if err := s.observe(ctx, c, slices.SortedFunc(maps.Keys(kinds), byName), authoritative, names); err != nil {
		return nil, err
	}
	return s, s.observeOthers(ctx, c, authoritative)
}

func byName(a, b schema.GroupKind) int {
	return strings.Compare(a.String(), b.String())
}

// Namespaces plans one namespace after the other, so that the objects of thousands are not in memory at once.
func (s *Survey) Namespaces() iter.Seq[Namespace] {
	return func(yield func(Namespace) bool) {
		for _, ns := range s.namespaces {
			planned := Declare(s.cache, s.index, ns)
			if planned.Skipped == "" {
				planned.Changes = s.scope.limitChanges(populate.NewPlan(planned.Declared, s.index,
					s.observedIn(ns.Name)).Changes)
			}
			if !yield(planned) {
				return
			}
		}
	}
}

// observedIn returns what was observed in a namespace.
func (s *Survey) observedIn(namespace string) populate.Observed {
	observed := populate.Observed{
		Objects: s.observed[namespace], Others: s.others[namespace], Unreadable: map[schema.GroupKind]error{},
	}
	for _, u := range s.Unreadable {
		if u.Namespace == metav1.NamespaceAll || u.Namespace == namespace {
			observed.Unreadable[u.Kind] = u
		}
	}
	return observed
}

// limit returns the declared objects that are in the scope.
func (s Scope) limit(declared populate.Declared) populate.Declared {
	if s.Template != "" {
		declared.Objects = slices.DeleteFunc(slices.Clone(declared.Objects), func(o populate.Object) bool {
			return o.Template.Name != s.Template
		})
	}
	return declared
}

// templates returns the templates whose objects are in the scope, whether they match a namespace or not.
func (s Scope) templates(index *match.Index) []*v1alpha1.NamespaceTemplate {
	templates := index.All()
	if s.Template != "" {
		templates = slices.DeleteFunc(templates, func(t *v1alpha1.NamespaceTemplate) bool {
			return t.Name != s.Template
		})
	}
	return templates
}

// limitChanges returns the changes that are in the scope.
func (s Scope) limitChanges(changes []populate.Change) []populate.Change {
	if s.Template == "" {
		return changes
	}
	return slices.DeleteFunc(changes, func(c populate.Change) bool { return c.Template != s.Template })
}

// listRequest is a request for the objects of a kind in a namespace or, if that is empty, in all.
type listRequest struct {
	kind      schema.GroupKind
	namespace string
	selector  string
}

// listResult holds the objects by their namespace.
type listResult struct {
	listRequest
	objects map[string][]*metav1.PartialObjectMetadata
	err     error
}

// list sends all requests, some at a time.
func list(ctx context.Context, c *cluster.Cluster, requests []listRequest) []listResult {
	observer := populate.Observer{Client: c.Metadata, Mapper: c.Mapper}
	return cluster.Each(requests, func(r listRequest) listResult {
		objects, err := observer.Observe(ctx, r.kind, r.namespace, r.selector)
		return listResult{r, objects, err}
	})
}

// observe lists every kind in every namespace: the objects that templates populated and, of authoritative kinds, the
// others too.
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
	s.observed, s.others = map[string][]*metav1.PartialObjectMetadata{}, map[string][]*metav1.PartialObjectMetadata{}
	for _, r := range list(ctx, c, requests) {
		switch {
		case apierrors.IsForbidden(r.err):
			s.Unreadable = append(s.Unreadable, Refused(r.kind, r.namespace, r.err))
		case r.err != nil:
			return fmt.Errorf("list %s: %w", r.kind, r.err)
		}
		into := s.observed
		if r.selector == populate.Unlabelled {
			into = s.others
		}
		for namespace, objects := range r.objects {
			into[namespace] = append(into[namespace], objects...)
		}
	}
	return nil
}
