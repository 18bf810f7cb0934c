package inventory

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// change changes an object of a test.
type change func(*unstructured.Unstructured)

func object(apiVersion, kind, name string, changes ...change) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name},
	}}
	for _, change := range changes {
		change(o)
	}
	return o
}

func namespace(name string, changes ...change) *unstructured.Unstructured {
	return object("v1", "Namespace", name, changes...)
}

func space(name string, changes ...change) *unstructured.Unstructured {
	return object(v1alpha1.GroupVersion.String(), "PolicySpace", name, changes...)
}

func template(name string, changes ...change) *unstructured.Unstructured {
	return object(v1alpha1.GroupVersion.String(), "NamespaceTemplate", name, changes...)
}

func role(name string, changes ...change) *unstructured.Unstructured {
	return object("rbac.authorization.k8s.io/v1", "ClusterRole", name, changes...)
}

// allowsToBindX makes a ClusterRole one that allows its subjects to bind another.
func allowsToBindX(o *unstructured.Unstructured) {
	o.Object["rules"] = []any{map[string]any{"resourceNames": []any{"x"}}}
}

func clusterBinding(name, role string, changes ...change) *unstructured.Unstructured {
	o := object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", name, changes...)
	o.Object["roleRef"] = map[string]any{"kind": "ClusterRole", "name": role}
	return o
}

func uid(uid string) change {
	return func(o *unstructured.Unstructured) { o.SetUID(types.UID(uid)) }
}

func ofTree(tree string) change {
	return func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{v1alpha1.TreeLabel: tree}) }
}

func inSpace(space string) change {
	return func(o *unstructured.Unstructured) {
		o.SetLabels(map[string]string{v1alpha1.PolicySpaceLabel: space})
	}
}

// inTreeAt returns a change that puts a namespace into a policyspace of a tree.
func inTreeAt(tree, space string) change {
	return func(o *unstructured.Unstructured) {
		o.SetLabels(map[string]string{v1alpha1.TreeLabel: tree, v1alpha1.PolicySpaceLabel: space})
	}
}

func below(parent string) change {
	return func(o *unstructured.Unstructured) { o.Object["spec"] = map[string]any{"parent": parent} }
}

// declares returns a change that has a template declare RoleBindings to roles, with names of their own.
func declares(roles ...string) change {
	return func(o *unstructured.Unstructured) {
		var objects []any
		for _, role := range roles {
			objects = append(objects, map[string]any{
				"kind": "RoleBinding", "metadata": map[string]any{"name": o.GetName() + "." + role},
				"roleRef": map[string]any{"kind": "ClusterRole", "name": role},
			})
		}
		o.Object["spec"] = map[string]any{"templates": objects}
	}
}

// binds returns a change that has a template declare a RoleBinding for a user.
func binds(name, user string) change {
	return func(o *unstructured.Unstructured) {
		o.Object["spec"] = map[string]any{"templates": []any{map[string]any{
			"kind": "RoleBinding", "metadata": map[string]any{"name": name}, "subjects": []any{user},
		}}}
	}
}

// selectsBy returns a change that has a template select by the depth label of a policyspace.
func selectsBy(space string) change {
	return func(o *unstructured.Unstructured) {
		o.Object["spec"] = map[string]any{"namespaces": map[string]any{"labelSelector": space}}
	}
}

// editedBy returns a stored object after an edit by hand.
func editedBy(stored *unstructured.Unstructured, edit change) *unstructured.Unstructured {
	edit(stored)
	return stored
}

func withQuota(o *unstructured.Unstructured) {
	o.Object["spec"] = map[string]any{"quota": map[string]any{"hard": map[string]any{"pods": "1"}}}
}

func annotated(key, value string) change {
	return func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{key: value}) }
}

func protected(o *unstructured.Unstructured) {
	o.SetAnnotations(map[string]string{v1alpha1.DeletionProtectionAnnotation: "true"})
}

func deleting(o *unstructured.Unstructured) {
	o.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
}

func withRules(rules ...any) change {
	return func(o *unstructured.Unstructured) { o.Object["rules"] = rules }
}

func stateOf(created []string, live ...*unstructured.Unstructured) State {
	state := State{Live: map[ID]*unstructured.Unstructured{}, Created: map[types.UID]bool{}}
	for _, object := range live {
		state.Live[render.IDOf(object)] = object
	}
	for _, uid := range created {
		state.Created[types.UID(uid)] = true
	}
	return state
}

