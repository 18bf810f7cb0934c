package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// createSpacesAndMove creates the policyspaces root, a and b, of which a and b give the run's user the same access, and
// moves the namespaces into one of them.
func (r *run) createSpacesAndMove(in string, others ...string) {
	r.createSpace("root", "", nil)
	for _, space := range []string{"a", "b"} {
		r.createSpace(space, "root", nil)
		r.createTemplate(space, binding("of-"+space, "view")+plain("only-"+space), r.inSpace(space), deletesObjects)
	}
	for _, other := range others {
		r.createSpace(other, "a", nil)
	}
	r.createNamespaces(v1alpha1.PolicySpaceLabel, r.name(in))
	r.waitInSpace(in)
}

// waitInSpace waits until the namespaces have the depth label of a policyspace.
func (r *run) waitInSpace(space string) {
	r.waitUntilRight("namespaces are not in policyspace "+space, settleTimeout, func(ctx context.Context) []string {
		return inOnly(space, "none")(ctx, r)
	})
}

// inOnly returns a check that namespaces have the depth label of one policyspace and not of the other.
func inOnly(space, other string) func(context.Context, *run) []string {
	return func(ctx context.Context, r *run) []string {
		return r.inEachNamespace(ctx, func(ns *corev1.Namespace) string {
			if ns.Labels[r.name(space)+v1alpha1.DepthLabelSuffix] == "" ||
				ns.Labels[r.name(other)+v1alpha1.DepthLabelSuffix] != "" {
				return fmt.Sprintf("%s is not in %s, or in %s", ns.Name, space, other)
			}
			return ""
		})
	}
}

// move: namespaces move from one policyspace to another.
func move() scenario {
	return scenario{
		name: "move", observe: (*run).watchAccess, deletes: []string{"-a"}, until: inOnly("b", "a"),
		before: func(r *run) { r.createSpacesAndMove("a") },
		do:     func(r *run) { r.label(v1alpha1.PolicySpaceLabel, r.name("b")) },
	}
}

// moveAbove: the policyspace of the namespaces gets another parent.
func moveAbove() scenario {
	return scenario{
		name: "move above", observe: (*run).watchAccess, deletes: []string{"-a"}, until: inOnly("b", "a"),
		before: func(r *run) { r.createSpacesAndMove("team", "team") },
		do:     func(r *run) { r.setParent("team", "b") },
	}
}

// rename: a policyspace and its template are renamed as a tool without renames does it: by creating, relabeling and
// deleting.
func rename() scenario {
	return scenario{
		name: "rename", observe: (*run).watchAccess, deletes: []string{"of-old"}, until: inOnly("new", "old"),
		before: func(r *run) {
			r.createSpace("root", "", nil)
			r.createSpace("old", "root", nil)
			r.createTemplate("old", binding("of-old", "view"), r.inSpace("old"), deletesObjects)
			r.createTemplate("new", binding("of-new", "view"), r.inSpace("new"), deletesObjects)
			r.createNamespaces(v1alpha1.PolicySpaceLabel, r.name("old"))
			r.waitInSpace("old")
		},
		do: func(r *run) {
			r.createSpace("new", "root", nil)
			r.label(v1alpha1.PolicySpaceLabel, r.name("new"))
			r.deleteTemplate("old")
			r.deleteSpace("old")
		},
	}
}
