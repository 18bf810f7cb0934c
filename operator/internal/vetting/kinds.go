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

// found is a kind of a template, as the cluster knows it.
type found struct {
	kind     schema.GroupVersionKind
	resource schema.GroupVersionResource
	// guessed says that the cluster doesn't know the kind, and the resource is what it is most likely called.
	guessed bool
}

// may is the question whether somebody may do something to all objects of the kind.
func (f found) may(verb string) question {
	return question{verb: verb, group: f.resource.Group, resource: f.resource.Resource}
}

// lookUp asks the cluster's discovery for kinds. One without a version is found in any.
func (t *Admission) lookUp(
	kinds []schema.GroupVersionKind,
) (known []found, problems []error, warnings []string, err error) {
	for _, kind := range kinds {
		mapping, err := t.mapping(kind)
		switch {
		case meta.IsNoMatchError(err):
			problem, err := t.notServed(kind)
			if err != nil {
				return nil, nil, nil, fmt.Errorf("look up %s: %w", kind.GroupKind(), err)
			}
			if problem != nil {
				problems = append(problems, problem)
				continue
			}
			resource, _ := meta.UnsafeGuessKindToResource(kind)
			known = append(known, found{kind, resource, true})
			warnings = append(warnings,
				fmt.Sprintf("the cluster doesn't know %s %s yet: its objects are populated once it does",
					kind.GroupVersion(), kind.Kind))
		case err != nil:
			return nil, nil, nil, fmt.Errorf("look up %s: %w", kind.GroupKind(), err)
		case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
			problems = append(problems,
				fmt.Errorf("%s is not namespace-scoped: a template holds objects of a namespace only",
					kind.GroupKind()))
		default:
			known = append(known, found{kind, mapping.Resource, false})
		}
	}
	return known, problems, warnings, nil
}

// mapping returns the resource of a kind. A kind that is being installed may be unknown at first and known at the next
// question.
func (t *Admission) mapping(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	mapping, unknown := t.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if !meta.IsNoMatchError(unknown) {
		return mapping, unknown
	}
	mappings, err := t.mapper.RESTMappings(kind.GroupKind())
	for _, mapping := range mappings {
		if err == nil && mapping.GroupVersionKind.Version == kind.Version {
			return mapping, nil
		}
	}
	return nil, unknown
}

// resources are the resources of kinds that are deleted, whatever the cluster thinks of their versions.
func (t *Admission) resources(kinds []schema.GroupVersionKind) ([]found, error) {
	var all []found
	for _, kind := range kinds {
		if slices.ContainsFunc(all, func(f found) bool { return f.kind.GroupKind() == kind.GroupKind() }) {
			continue
		}
		mappings, err := t.mapper.RESTMappings(kind.GroupKind())
		switch {
		case meta.IsNoMatchError(err) || err == nil && len(mappings) == 0:
			resource, _ := meta.UnsafeGuessKindToResource(kind)
			all = append(all, found{kind, resource, true})
		case err != nil:
			return nil, fmt.Errorf("look up %s: %w", kind.GroupKind(), err)
		default:
			all = append(all, found{kind, mappings[0].Resource, false})
		}
	}
	return all, nil
}

// notServed says why no object of a kind that the cluster doesn't know can be populated, as far as the cluster knows
// its group. What is of a group that the cluster doesn't know at all may be installed later.
func (t *Admission) notServed(kind schema.GroupVersionKind) (problem, err error) {
	switch mappings, err := t.mapper.RESTMappings(kind.GroupKind()); {
	case meta.IsNoMatchError(err):
	case err != nil:
		return nil, err
	case len(mappings) > 0:
		var served []string
		for _, mapping := range mappings {
			served = append(served, mapping.GroupVersionKind.GroupVersion().String())
		}
		slices.Sort(served)
		return fmt.Errorf("the cluster serves %s as %s, not as %s", kind.GroupKind(),
			strings.Join(slices.Compact(served), " and "), kind.GroupVersion()), nil
	}
	served, err := t.servedVersions(kind.Group)
	switch {
	case err != nil:
		return nil, err
	case kind.Version != "" && len(served) > 0 && !slices.Contains(served, kind.GroupVersion().String()):
		return fmt.Errorf("the cluster serves the API group %s as %s, not as %s", kind.Group,
			strings.Join(served, " and "), kind.GroupVersion()), nil
	case render.BuiltIn(kind.Group):
		return fmt.Errorf("the cluster has no %s %s", kind.GroupVersion(), kind.Kind), nil
	}
	return nil, nil
}

// servedVersions returns the versions of an API group, or nil if the cluster doesn't know the group.
func (t *Admission) servedVersions(name string) ([]string, error) {
	groups, err := t.clients.Discovery().ServerGroups()
	if err != nil {
		return nil, err
	}
	if groups == nil {
		return nil, errors.New("the API server lists no API groups")
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