// summary returns the plan in short: + for applies, = for replacements, h for applies that are held back, - for
// deletions, ~ for releases, ? for waiting deletions, p for protected namespaces, o for those that another tree may
// declare, u for policyspaces in use, ! for unmanaged namespaces and x for conflicts.
func summary(p Plan) []string {
	var lines []string
	for _, apply := range p.Applies {
		sign := "+"
		if apply.Replaced != nil && apply.Live == nil {
			sign = "="
		}
		line := sign + render.IDOf(apply.Declared).String()
		for _, declared := range objectsOf(apply.Declared) {
			name, _, _ := unstructured.NestedString(declared, "metadata", "name")
			line += " " + name
		}
		lines = append(lines, line)
	}
	for _, apply := range p.Held {
		lines = append(lines, "h"+render.IDOf(apply.Declared).String())
	}
	for _, object := range p.Deletes {
		lines = append(lines, "-"+render.IDOf(object).String())
	}
	for _, object := range p.Releases {
		lines = append(lines, "~"+render.IDOf(object).String())
	}
	for _, name := range p.Waiting {
		lines = append(lines, "?"+name)
	}
	for _, name := range p.Protected {
		lines = append(lines, "p"+name)
	}
	for _, id := range p.Undecided {
		lines = append(lines, "o"+id.String())
	}
	for _, name := range p.Used {
		lines = append(lines, "u"+name)
	}
	for _, name := range p.Unmanaged {
		lines = append(lines, "!"+name)
	}
	for _, conflict := range p.Conflicts {
		lines = append(lines, "x"+conflict.ID.String()+" "+conflict.Reason)
	}
	return lines
}

func declare(t *testing.T, objects ...*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	declared, err := Declare(objects)
	require.NoError(t, err)
	return declared
}

// stored returns an object as it is in the cluster after it was applied.
func stored(t *testing.T, id string, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	live := declare(t, o)[0].DeepCopy()
	live.SetUID(types.UID(id))
	return live
}

// edited returns an object as someone has edited it.
func edited(o *unstructured.Unstructured) *unstructured.Unstructured {
	o.SetLabels(nil)
	o.Object["spec"] = "edited"
	return o
}

// ofBar returns why an object of the tree bar is not applied by the tree foo.
func ofBar(object string) string {
	return "belongs to the tree bar: rename the declared object, or hand the object over: suspend the PolicyRepository of " +
		"the tree bar, if there still is one, run: kubectl label " + object + " policy.nstpl.dev/tree=foo --overwrite, " +
		"remove the object from the tree bar, and resume"
}

