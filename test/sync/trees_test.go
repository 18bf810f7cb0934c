package sync_test

import (
	"flag"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inventory"
)

var (
	treesSeed  = flag.Uint64("trees.seed", 7, "the seed of the random trees")
	treesCount = flag.Int("trees.count", 80, "the number of random trees")
)

// change changes a tree. It returns what it did, or "" if it does not suit the tree.
type change func(g *grove) string

// changes are how a tree gets from one commit to the next. Those that are listed twice happen twice as often.
var changes = []change{
	(*grove).addNamespace, (*grove).addNamespace, (*grove).addSpace, (*grove).addSpace, (*grove).addBinding,
	(*grove).addBinding, (*grove).deleteNamespace, (*grove).deleteSpace, (*grove).deleteBinding,
	(*grove).renameSpace, (*grove).renameSpace, (*grove).swapSpaces, (*grove).moveSpace, (*grove).moveSpace,
	(*grove).moveNamespace, (*grove).moveNamespace, (*grove).moveBinding, (*grove).changeBinding, (*grove).changeQuota,
	(*grove).changeRole, (*grove).deleteRole,
}

func (g *grove) addNamespace() string {
	name := g.newName("n")
	g.namespaces[name] = g.anySpace()
	return "add namespace " + name
}

func (g *grove) addSpace() string {
	name := g.newSpaceName()
	if name == "" {
		return ""
	}
	g.spaces[name] = g.anySpace()
	return "add policyspace " + name
}

func (g *grove) addBinding() string {
	name := g.newName("b")
	g.bindings[name] = g.anyDirectory()
	return "add RoleBinding " + name
}

func (g *grove) deleteNamespace() string {
	name := one(g, g.namespaces)
	if name == steady {
		return ""
	}
	g.forget(name)
	delete(g.namespaces, name)
	return "delete namespace " + name
}

// forget deletes the policies of a directory.
func (g *grove) forget(dir string) {
	maps.DeleteFunc(g.bindings, func(_, of string) bool { return of == dir })
	delete(g.quotas, dir)
}

// deleteSpace deletes a policyspace with everything below it.
func (g *grove) deleteSpace() string {
	name := one(g, g.spaces)
	if name == "" || g.isBelow(g.home, name) {
		return ""
	}
	for _, space := range slices.Sorted(maps.Keys(g.spaces)) {
		if !g.isBelow(space, name) {
			continue
		}
		for ns, of := range g.namespaces {
			if of == space {
				g.forget(ns)
				delete(g.namespaces, ns)
			}
		}
		g.forget(space)
		defer delete(g.spaces, space) // isBelow needs the others
	}
	return "delete policyspace " + name
}

func (g *grove) deleteBinding() string {
	name := one(g, g.bindings)
	if name == steady {
		return ""
	}
	delete(g.bindings, name)
	return "delete RoleBinding " + name
}

func (g *grove) renameSpace() string {
	name, to := one(g, g.spaces), g.newSpaceName()
	if to == "" {
		return ""
	}
	g.rename(map[string]string{name: to})
	return "rename policyspace " + name + " to " + to
}

func (g *grove) swapSpaces() string {
	a, b := one(g, g.spaces), one(g, g.spaces)
	if a == b {
		return ""
	}
	g.rename(map[string]string{a: b, b: a})
	return "swap policyspaces " + a + " and " + b
}

func (g *grove) moveSpace() string {
	name, to := one(g, g.spaces), g.anySpace()
	if to != "" && g.isBelow(to, name) || g.spaces[name] == to {
		return ""
	}
	g.spaces[name] = to
	return "move policyspace " + name + " to " + to
}

func (g *grove) moveNamespace() string {
	name, to := one(g, g.namespaces), g.anySpace()
	if name == steady || g.namespaces[name] == to {
		return ""
	}
	g.namespaces[name] = to
	return "move namespace " + name + " to " + to
}

