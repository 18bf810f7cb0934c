// Package survey compares namespaces with what templates declare for them, as the operator would, with the rights of
// whoever asks: what they may not read is unknown and never taken for absent.
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
	// Skipped says why no template populates the namespace, or is empty.
	Skipped string
	Changes []populate.Change
}

// Survey is what the operator would do in some namespaces.
type Survey struct {
	// Unreadable are the kinds that the caller may not list, in each namespace where they were asked for one by one.
	Unreadable []Unreadable

	cache      *render.Cache
	index      *match.Index
	namespaces []*corev1.Namespace
	scope      Scope
	observed   map[string][]*metav1.PartialObjectMetadata
	others     map[string][]*metav1.PartialObjectMetadata
}

// Unreadable is a kind that the caller may not list.
type Unreadable struct {
	Kind schema.GroupKind
	// Namespace is empty when all were asked for at once.
	Namespace string
	// Resource is what the right to ask for is called.
	Resource string
}

// Refused returns the kind that an API server's refusal to list is about.
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

// Scope says which objects to look at.
type Scope struct {
	// Everywhere asks once for the objects of all namespaces, not once for each namespace.
	Everywhere bool
	// Template, if not empty, is the only template whose objects matter.
	Template string
}

// Declare renders templates for a namespace without looking at what is there.
func Declare(cache *render.Cache, index *match.Index, ns *corev1.Namespace) Namespace {
	templates, skipped := populate.Matching(index, ns)
	if skipped != "" {
		return Namespace{Declared: populate.Declared{Namespace: ns}, Skipped: skipped}
	}
	return Namespace{Declared: populate.Declare(cache, ns, templates)}
}

// Compare says what the operator would do in namespaces. It reads metadata only: a list for each kind in use.
func Compare(ctx context.Context, c *cluster.Cluster, index *match.Index, namespaces []*corev1.Namespace, scope Scope) (*Survey, error) {
	s := &Survey{cache: render.NewCache(), index: index, namespaces: namespaces, scope: scope}
	var places []string
	kinds := map[schema.GroupKind]bool{}
	use := func(used []schema.GroupKind) {
		for _, kind := range used {
			kinds[kind] = true
		}
	}
	use(populate.KindsToObserve(scope.templates(index)))
	for _, ns := range namespaces {
		if one := Declare(s.cache, index, ns); one.Skipped == "" {
			places = append(places, ns.Name)
			use(populate.KindsToObserve(nil, scope.narrow(one.Declared)))
		}
	}
	if scope.Everywhere && len(places) > 0 {
		places = []string{metav1.NamespaceAll}
	}
	authoritative := populate.Authoritative(scope.templates(index))
	slices.SortFunc(authoritative, byName)
	if err := s.observe(ctx, c, slices.SortedFunc(maps.Keys(kinds), byName), authoritative, places); err != nil {
		return nil, err
	}
	return s, s.observeOthers(ctx, c, authoritative)
}

func byName(a, b schema.GroupKind) int {
	return strings.Compare(a.String(), b.String())
}

// Namespaces compares one namespace after the other: what thousands declare need not be in memory at once.
func (s *Survey) Namespaces() iter.Seq[Namespace] {
	return func(yield func(Namespace) bool) {
		for _, ns := range s.namespaces {
			one := Declare(s.cache, s.index, ns)
			if one.Skipped == "" {
				one.Changes = s.scope.only(populate.NewPlan(one.Declared, s.index, s.in(ns.Name)).Changes)
			}
			if !yield(one) {
				return
			}
		}
	}
}

// in returns what was observed of a namespace.
func (s *Survey) in(namespace string) populate.Observed {
	observed := populate.Observed{Objects: s.observed[namespace], Others: s.others[namespace], Unreadable: map[schema.GroupKind]error{}}
	for _, u := range s.Unreadable {
		if u.Namespace == metav1.NamespaceAll || u.Namespace == namespace {
			observed.Unreadable[u.Kind] = u
		}
	}
	return observed
}

// narrow leaves only the scope's template's objects.
func (s Scope) narrow(declared populate.Declared) populate.Declared {
	if s.Template != "" {
		declared.Objects = slices.DeleteFunc(slices.Clone(declared.Objects), func(o populate.Object) bool {
			return o.Template.Name != s.Template
		})
	}
	return declared
}

// templates returns those whose objects matter, matching or not.
func (s Scope) templates(index *match.Index) []*v1alpha1.NamespaceTemplate {
	templates := index.All()
	if s.Template != "" {
		templates = slices.DeleteFunc(templates, func(t *v1alpha1.NamespaceTemplate) bool { return t.Name != s.Template })
	}
	return templates
}

func (s Scope) only(changes []populate.Change) []populate.Change {
	if s.Template == "" {
		return changes
	}
	return slices.DeleteFunc(changes, func(c populate.Change) bool { return c.Template != s.Template })
}

// question asks for the objects of a kind, in a namespace or in all.
type question struct {
	kind     schema.GroupKind
	place    string
	selector string
}

type answer struct {
	question
	found map[string][]*metav1.PartialObjectMetadata
	err   error
}

func ask(ctx context.Context, c *cluster.Cluster, questions []question) []answer {
	observer := populate.Observer{Client: c.Metadata, Mapper: c.Mapper}
	return cluster.Each(questions, func(q question) answer {
		found, err := observer.Observe(ctx, q.kind, q.place, q.selector)
		return answer{q, found, err}
	})
}

// observe lists every kind in every place: the objects of templates and, of authoritative kinds, the others.
func (s *Survey) observe(ctx context.Context, c *cluster.Cluster, kinds, authoritative []schema.GroupKind, places []string) error {
	var questions []question
	for _, place := range places {
		for _, kind := range kinds {
			questions = append(questions, question{kind, place, populate.Labelled})
		}
		for _, kind := range authoritative {
			questions = append(questions, question{kind, place, populate.Unlabelled})
		}
	}
	s.observed, s.others = map[string][]*metav1.PartialObjectMetadata{}, map[string][]*metav1.PartialObjectMetadata{}
	for _, a := range ask(ctx, c, questions) {
		switch {
		case apierrors.IsForbidden(a.err):
			s.Unreadable = append(s.Unreadable, Refused(a.kind, a.place, a.err))
		case a.err != nil:
			return fmt.Errorf("list %s: %w", a.kind, a.err)
		}
		into := s.observed
		if a.selector == populate.Unlabelled {
			into = s.others
		}
		for namespace, objects := range a.found {
			into[namespace] = append(into[namespace], objects...)
		}
	}
	return nil
}