func TestPlan(t *testing.T) {
	t.Parallel()
	inForce := stored(t, "1", role("viewer", ofTree("foo"), withRules("a")))
	changed := inForce.DeepCopy()
	changed.Object["rules"] = []any{"a", "b"}
	const bindsX = "nstpl-operator-tree-foo.x"
	for name, test := range map[string]struct {
		declared []*unstructured.Unstructured
		state    State
		options  Options
		want     []string
	}{
		"new objects are applied in the order of the phases": {
			declared: []*unstructured.Unstructured{namespace("ns"), space("foo"), template("foo"), role("viewer")},
			want: []string{
				"+clusterrole.rbac.authorization.k8s.io/viewer", "+namespacetemplate.policy.nstpl.dev/foo",
				"+policyspace.policy.nstpl.dev/foo", "+namespace/ns",
			},
		},
		"an object in force is not applied": {
			declared: []*unstructured.Unstructured{role("viewer", ofTree("foo"), withRules("a"))},
			state:    stateOf([]string{"1"}, inForce),
		},
		"an object that was changed is applied": {
			declared: []*unstructured.Unstructured{role("viewer", ofTree("foo"), withRules("a"))},
			state:    stateOf([]string{"1"}, changed),
			want:     []string{"+clusterrole.rbac.authorization.k8s.io/viewer"},
		},
		"a declaration that lost a field is applied": {
			declared: []*unstructured.Unstructured{role("viewer", ofTree("foo"))},
			state:    stateOf([]string{"1"}, inForce),
			want:     []string{"+clusterrole.rbac.authorization.k8s.io/viewer"},
		},
		"undeclared objects are deleted in the reverse order": {
			declared: []*unstructured.Unstructured{namespace("stays")},
			state: stateOf([]string{"1", "2", "3", "4", "5", "6"}, role("r", uid("1")), template("t", uid("2")),
				space("s", uid("3")), namespace("n", uid("4")), stored(t, "5", namespace("stays")),
				role("a", uid("6"))),
			want: []string{
				"-namespace/n", "-policyspace.policy.nstpl.dev/s", "-namespacetemplate.policy.nstpl.dev/t",
				"-clusterrole.rbac.authorization.k8s.io/a", "-clusterrole.rbac.authorization.k8s.io/r",
			},
		},
		"only what was created for the tree is deleted": {
			state: stateOf(nil, role("r", uid("1"), ofTree("foo")), namespace("n", uid("2"), ofTree("foo")),
				template("t", uid("3"), ofTree("foo"))),
		},
		"an object that was created again by others is not deleted": {
			state: stateOf([]string{"1"}, role("r", uid("2"), ofTree("foo"))),
		},
		"a template that existed before is a conflict": {
			declared: []*unstructured.Unstructured{template("admin")},
			state:    stateOf(nil, template("admin", uid("1"))),
			want: []string{"xnamespacetemplate.policy.nstpl.dev/admin existed before the tree foo: delete it, rename " +
				"the declared object, or annotate it with policy.nstpl.dev/adopt=true, which has the tree change it"},
		},
		"a template that existed before is applied if it is annotated": {
			declared: []*unstructured.Unstructured{template("admin")},
			state:    stateOf(nil, template("admin", uid("1"), annotated(v1alpha1.AdoptAnnotation, "true"))),
			want:     []string{"+namespacetemplate.policy.nstpl.dev/admin"},
		},
		"a ClusterRole that existed before is applied, and not deleted later": {
			declared: []*unstructured.Unstructured{role("admin")},
			state:    stateOf(nil, role("admin", uid("1")), stored(t, "2", role("former", ofTree("foo")))),
			want:     []string{"+clusterrole.rbac.authorization.k8s.io/admin"},
		},
		"a binding is replaced if its roleRef changes": {
			declared: []*unstructured.Unstructured{clusterBinding("same", "view"), clusterBinding("other", "edit")},
			state: stateOf([]string{"2"}, clusterBinding("same", "view", uid("1")),
				clusterBinding("other", "view", uid("2"))),
			want: []string{
				"+clusterrolebinding.rbac.authorization.k8s.io/same",
				"=clusterrolebinding.rbac.authorization.k8s.io/other",
			},
		},
		"an object that kubectl applied from the tree is applied, and not deleted later": {
			declared: []*unstructured.Unstructured{role("viewer", ofTree("foo"))},
			state:    stateOf(nil, role("viewer", uid("1"), ofTree("foo"))),
			want:     []string{"+clusterrole.rbac.authorization.k8s.io/viewer"},
		},
		"an object of another tree is a conflict": {
			declared: []*unstructured.Unstructured{role("viewer"), namespace("n")},
			state:    stateOf(nil, role("viewer", uid("1"), ofTree("bar")), namespace("n", uid("2"), ofTree("bar"))),
			options:  Options{Adopt: true},
			want: []string{
				"xclusterrole.rbac.authorization.k8s.io/viewer " + ofBar("clusterrole.rbac.authorization.k8s.io/viewer"),
				"xnamespace/n " + ofBar("namespace/n"),
			},
		},
		"an object of another tree that was handed over is applied": {
			declared: []*unstructured.Unstructured{role("viewer"), space("s"), namespace("n")},
			state: stateOf(nil, role("viewer", uid("1"), ofTree("foo")), space("s", uid("2"), ofTree("foo")),
				namespace("n", uid("3"), ofTree("foo"), annotated(v1alpha1.InTreeAnnotation, "true"))),
			want: []string{
				"+clusterrole.rbac.authorization.k8s.io/viewer", "+policyspace.policy.nstpl.dev/s", "+namespace/n",
			},
		},
		"a namespace that existed before is unmanaged, whatever its label": {
			declared: []*unstructured.Unstructured{namespace("a"), namespace("b")},
			state:    stateOf(nil, namespace("a", uid("1")), namespace("b", uid("2"), ofTree("foo"))),
			want:     []string{"!a", "!b"},
		},
		"a namespace that existed before is applied if it consents": {
			declared: []*unstructured.Unstructured{namespace("a"), namespace("b")},
			state: stateOf(nil, namespace("a", uid("1"), annotated(v1alpha1.AdoptAnnotation, "true")),
				namespace("b", uid("2"), annotated(v1alpha1.InTreeAnnotation, "true"))),
			want: []string{"+namespace/a", "+namespace/b"},
		},
		"an adopted namespace is released, and never deleted": {
			state: stateOf(nil, stored(t, "1", namespace("a", ofTree("foo")))),
			want:  []string{"~namespace/a"},
		},
		"an object that is being deleted is neither applied nor deleted again": {
			declared: []*unstructured.Unstructured{space("s")},
			state:    stateOf([]string{"1", "2"}, space("s", uid("1"), deleting), space("old", uid("2"), deleting)),
			want: []string{
				"xpolicyspace.policy.nstpl.dev/s is being deleted: it is created again when it is gone",
			},
		},
		"objects are created and repaired before others are changed": {
			declared: []*unstructured.Unstructured{
				template("changed"), template("new"), template("edited", ofTree("foo")), role("r"),
			},
			state: stateOf([]string{"1", "2", "3"},
				stored(t, "1", template("changed", ofTree("foo"))), stored(t, "3", role("r", ofTree("foo"))),
				edited(stored(t, "2", template("edited", ofTree("foo"))))),
			want: []string{
				"+clusterrole.rbac.authorization.k8s.io/r",
				"+namespacetemplate.policy.nstpl.dev/new",
				"+namespacetemplate.policy.nstpl.dev/edited",
				"+namespacetemplate.policy.nstpl.dev/changed",
			},
		},
		"a template loses an object only after the one that declares it instead exists": {
			declared: []*unstructured.Unstructured{
				template("gives", declares("kept")), template("revokes", declares("kept")),
				template("taken", declares("given")),
			},
			state: stateOf([]string{"1", "2"},
				stored(t, "1", template("gives", ofTree("foo"), declares("kept", "given", "revoked"))),
				stored(t, "2", template("revokes", ofTree("foo"), declares("kept", "revoked"))),
				template("taken", uid("3"), ofTree("bar"))),
			want: []string{
				"+namespacetemplate.policy.nstpl.dev/gives gives.kept gives.given",
				"+namespacetemplate.policy.nstpl.dev/revokes revokes.kept",
				"xnamespacetemplate.policy.nstpl.dev/taken " + ofBar("namespacetemplate.policy.nstpl.dev/taken"),
			},
		},
		"a template keeps the objects that several others are to declare": {
			declared: []*unstructured.Unstructured{
				template("gives", declares("c")), template("takes-a", declares("a")), template("takes-b", declares("b")),
			},
			state: stateOf([]string{"1"}, stored(t, "1", template("gives", ofTree("foo"), declares("c", "a", "b"))),
				template("takes-a", uid("3"), ofTree("bar")), template("takes-b", uid("4"), ofTree("bar"))),
			want: []string{
				"xnamespacetemplate.policy.nstpl.dev/takes-a " + ofBar("namespacetemplate.policy.nstpl.dev/takes-a"),
				"xnamespacetemplate.policy.nstpl.dev/takes-b " + ofBar("namespacetemplate.policy.nstpl.dev/takes-b"),
			},
		},
		"a template keeps no object whose name it gives to another one": {
			declared: []*unstructured.Unstructured{
				template("gives", binds("viewers", "bob")), template("taken", binds("viewers", "ann")),
			},
			state: stateOf([]string{"1"}, stored(t, "1", template("gives", ofTree("foo"), binds("viewers", "ann"))),
				template("taken", uid("3"), ofTree("bar"))),
			want: []string{
				"+namespacetemplate.policy.nstpl.dev/gives viewers",
				"xnamespacetemplate.policy.nstpl.dev/taken " + ofBar("namespacetemplate.policy.nstpl.dev/taken"),
			},
		},
		"an added object is removed, also if another template declares it": {
			declared: []*unstructured.Unstructured{template("edited", declares("a")), template("taken", declares("added"))},
			state: stateOf([]string{"1"},
				editedBy(stored(t, "1", template("edited", declares("a"))), declares("a", "added")),
				template("taken", uid("3"), ofTree("bar"))),
			want: []string{
				"+namespacetemplate.policy.nstpl.dev/edited edited.a",
				"xnamespacetemplate.policy.nstpl.dev/taken " + ofBar("namespacetemplate.policy.nstpl.dev/taken"),
			},
		},
		"the template of a namespace selects it by the new root only when that exists": {
			declared: []*unstructured.Unstructured{
				space("acme"), template("acme"), namespace("n", inSpace("acme")), template("n", selectsBy("acme")),
			},
			state: stateOf([]string{"1", "2"}, stored(t, "1", namespace("n", inSpace("corp"))),
				stored(t, "2", template("n", selectsBy("corp"))), template("acme", uid("3"), ofTree("bar"))),
			want: []string{
				"hpolicyspace.policy.nstpl.dev/acme", "hnamespace/n", "hnamespacetemplate.policy.nstpl.dev/n",
				"xnamespacetemplate.policy.nstpl.dev/acme " + ofBar("namespacetemplate.policy.nstpl.dev/acme"),
			},
		},
		"a quota stays while the template of the policyspace that gets it cannot be created": {
			declared: []*unstructured.Unstructured{space("root"), space("taken", below("root")), template("taken")},
			state: stateOf([]string{"1"}, stored(t, "1", space("root", withQuota)),
				template("taken", uid("3"), ofTree("bar"))),
			want: []string{
				"hpolicyspace.policy.nstpl.dev/root", "hpolicyspace.policy.nstpl.dev/taken",
				"xnamespacetemplate.policy.nstpl.dev/taken " + ofBar("namespacetemplate.policy.nstpl.dev/taken"),
			},
		},
		"an edited quota is repaired meanwhile": {
			declared: []*unstructured.Unstructured{space("root"), space("taken", below("root"))},
			state: stateOf([]string{"1"}, editedBy(stored(t, "1", space("root")), below("elsewhere")),
				space("taken", uid("3"), ofTree("bar"))),
			want: []string{
				"+policyspace.policy.nstpl.dev/root",
				"xpolicyspace.policy.nstpl.dev/taken " + ofBar("policyspace.policy.nstpl.dev/taken"),
			},
		},
		"a template that has lost all but such an object stays as it is": {
			declared: []*unstructured.Unstructured{template("gives", declares()), template("taken", declares("given"))},
			state: stateOf([]string{"1"}, stored(t, "1", template("gives", ofTree("foo"), declares("given"))),
				template("taken", uid("3"), ofTree("bar"))),
			want: []string{
				"xnamespacetemplate.policy.nstpl.dev/taken " + ofBar("namespacetemplate.policy.nstpl.dev/taken"),
			},
		},
		"nothing joins a policyspace whose template cannot be applied, and all others go on": {
			declared: []*unstructured.Unstructured{
				role("r"), template("s"), space("s"), space("below", below("s")), space("t"),
				namespace("moves", inSpace("below")), namespace("changes", inSpace("s")), namespace("other", inSpace("t")),
			},
			state: stateOf([]string{"1", "2", "3"}, template("s", uid("1"), deleting),
				stored(t, "2", namespace("moves", inSpace("t"))), stored(t, "3", namespace("changes", inSpace("s"), protected))),
			want: []string{
				"+clusterrole.rbac.authorization.k8s.io/r", "+policyspace.policy.nstpl.dev/t", "+namespace/changes",
				"+namespace/other", "hpolicyspace.policy.nstpl.dev/s", "hpolicyspace.policy.nstpl.dev/below",
				"hnamespace/moves",
				"xnamespacetemplate.policy.nstpl.dev/s is being deleted: it is created again when it is gone",
			},
		},
		"a quota stays while the policyspace that gets it instead cannot be created": {
			declared: []*unstructured.Unstructured{
				space("root"), space("taken", below("root")), space("beside", below("root")),
			},
			state: stateOf([]string{"1", "2"}, stored(t, "1", space("root", ofTree("foo"), withQuota)),
				stored(t, "2", space("beside", ofTree("foo"), withQuota)), space("taken", uid("3"), ofTree("bar"))),
			want: []string{
				"+policyspace.policy.nstpl.dev/beside", "hpolicyspace.policy.nstpl.dev/root",
				"xpolicyspace.policy.nstpl.dev/taken " + ofBar("policyspace.policy.nstpl.dev/taken"),
			},
		},
		"only templates that are to bind a role wait for the permission to bind it, and what is to get them": {
			declared: []*unstructured.Unstructured{
				role("r"), role(bindsX, allowsToBindX), template("binds", declares("x")), template("bound", declares("x")),
				template("other", declares()), space("binds"), space("other"),
				namespace("moves", inSpace("binds")), namespace("new", inSpace("other")),
			},
			state: stateOf([]string{"1", "2", "3"}, role(bindsX, allowsToBindX, uid("9"), ofTree("bar")),
				stored(t, "1", template("bound", declares("x", "revoked"))),
				stored(t, "2", template("other", declares("revoked"))),
				stored(t, "3", namespace("moves", inSpace("other"))), space("gone", uid("1"))),
			want: []string{
				"+clusterrole.rbac.authorization.k8s.io/r", "+namespacetemplate.policy.nstpl.dev/bound bound.x",
				"+namespacetemplate.policy.nstpl.dev/other", "+policyspace.policy.nstpl.dev/other", "+namespace/new",
				"hnamespacetemplate.policy.nstpl.dev/binds", "hpolicyspace.policy.nstpl.dev/binds", "hnamespace/moves",
				"-policyspace.policy.nstpl.dev/gone",
				"xclusterrole.rbac.authorization.k8s.io/" + bindsX + " " +
					ofBar("clusterrole.rbac.authorization.k8s.io/"+bindsX),
			},
		},
		"what needs a template that waits for a permission waits, wherever that template is declared": {
			declared: []*unstructured.Unstructured{
				role(bindsX, allowsToBindX), space("acme"), namespace("n", inSpace("acme")), template("n", selectsBy("acme")),
				template("acme", declares("x")),
			},
			state: stateOf([]string{"1", "2"}, stored(t, "1", namespace("n", inSpace("corp"))),
				stored(t, "2", template("n", selectsBy("corp"))), role(bindsX, allowsToBindX, uid("9"), ofTree("bar"))),
			want: []string{
				"hpolicyspace.policy.nstpl.dev/acme", "hnamespace/n", "hnamespacetemplate.policy.nstpl.dev/n",
				"hnamespacetemplate.policy.nstpl.dev/acme", "xclusterrole.rbac.authorization.k8s.io/" + bindsX + " " +
					ofBar("clusterrole.rbac.authorization.k8s.io/"+bindsX),
			},
		},
		"a policyspace stays while a namespace of others is in it, and so do the policyspaces above": {
			declared: []*unstructured.Unstructured{namespace("stays")},
			state: stateOf([]string{"1", "2", "3", "4"}, space("root", uid("1")), space("s", uid("2"), below("root")),
				space("t", uid("3"), below("root")), stored(t, "4", namespace("stays")),
				namespace("foreign", uid("5"), inSpace("s"))),
			want: []string{"-policyspace.policy.nstpl.dev/t", "uroot", "us"},
		},
		"a policyspace stays while the deletion of its namespaces waits": {
			declared: []*unstructured.Unstructured{},
			state:    stateOf([]string{"1", "2"}, space("s", uid("1")), namespace("last", uid("2"), inSpace("s"))),
			want:     []string{"?last", "us"},
		},
		"a protected namespace stays, also after a confirmation, and so do the policyspaces that it is in": {
			declared: []*unstructured.Unstructured{},
			state: stateOf([]string{"1", "2", "3", "4"}, space("root", uid("1")), space("s", uid("2"), below("root")),
				namespace("kept", uid("3"), inSpace("s"), protected), namespace("gone", uid("4"), inSpace("s"))),
			options: Options{Confirmed: true},
			want:    []string{"-namespace/gone", "pkept", "uroot", "us"},
		},
		"a protected namespace counts as one that would be deleted": {
			declared: []*unstructured.Unstructured{namespace("stays")},
			state: stateOf([]string{"1", "2", "3"}, namespace("kept", uid("1"), protected), namespace("waits", uid("2")),
				stored(t, "3", namespace("stays"))),
			want: []string{"?waits", "pkept"},
		},
		"a namespace that is being deleted counts as one that would be deleted": {
			declared: []*unstructured.Unstructured{namespace("stays")},
			state: stateOf([]string{"1", "2", "3"}, namespace("going", uid("1"), deleting), namespace("waits", uid("2")),
				stored(t, "3", namespace("stays"))),
			want: []string{"?waits"},
		},
		"a protected namespace alone does not wait": {
			declared: []*unstructured.Unstructured{namespace("stays")},
			state: stateOf([]string{"1", "2"}, namespace("kept", uid("1"), protected),
				stored(t, "2", namespace("stays"))),
			want: []string{"pkept"},
		},
		"a protected namespace of others, and one that is being deleted, are not mentioned": {
			declared: []*unstructured.Unstructured{},
			state: stateOf([]string{"2"}, namespace("other", uid("1"), protected),
				namespace("going", uid("2"), protected, deleting)),
		},
		"a policyspace is deleted with its namespaces": {
			declared: []*unstructured.Unstructured{},
			state: stateOf([]string{"1", "2"}, space("s", uid("1")), namespace("last", uid("2"), inSpace("s")),
				namespace("going", uid("3"), inSpace("s"), deleting)),
			options: Options{Confirmed: true},
			want:    []string{"-namespace/last", "-policyspace.policy.nstpl.dev/s"},
		},
		"a policyspace is deleted after its namespaces have moved, and its children": {
			declared: []*unstructured.Unstructured{space("new"), space("child", below("new")),
				namespace("a", inSpace("new")), namespace("b", inSpace("child"))},
			state: stateOf([]string{"1", "2", "3", "4"}, space("old", uid("1")), space("child", uid("2"), below("old")),
				stored(t, "3", namespace("a", inSpace("old"))), stored(t, "4", namespace("b", inSpace("child")))),
			want: []string{
				"+policyspace.policy.nstpl.dev/new", "+policyspace.policy.nstpl.dev/child", "+namespace/a",
				"-policyspace.policy.nstpl.dev/old",
			},
		},
		"a policyspace stays while a declared namespace that is not managed is in it": {
			declared: []*unstructured.Unstructured{namespace("a", inSpace("new")), space("new")},
			state: stateOf([]string{"1", "2"}, space("old", uid("1")), namespace("a", uid("9"), inSpace("old")),
				stored(t, "2", space("new"))),
			want: []string{"uold", "!a"},
		},
		"a renamed tree keeps its namespaces": {
			declared: []*unstructured.Unstructured{space("bar"), namespace("n", ofTree("bar"))},
			state: stateOf([]string{"1", "2"}, space("foo", uid("1"), ofTree("foo")),
				stored(t, "2", namespace("n", ofTree("foo")))),
			options: Options{Tree: "bar"},
			want: []string{
				"+policyspace.policy.nstpl.dev/bar", "+namespace/n", "-policyspace.policy.nstpl.dev/foo",
			},
		},
		"a renamed tree keeps adopted namespaces": {
			declared: []*unstructured.Unstructured{space("bar"), namespace("n", ofTree("bar"))},
			state: stateOf([]string{"1"}, space("foo", uid("1"), ofTree("foo")),
				stored(t, "2", namespace("n", ofTree("foo"), annotated(v1alpha1.InTreeAnnotation, "true")))),
			options: Options{Tree: "bar"},
			want: []string{
				"+policyspace.policy.nstpl.dev/bar", "+namespace/n", "-policyspace.policy.nstpl.dev/foo",
			},
		},
		"the name of a tree says nothing about a namespace that has not consented": {
			declared: []*unstructured.Unstructured{space("bar"), namespace("n", ofTree("bar"))},
			state: stateOf([]string{"1"}, space("foo", uid("1"), ofTree("foo")),
				stored(t, "2", namespace("n", ofTree("foo")))),
			options: Options{Tree: "bar"},
			want:    []string{"+policyspace.policy.nstpl.dev/bar", "-policyspace.policy.nstpl.dev/foo", "!n"},
		},
		"the name of a directory is not that of a tree": {
			declared: []*unstructured.Unstructured{role("viewer", ofTree("foo"))},
			state: stateOf([]string{"1"}, space("bar", uid("1"), ofTree("foo"), below("foo")),
				stored(t, "2", role("viewer", ofTree("bar")))),
			want: []string{
				"-policyspace.policy.nstpl.dev/bar", "xclusterrole.rbac.authorization.k8s.io/viewer " +
					ofBar("clusterrole.rbac.authorization.k8s.io/viewer"),
			},
		},
		"a policyspace stays while a namespace of another tree is in it": {
			declared: []*unstructured.Unstructured{space("foo"), namespace("n", inTreeAt("foo", "foo"))},
			state: stateOf([]string{"1", "2"}, space("foo", uid("1"), ofTree("foo")), space("old", uid("2"), ofTree("foo")),
				stored(t, "3", namespace("n", inTreeAt("bar", "old")))),
			want: []string{"+policyspace.policy.nstpl.dev/foo", "uold", "xnamespace/n " + ofBar("namespace/n")},
		},
		"a namespace that another tree may declare is not deleted": {
			declared: []*unstructured.Unstructured{namespace("m", ofTree("foo"))},
			state: State{
				Live: stateOf(nil, stored(t, "1", namespace("n", ofTree("bar"))),
					stored(t, "2", namespace("m", ofTree("foo")))).Live,
				Created:   map[types.UID]bool{"1": true, "2": true},
				Undecided: map[ID]bool{{GroupKind: namespaceKind, Name: "n"}: true},
			},
			want: []string{"onamespace/n"},
		},
		"what another tree may declare is not deleted": {
			state: State{
				Live: stateOf(nil, stored(t, "1", role("left", ofTree("bar"))), stored(t, "2", template("left", ofTree("bar"))),
					stored(t, "3", role("gone", ofTree("foo")))).Live,
				Created: map[types.UID]bool{"1": true, "2": true, "3": true},
				Undecided: map[ID]bool{
					render.IDOf(role("left")): true, {GroupKind: templateKind, Name: "left"}: true,
				},
			},
			want: []string{
				"-clusterrole.rbac.authorization.k8s.io/gone", "oclusterrole.rbac.authorization.k8s.io/left",
				"onamespacetemplate.policy.nstpl.dev/left",
			},
		},
		"a namespace that another tree may declare is shown if it waits": {
			state: State{
				Live:      stateOf(nil, stored(t, "1", namespace("n", ofTree("bar")))).Live,
				Created:   map[types.UID]bool{"1": true},
				Undecided: map[ID]bool{{GroupKind: namespaceKind, Name: "n"}: true},
			},
			want: []string{"?n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.options.Tree == "" {
				test.options.Tree = "foo"
			}
			if test.options.Confirmed { // after the plan that asked
				test.state.Deletions = NewPlan(declare(t, test.declared...), test.state, Options{Tree: "foo"}).Deletions
			}
			plan := NewPlan(declare(t, test.declared...), test.state, test.options)
			var applied []*unstructured.Unstructured
			for _, change := range plan.Applies {
				applied = append(applied, change.Declared)
			}
			plan.KeepUsedSpaces(applied)
			require.Equal(t, test.want, summary(plan))
		})
	}
}

