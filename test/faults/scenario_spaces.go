package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// placed makes policyspaces root, a and b, of which each gives the run's user the same access, and puts the namespaces
// into one.
func (r *run) placed(in string, others ...string) {
	r.space("root", "", nil)
	for _, space := range []string{"a", "b"} {
		r.space(space, "root", nil)
		r.declare(space, binding("of-"+space, "view")+plain("only-"+space), r.below(space), deleting)
	}
	for _, other := range others {
		r.space(other, "a", nil)
	}
	r.createNamespaces(v1alpha1.PolicySpaceLabel, r.name(in))
	r.placedIn(in)
}

// placedIn waits until the namespaces are in a policyspace, by the labels that the operator keeps.
func (r *run) placedIn(space string) {
	r.await("namespaces are to be in policyspace "+space, patience, func(ctx context.Context) []string {
		return inOnly(space, "none")(ctx, r)
	})
}

// inOnly returns which namespaces are not in one policyspace, or are in the other, by the labels that the operator
// keeps.
func inOnly(space, other string) func(context.Context, *run) []string {
	return func(ctx context.Context, r *run) []string {
		var elsewhere []string
		for _, name := range r.namespaceNames() {
			ns := &corev1.Namespace{}
			if err := r.client.Get(ctx, client.ObjectKey{Name: name}, ns); err != nil {
				return []string{err.Error()}
			}
			if ns.Labels[r.name(space)+v1alpha1.DepthLabelSuffix] == "" ||
				ns.Labels[r.name(other)+v1alpha1.DepthLabelSuffix] != "" {
				elsewhere = append(elsewhere, fmt.Sprintf("%s is not in %s, or in %s", name, space, other))
			}
		}
		return elsewhere
	}
}

// move: namespaces go from one policyspace to another.
func move() scenario {
	return scenario{
		name: "move", observe: (*run).watchAccess, deletes: []string{"-a"}, until: inOnly("b", "a"),
		before: func(r *run) { r.placed("a") },
		do:     func(r *run) { r.label(v1alpha1.PolicySpaceLabel, r.name("b")) },
	}
}

// moveAbove: the policyspace that namespaces are in gets another parent.
func moveAbove() scenario {
	return scenario{
		name: "move above", observe: (*run).watchAccess, deletes: []string{"-a"}, until: inOnly("b", "a"),
		before: func(r *run) { r.placed("team", "team") },
		do:     func(r *run) { r.parent("team", "b") },
	}
}

// rename: a policyspace and its template get another name, as a tool does that knows no renaming: it creates, relabels
// and deletes.
func rename() scenario {
	return scenario{
		name: "rename", observe: (*run).watchAccess, deletes: []string{"of-old"}, until: inOnly("new", "old"),
		before: func(r *run) {
			r.space("root", "", nil)
			r.space("old", "root", nil)
			r.declare("old", binding("of-old", "view"), r.below("old"), deleting)
			r.declare("new", binding("of-new", "view"), r.below("new"), deleting)
			r.createNamespaces(v1alpha1.PolicySpaceLabel, r.name("old"))
			r.placedIn("old")
		},
		do: func(r *run) {
			r.space("new", "root", nil)
			r.label(v1alpha1.PolicySpaceLabel, r.name("new"))
			r.undeclare("old")
			r.deleteSpace("old")
		},
	}
}
