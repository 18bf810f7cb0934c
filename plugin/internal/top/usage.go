package top

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/quota"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// usage is what the cluster has.
type usage struct {
	forest hierarchy.Forest
	// isLineage reports whether the forest has only a policyspace and those above it, so that children are unknown.
	isLineage  bool
	namespaces []*corev1.Namespace
	// used is the usage of each namespace, by name. It is nil if it is unknown.
	used map[string]corev1.ResourceList
}

// limit is one limit of a policyspace, with those that use it.
type limit struct {
	Name     string `json:"name"`
	Path     string `json:"path,omitempty"`
	Resource string `json:"resource"`
	// Used and Percent, which is how much of the limit is used, are missing while the operator has not counted.
	Used    string `json:"used,omitempty"`
	Limit   string `json:"limit"`
	Percent *int   `json:"percent,omitempty"`
	// PolicySpaces are the child policyspaces that use the resource, and Namespaces the namespaces in and below the
	// policyspace, those that use the most first. They are null if it is unknown which they are.
	PolicySpaces []share `json:"policySpaces"`
	Namespaces   []share `json:"namespaces"`
	// Message says why the usage differs from that of the namespaces, or is empty.
	Message string `json:"message,omitempty"`
}

// share is how much of a limit a policyspace or a namespace uses.
type share struct {
	Name string `json:"name"`
	// Used and Percent are missing if the usage is unknown.
	Used    string `json:"used,omitempty"`
	Percent *int   `json:"percent,omitempty"`

	amount resource.Quantity
}

// lineage returns the names of a policyspace and of those above it, the nearest first, as far as they exist.
func (u usage) lineage(space string) []string {
	var names []string
	for at := u.forest.Get(space); at != nil && !slices.Contains(names, at.Name); at = u.forest.Get(at.Spec.Parent) {
		names = append(names, at.Name)
	}
	return names
}

// newLimits returns the limits of policyspaces in the order of the names. If only is not empty, it returns those of
// that resource.
func newLimits(u usage, names []string, only string) []limit {
	members := u.members()
	limits := []limit{}
	for _, name := range names {
		space := u.forest.Get(name)
		hard := quota.Hard(space)
		for _, limited := range slices.Sorted(maps.Keys(hard)) {
			if only != "" && string(limited) != only {
				continue
			}
			maximum := hard[limited]
			shown := limit{
				Name: name, Path: space.Status.Path, Resource: string(limited), Limit: maximum.String(),
				Message: message(space, limited),
			}
			if used, isKnown := quota.Known(space, limited); isKnown {
				shown.Used, shown.Percent = used.String(), new(output.Percent(used, maximum))
			}
			shown.PolicySpaces = u.children(members, name, limited, maximum)
			if u.used != nil {
				shown.Namespaces = shares(u.counted(members, name, limited), maximum)
			}
			limits = append(limits, shown)
		}
	}
	return limits
}

// members returns the namespaces whose usage counts in each policyspace.
func (u usage) members() map[string][]string {
	members := map[string][]string{}
	for _, ns := range u.namespaces {
		spaces, err := hierarchy.Charged(ns, func(name string) (*v1alpha1.PolicySpace, error) {
			return u.forest.Get(name), nil
		})
		if err != nil {
			continue // the forest returns none
		}
		for _, space := range spaces {
			members[space] = append(members[space], ns.Name)
		}
	}
	return members
}

// children returns the shares of the child policyspaces, or nil if these are unknown. A child that limits the resource
// itself has its usage in its status, which users may read who may not read that of namespaces. While that is not
// known, the usage of its namespaces is not, either.
func (u usage) children(
	members map[string][]string, space string, name corev1.ResourceName, maximum resource.Quantity,
) []share {
	if u.isLineage {
		return nil
	}
	var shares []share
	for _, child := range u.forest.Children(space) {
		limiting := u.forest.Get(child)
		var used *resource.Quantity
		_, isLimited := quota.Hard(limiting)[name]
		if known, isKnown := quota.Known(limiting, name); isKnown {
			used = &known
		} else if !isLimited && u.used != nil {
			used = sum(u.counted(members, child, name))
		}
		shares = append(shares, newShare(child, used, maximum))
	}
	return ordered(shares)
}