func TestDeletionOfNamespacesIsLimited(t *testing.T) {
	t.Parallel()
	number := func(n int32) *int32 { return &n }
	for _, test := range []struct {
		declared, undeclared int
		limit                *v1alpha1.DeletionLimit
		confirmed            bool
		deleted              int
	}{
		{declared: 5, undeclared: 1, deleted: 1},
		{declared: 5, undeclared: 2},
		{declared: 5, undeclared: 2, confirmed: true, deleted: 2},
		{declared: 0, undeclared: 1},
		{declared: 0, undeclared: 1, confirmed: true, deleted: 1},
		{declared: 0, undeclared: 3, limit: &v1alpha1.DeletionLimit{Namespaces: number(9), Percent: number(100)}},
		{declared: 17, undeclared: 3, limit: &v1alpha1.DeletionLimit{Namespaces: number(5)}},
		{declared: 27, undeclared: 3, limit: &v1alpha1.DeletionLimit{Namespaces: number(5)}, deleted: 3},
		{
			declared: 7, undeclared: 3, limit: &v1alpha1.DeletionLimit{Namespaces: number(5), Percent: number(50)},
			deleted: 3,
		},
		{declared: 5, undeclared: 1, limit: &v1alpha1.DeletionLimit{Namespaces: number(0)}},
	} {
		state := stateOf(nil)
		var declared []*unstructured.Unstructured
		for i := range test.declared + test.undeclared {
			id := fmt.Sprint("n", i)
			ns := namespace(id)
			if i < test.declared {
				declared = append(declared, ns)
			}
			live := stored(t, id, ns)
			state.Live[render.IDOf(live)], state.Created[live.GetUID()] = live, true
		}
		options := Options{Tree: "foo", Limit: test.limit}
		if test.confirmed {
			state.Deletions = NewPlan(declare(t, declared...), state, options).Deletions
			options.Confirmed = true
		}
		plan := NewPlan(declare(t, declared...), state, options)
		require.Len(t, plan.Deletes, test.deleted, "%+v", test)
		require.Len(t, plan.Waiting, test.undeclared-test.deleted, "%+v", test)
	}
}

