package sync_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
)

// grove is a random tree of policies. Every name in it belongs to one directory.
type grove struct {
	*rand.Rand
	// spaces and namespaces have the name of the directory in which each is. The root is "".
	spaces, namespaces map[string]string
	// bindings have the directory of each RoleBinding, quotas the limit of each directory, and roles the verb that each
	// ClusterRole allows.
	bindings map[string]string
	quotas   map[string]int
	roles    map[string]string
	// subjects are the users of RoleBindings, if they are not the default one.
	subjects map[string]string
	// home is the policyspace of the namespace steady, which inherits the RoleBinding steady from it and exists always.
	home string
	// names is the number of names that were given to namespaces, bindings and roles.
	names int
}

const (
	steady     = "trees-steady"
	steadyUser = "bob"
)

func newGrove(seed uint64) *grove {
	return &grove{
		Rand:       rand.New(rand.NewPCG(seed, 0)),
		spaces:     map[string]string{"trees-s0": "", "trees-s1": "trees-s0"},
		namespaces: map[string]string{steady: "trees-s1", "trees-first": ""},
		bindings:   map[string]string{steady: "trees-s1"},
		quotas:     map[string]int{}, roles: map[string]string{"trees-role": "get"}, subjects: map[string]string{},
		home: "trees-s1",
	}
}

// copied returns the same tree, which does not change with g.
func (g *grove) copied() *grove {
	other := *g
	other.spaces, other.namespaces = maps.Clone(g.spaces), maps.Clone(g.namespaces)
	other.bindings, other.quotas = maps.Clone(g.bindings), maps.Clone(g.quotas)
	other.roles, other.subjects = maps.Clone(g.roles), maps.Clone(g.subjects)
	return &other
}

// revert makes the tree an earlier one.
func (g *grove) revert(to *grove) {
	names := g.names
	*g = *to.copied()
	g.names = names
}

// files returns the files of the tree. Policyspaces have a file that is not a manifest, so that empty ones exist.
func (g *grove) files() map[string]string {
	files := map[string]string{}
	for space := range g.spaces {
		files[g.path(space, "OWNERS")] = "approvers: [ann]\n"
	}
	for ns := range g.namespaces {
		files[g.path(ns, "namespace.yaml")] = namespaceFile(ns)
	}
	for name, dir := range g.bindings {
		user := steadyUser
		if g.subjects[name] != "" {
			user = g.subjects[name]
		}
		files[g.path(dir, name+".yaml")] = bindingFile(name, "view", user)
	}
	for dir, limit := range g.quotas {
		files[g.path(dir, "quota.yaml")] = quotaFile("quota", fmt.Sprint(limit))
	}
	for name, verb := range g.roles {
		files[name+".yaml"] = roleFile(name, verb)
		files[name+"-binding.yaml"] = asClusterRoleBinding(bindingFile(name, name, "ann"))
	}
	return files
}

// path returns the path of a file in a directory.
func (g *grove) path(dir, file string) string {
	for dir != "" {
		file = path.Join(dir, file)
		parent, isSpace := g.spaces[dir]
		if !isSpace {
			parent = g.namespaces[dir]
		}
		dir = parent
	}
	return file
}

func (g *grove) newName(kind string) string {
	g.names++
	return fmt.Sprint("trees-", kind, g.names)
}

// newSpaceName returns one of a few names, so that policyspaces get names that others had before. It returns "" if all
// are used.
func (g *grove) newSpaceName() string {
	var free []string
	for i := range 9 {
		if name := fmt.Sprint("trees-s", i); !g.has(name) {
			free = append(free, name)
		}
	}
	if len(free) == 0 {
		return ""
	}
	return free[g.IntN(len(free))]
}

func (g *grove) has(name string) bool {
	_, isSpace := g.spaces[name]
	return isSpace
}

// one returns one of the keys, or "" if there is none.
func one[V any](g *grove, from map[string]V) string {
	keys := slices.Sorted(maps.Keys(from))
	if len(keys) == 0 {
		return ""
	}
	return keys[g.IntN(len(keys))]
}

// anySpace returns a policyspace, or the root.
func (g *grove) anySpace() string { return one(g, with(g.spaces, "", "")) }

// anyDirectory returns a policyspace, a namespace or the root.
func (g *grove) anyDirectory() string {
	all := maps.Clone(g.namespaces)
	maps.Copy(all, g.spaces)
	return one(g, with(all, "", ""))
}

// isBelow reports whether a policyspace is another one or below it.
func (g *grove) isBelow(space, above string) bool {
	for ; space != ""; space = g.spaces[space] {
		if space == above {
			return true
		}
	}
	return above == ""
}

// rename gives policyspaces other names, all at once.
func (g *grove) rename(names map[string]string) {
	renamed := func(name string) string {
		if other, ok := names[name]; ok {
			return other
		}
		return name
	}
	for _, places := range []map[string]string{g.spaces, g.namespaces, g.bindings} {
		for name, dir := range places {
			places[name] = renamed(dir)
		}
	}
	spaces, quotas := map[string]string{}, map[string]int{}
	for name, parent := range g.spaces {
		spaces[renamed(name)] = parent
	}
	for dir, limit := range g.quotas {
		quotas[renamed(dir)] = limit
	}
	g.spaces, g.quotas, g.home = spaces, quotas, renamed(g.home)
}
