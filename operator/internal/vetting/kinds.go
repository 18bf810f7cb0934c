package vetting

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/engine/render"
)

// resolvedKind is a kind of a template with the resource that serves it.
type resolvedKind struct {
	kind     schema.GroupVersionKind
	resource schema.GroupVersionResource
	// guessed is true if the cluster does not serve the kind. The resource then has the usual plural.
	guessed bool
}

func (k resolvedKind) right(verb string) right {
	return right{verb: verb, group: k.resource.Group, resource: k.resource.Resource}
}

// kindProblem is why a template cannot contain objects of a kind.
type kindProblem struct {
	kind schema.GroupVersionKind
	error
}

// resolveKinds resolves kinds by the discovery of the cluster, those without a version in any version. It returns
// problems for kinds that no template can contain, and warnings for kinds that the cluster does not serve yet.
func (a *Admission) resolveKinds(
	kinds []schema.GroupVersionKind,
) (known []resolvedKind, problems []kindProblem, warnings []string, err error) {
	for _, kind := range kinds {
		mapping, others, err := a.mapping(kind)
		switch {
		case err == nil && mapping == nil:
			problem, err := a.notServed(kind, others)
			if err != nil {
				return nil, nil, nil, fmt.Errorf("resolve kind %s: %w", kind.GroupKind(), err)
			}
			if problem != nil {
				problems = append(problems, kindProblem{kind, problem})
				continue
			}
			resource, _ := meta.UnsafeGuessKindToResource(kind)
			known = append(known, resolvedKind{kind, resource, true})
			warnings = append(warnings,
				fmt.Sprintf("the cluster does not serve %s %s yet: its objects are populated after the cluster serves it",
					kind.GroupVersion(), kind.Kind))
		case err != nil:
			return nil, nil, nil, fmt.Errorf("resolve kind %s: %w", kind.GroupKind(), err)
		case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
			problems = append(problems, kindProblem{kind, fmt.Errorf(
				"%s is not namespace-scoped: a template can contain only namespaced objects", kind.GroupKind())})
		default:
			known = append(known, resolvedKind{kind, mapping.Resource, false})
		}
	}
	return known, problems, warnings, nil
}

// mapping returns the resource of a kind. If the cluster does not serve the kind in this version, mapping is nil, and
// others are its resources in other versions. While a kind is being installed, the first look-up may miss it; the
// second one decides, so that all messages about the kind come from one answer.
func (a *Admission) mapping(
	kind schema.GroupVersionKind,
) (mapping *meta.RESTMapping, others []*meta.RESTMapping, err error) {
	mapping, err = a.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if !meta.IsNoMatchError(err) {
		return mapping, nil, err
	}
	others, err = a.Mapper.RESTMappings(kind.GroupKind())
	if err != nil && !meta.IsNoMatchError(err) {
		return nil, nil, err
	}
	for _, other := range others {
		if other.GroupVersionKind.Version == kind.Version {
			return other, nil, nil
		}
	}
	return nil, others, nil
}

// resolveDeleted returns the kinds with the resources that serve them in any version, each group and kind once.
func (a *Admission) resolveDeleted(kinds []schema.GroupVersionKind) ([]resolvedKind, error) {
	var all []resolvedKind
	for _, kind := range kinds {
		if slices.ContainsFunc(all, func(k resolvedKind) bool { return k.kind.GroupKind() == kind.GroupKind() }) {
			continue
		}
		mappings, err := a.Mapper.RESTMappings(kind.GroupKind())
		switch {
		case meta.IsNoMatchError(err) || err == nil && len(mappings) == 0:
			resource, _ := meta.UnsafeGuessKindToResource(kind)
			all = append(all, resolvedKind{kind, resource, true})
		case err != nil:
			return nil, fmt.Errorf("resolve kind %s: %w", kind.GroupKind(), err)
		default:
			all = append(all, resolvedKind{kind, mappings[0].Resource, false})
		}
	}
	return all, nil
}

// notServed returns why the cluster will not serve a kind: it serves the kind, or its API group, in other versions
// only, or the group is built in. It returns nil if the kind may be installed later. others are the kind's resources in
// other versions.
func (a *Admission) notServed(kind schema.GroupVersionKind, others []*meta.RESTMapping) (problem, err error) {
	if len(others) > 0 {
		var served []string
		for _, other := range others {
			served = append(served, other.GroupVersionKind.GroupVersion().String())
		}
		slices.Sort(served)
		return fmt.Errorf("the cluster serves %s as %s, not as %s", kind.GroupKind(),
			strings.Join(slices.Compact(served), " and "), kind.GroupVersion()), nil
	}
	served, err := a.servedVersions(kind.Group)
	switch {
	case err != nil:
		return nil, err
	case kind.Version != "" && len(served) > 0 && !slices.Contains(served, kind.GroupVersion().String()):
		return fmt.Errorf("the cluster serves the API group %s as %s, not as %s", kind.Group,
			strings.Join(served, " and "), kind.GroupVersion()), nil
	case render.BuiltIn(kind.Group):
		return fmt.Errorf("the cluster does not serve %s %s", kind.GroupVersion(), kind.Kind), nil
	}
	return nil, nil
}

// servedVersions returns the versions of an API group, or nil if the cluster does not serve the group.
func (a *Admission) servedVersions(name string) ([]string, error) {
	groups, err := a.Clients.Discovery().ServerGroups()
	if err != nil {
		return nil, err
	}
	if groups == nil {
		return nil, errors.New("the API server returned no API groups")
	}
	for _, group := range groups.Groups {
		if group.Name != name {
			continue
		}
		var served []string
		for _, version := range group.Versions {
			served = append(served, version.GroupVersion)
		}
		return served, nil
	}
	return nil, nil
}