func TestIsInForceIgnoresFieldsOfOthers(t *testing.T) {
	t.Parallel()
	declared := declare(t, namespace("n", ofTree("foo")))[0]
	live := declared.DeepCopy()
	require.True(t, IsInForce(declared, live))
	live.SetLabels(map[string]string{v1alpha1.TreeLabel: "foo", "team": "a"})
	live.Object["status"] = map[string]any{"phase": "Active"}
	require.True(t, IsInForce(declared, live))
	live.SetLabels(map[string]string{"team": "a"})
	require.False(t, IsInForce(declared, live))
}

// What an object waits for is not known all at once. It is changed after all others are created.
func TestAPartOfAChangeIsHeldLater(t *testing.T) {
	t.Parallel()
	plan := NewPlan(
		declare(t, template("gives", declares("c")), template("takes-a", declares("a")), template("takes-b", declares("b"))),
		stateOf([]string{"1"}, stored(t, "1", template("gives", ofTree("foo"), declares("c", "a", "b"))),
			template("takes-a", uid("3"), ofTree("bar"))),
		Options{Tree: "foo"})
	require.Equal(t, []string{
		"+namespacetemplate.policy.nstpl.dev/takes-b takes-b.b", "+namespacetemplate.policy.nstpl.dev/gives gives.c gives.a",
	}, summary(plan)[:2])
	require.Empty(t, plan.Hold(plan.Applies[1:], plan.Applies[:1]), "it keeps all that it has")
}