// sum returns the sum of usages, or nil if one of them is unknown.
func sum(used map[string]*resource.Quantity) *resource.Quantity {
	total := &resource.Quantity{}
	for _, of := range used {
		if of == nil {
			return nil
		}
		total.Add(*of)
	}
	return total
}

// counted returns how much of a resource each namespace uses that counts in a policyspace. It is nil for a namespace in
// which nothing has counted the resource yet.
func (u usage) counted(
	members map[string][]string, space string, name corev1.ResourceName,
) map[string]*resource.Quantity {
	used := map[string]*resource.Quantity{}
	if name != quota.Namespaces {
		for _, ns := range members[space] {
			used[ns] = nil
			if of, isCounted := u.used[ns][name]; isCounted {
				used[ns] = &of
			}
		}
		return used
	}
	below := u.forest.Below(space)
	for _, ns := range u.namespaces {
		isBelow := u.isLineage && slices.Contains(hierarchy.SpacesOf(ns), space) // the children are unknown
		if isBelow || slices.ContainsFunc(hierarchy.CountedIn(ns), func(space string) bool { return below[space] }) {
			used[ns.Name] = resource.NewQuantity(1, resource.DecimalSI)
		}
	}
	return used
}

func shares(used map[string]*resource.Quantity, maximum resource.Quantity) []share {
	var all []share
	for name, of := range used {
		all = append(all, newShare(name, of, maximum))
	}
	return ordered(all)
}

// newShare returns the share of a policyspace or namespace. used is nil if the usage is unknown.
func newShare(name string, used *resource.Quantity, maximum resource.Quantity) share {
	if used == nil {
		return share{Name: name}
	}
	return share{Name: name, Used: used.String(), Percent: new(output.Percent(*used, maximum)), amount: *used}
}

// ordered returns the shares that are not zero, the largest first, and then those that are unknown.
func ordered(shares []share) []share {
	shares = slices.DeleteFunc(shares, func(s share) bool { return s.Percent != nil && s.amount.IsZero() })
	slices.SortFunc(shares, func(a, b share) int {
		return cmp.Or(b.amount.Cmp(a.amount), strings.Compare(a.Name, b.Name))
	})
	return append([]share{}, shares...)
}

// message returns what a user should know about the usage of a resource in a policyspace.
func message(space *v1alpha1.PolicySpace, name corev1.ResourceName) string {
	var parts []string
	_, enforced := space.Status.Hard[name]
	if name == quota.Namespaces {
		if !enforced {
			return "not enforced yet"
		}
		return ""
	}
	if !enforced {
		parts = append(parts, "not counted in all namespaces yet")
	}
	if len(space.Status.Uncounted) > 0 {
		parts = append(parts, "the usage is unknown in "+strings.Join(space.Status.Uncounted, ", "))
	}
	for _, other := range space.Status.SharedWith {
		parts = append(parts, "includes the usage of "+other.Name+", from which namespaces moved")
	}
	return strings.Join(parts, "; ")
}

// sortByPercent sorts limits by how much of them is used. Those of which that is unknown are the last.
func sortByPercent(limits []limit) {
	percent := func(l limit) int {
		if l.Percent == nil {
			return -1
		}
		return *l.Percent
	}
	slices.SortStableFunc(limits, func(a, b limit) int { return percent(b) - percent(a) })
}

// notes returns the messages of limits, as far as they are few.
func notes(limits []limit) []string {
	var all []string
	for _, l := range limits {
		if l.Message != "" {
			all = append(all, fmt.Sprintf("policyspace/%s: %s: %s", l.Name, l.Resource, l.Message))
		}
	}
	return output.FirstNotes(all, maxShown, "%d more limits have a message: -o wide shows it")
}