// moveBinding moves a RoleBinding one level up, or to any directory.
func (g *grove) moveBinding() string {
	name := one(g, g.bindings)
	to := g.anyDirectory()
	if parent, isSpace := g.spaces[g.bindings[name]]; isSpace && g.IntN(2) == 0 {
		to = parent
	}
	if name == steady || g.bindings[name] == to {
		return ""
	}
	g.bindings[name] = to
	return "move RoleBinding " + name + " to " + to
}

func (g *grove) changeBinding() string {
	name := one(g, g.bindings)
	if name == steady {
		return ""
	}
	g.subjects[name] = g.newName("user")
	return "change the subject of RoleBinding " + name
}

func (g *grove) changeQuota() string {
	dir := g.anyDirectory()
	if g.quotas[dir] > 0 && g.IntN(2) == 0 {
		delete(g.quotas, dir)
		return "delete the quota of " + dir
	}
	g.quotas[dir] = 10 + g.IntN(90)
	return "change the quota of " + dir
}

func (g *grove) changeRole() string {
	name := one(g, g.roles)
	if name == "" || g.IntN(2) == 0 {
		name = g.newName("r")
	}
	g.roles[name] = []string{"get", "list", "watch"}[g.IntN(3)]
	return "change ClusterRole " + name
}

func (g *grove) deleteRole() string {
	name := one(g, g.roles)
	delete(g.roles, name)
	return "delete ClusterRole " + name
}

// next changes the tree in one or several ways, or reverts it.
func (g *grove) next(before []*grove) string {
	if len(before) > 4 && g.IntN(8) == 0 {
		g.revert(before[len(before)-2-g.IntN(3)])
		return "revert"
	}
	done := ""
	for done == "" || g.IntN(3) == 0 {
		if did := changes[g.IntN(len(changes))](g); did != "" {
			done += did + "; "
		}
	}
	return done
}

// After each of many random commits, the cluster has exactly what the tree declares. Namespaces that are in two
// successive trees stay the same, no more are deleted than the limit allows, and a user whose RoleBinding's directory
// is renamed or moved has access at every moment.
func TestRandomTrees(t *testing.T) {
	t.Parallel()
	t.Logf("to repeat: go test ./test/sync -run 'TestRandomTrees$' -args -trees.seed=%d -trees.count=%d", *treesSeed,
		*treesCount)
	x := newTree(t, "trees")
	g := newGrove(*treesSeed)
	x.commit(g.files())
	x.follow()
	x.waitExact(g.files())
	before := []*grove{g.copied()}
	for i := range *treesCount {
		what := g.next(before)
		t.Logf("%d: %s", i, what)
		x.step(before[len(before)-1], g)
		before = append(before, g.copied())
	}
}

// step commits a tree after another one, and confirms deletions if that is necessary.
func (x *tree) step(from, to *grove) {
	x.Helper()
	uids := x.uids(slices.Collect(maps.Keys(from.namespaces))...)
	checkAccess := x.watchAccess(steady, steadyUser)
	var deleted []string
	for ns := range from.namespaces {
		if _, stays := to.namespaces[ns]; !stays {
			deleted = append(deleted, ns)
		}
	}
	slices.Sort(deleted)
	files := to.files()
	commit := x.commit(files)
	if len(deleted) > inventory.Allowed(nil, len(from.namespaces)) {
		x.waitReason("DeletionsPending", commit)
		x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
			assertPending(c, status, commit, deleted...)
		})
		x.waitExact(files, deleted...)
		x.annotate(v1alpha1.ConfirmedCommitAnnotation, commit)
	}
	x.waitApplied(commit)
	x.waitExact(files)
	checkAccess()
	stay := maps.Clone(uids)
	maps.DeleteFunc(stay, func(ns, _ string) bool { return slices.Contains(deleted, ns) })
	require.Equal(x, stay, x.uids(slices.Collect(maps.Keys(stay))...))
}
