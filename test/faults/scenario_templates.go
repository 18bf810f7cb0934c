package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// scenarios are all that the campaign has. What gets into the project gets a scenario here: gradual rollouts and Git
// sync are still to come.
func scenarios() []scenario {
	return []scenario{
		populate(), edit(), again(), remove(), relabel(), leave(), adopt(), authoritative(), recreate(), churn(),
		drift(), broken(),
		move(), moveAbove(), rename(), uids(), quota(), memory(),
	}
}

const configMap = `
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {namespace: $(NAMESPACE), value: "1"}
`

const limits = `
---
apiVersion: v1
kind: LimitRange
metadata: {name: limits}
spec: {limits: [{type: Container, default: {memory: 1Gi}}]}
`

// unownedFields has a field that the API server keeps no owner of.
const unownedFields = `
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot}
secrets: []
`

// binding gives the run's user a role.
func binding(name, role string) string {
	return `
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: ` + name + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ` + role + `}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: RUN-user}]
`
}

// fixed can't be changed in place, and may be replaced.
func fixed(value string) string {
	return `
---
apiVersion: v1
kind: ConfigMap
metadata: {name: fixed, annotations: {policy/replace: "true"}}
immutable: true
data: {value: "` + value + `"}
`
}

func plain(names ...string) string {
	var text strings.Builder
	for _, name := range names {
		fmt.Fprintf(&text, `
---
apiVersion: v1
kind: ConfigMap
metadata: {name: %s}
data: {value: "1"}
`, name)
	}
	return text.String()
}

// populate: namespaces are created that templates select.
func populate() scenario {
	return scenario{
		name: "populate",
		before: func(r *run) {
			r.declare("first", configMap+binding("readers", "view")+unownedFields)
			r.declare("second", limits)
		},
		do: func(r *run) { r.createNamespaces() },
	}
}

// edit: a template changes; some objects are replaced, one goes and one comes.
func edit() scenario {
	return scenario{
		name: "edit", deletes: []string{"readers", "fixed", "goes"},
		before: func(r *run) {
			r.declare("t", configMap+binding("readers", "view")+fixed("1")+plain("goes"))
			r.createNamespaces()
		},
		do: func(r *run) { r.edit("t", binding("readers", "edit")+fixed("2")+configMap+plain("comes")) },
	}
}

// again: objects are taken out of a template, and put back when they are gone.
func again() scenario {
	names := []string{"a", "b", "c", "d", "e", "f"}
	return scenario{
		name: "again", deletes: []string{""},
		before: func(r *run) {
			r.declare("t", plain(names...))
			r.createNamespaces()
		},
		do: func(r *run) {
			r.edit("t", plain("a"))
			for _, name := range names[1:] {
				r.lacks(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
			r.edit("t", plain(names...))
		},
	}
}

// remove: a template is deleted, and all that it declares with it.
func remove() scenario {
	return scenario{
		name: "delete", deletes: []string{"settings", "readers", "limits"},
		before: func(r *run) {
			r.declare("t", configMap+binding("readers", "view")+limits, deleting)
			r.declare("stays", plain("stays"))
			r.createNamespaces()
		},
		do: func(r *run) { r.undeclare("t") },
	}
}

// relabel: namespaces go from one template to another, which gives the same user access.
func relabel() scenario {
	return scenario{
		name: "relabel", observe: (*run).watchAccess, deletes: []string{"-a"},
		before: func(r *run) {
			r.declare("a", binding("of-a", "view")+plain("only-a"), r.at("a"), deleting)
			r.declare("b", binding("of-b", "view")+plain("only-b"), r.at("b"), deleting)
			r.createNamespaces(stageLabel, "a")
		},
		do: func(r *run) { r.label(stageLabel, "b") },
	}
}

// leave: the last namespaces of a template leave it, and none other takes them.
func leave() scenario {
	return scenario{
		name: "leave", deletes: []string{"settings", "readers"},
		before: func(r *run) {
			r.declare("t", configMap+binding("readers", "view"), r.at("a"), deleting)
			r.createNamespaces(stageLabel, "a")
		},
		do: func(r *run) { r.label(stageLabel, nil) },
	}
}

// adopt: what a template declares was there before, made by others. Later it is not declared any more, and stays.
func adopt() scenario {
	return scenario{
		name: "adopt", deletes: []string{"ours"},
		before: func(r *run) {
			r.createNamespaces()
			r.foreign(`
{apiVersion: v1, kind: ConfigMap, metadata: {name: other-keys}, data: {theirs: "1"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: same}, data: {value: "1"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: conflict}, data: {value: theirs}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}` + binding("bound", "view"))
		},
		do: func(r *run) {
			r.declare("t", plain("other-keys", "same", "conflict", "ours")+binding("bound", "view")+unownedFields,
				deleting)
		},
		then: func(r *run) { r.edit("t", configMap) },
	}
}

// authoritative: of a kind there is what templates declare and nothing else; of others, all that anybody made stays.
func authoritative() scenario {
	return scenario{
		name: "authoritative", deletes: []string{undeclared},
		before: func(r *run) {
			r.createNamespaces()
			r.foreign(plain("theirs") + binding("undeclared-1", "view") + binding("undeclared-2", "edit") +
				binding("declared", "view"))
		},
		do: func(r *run) {
			r.declare("t", binding("declared", "view")+plain("ours"), deleting,
				func(template *v1alpha1.NamespaceTemplate) {
					template.Spec.Authoritative = []v1alpha1.GroupKind{{Group: rbacv1.GroupName, Kind: "RoleBinding"}}
				})
		},
	}
}

// recreate: namespaces are deleted and come back by the same names. Nothing of the earlier ones turns up.
func recreate() scenario {
	return scenario{
		name: "recreate",
		before: func(r *run) {
			r.declare("t", configMap+binding("readers", "view"))
			r.createNamespaces()
			r.foreign(plain("of-the-earlier"))
		},
		do: func(r *run) {
			for _, name := range r.namespaceNames() {
				r.delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
			for _, name := range r.namespaceNames() {
				r.await("namespace "+name+" is to be gone", patience, func(ctx context.Context) []string {
					if err := r.client.Get(ctx, client.ObjectKey{Name: name},
						&corev1.Namespace{}); !apierrors.IsNotFound(err) {
						return []string{fmt.Sprint("it is there: ", err)}
					}
					return nil
				})
			}
			r.createNamespaces()
		},
	}
}

// churn: a template is edited and namespaces change sides faster than the operator follows.
func churn() scenario {
	return scenario{
		name: "churn", deletes: []string{""},
		before: func(r *run) {
			r.declare("a", configMap, r.at("a"), deleting)
			r.declare("b", plain("b"), r.at("b"), deleting)
			r.createNamespaces(stageLabel, "a")
		},
		do: func(r *run) {
			for i := range 6 {
				r.edit("a", configMap+plain(fmt.Sprint("step", i))+binding("readers", []string{"view", "edit"}[i%2]))
				r.label(stageLabel, []string{"b", "a"}[i%2])
			}
		},
	}
}

// drift: others change one populated object and delete another. It is put right, or reported.
func drift() scenario {
	return scenario{
		name: "drift", drifts: true,
		before: func(r *run) {
			r.declare("t", configMap+plain("deleted", "left"))
			r.createNamespaces()
		},
		do: func(r *run) {
			for _, name := range r.namespaceNames() {
				r.delete(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "deleted"}})
				r.patch(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "settings"}},
					map[string]any{"data": map[string]any{"value": "changed"}})
			}
		},
	}
}

// broken: while one kind can't be reached, namespaces without it are populated, and a template that has it is not let
// go.
func broken() scenario {
	const soon = 25 * time.Second
	return scenario{
		name: "broken kind", deletes: []string{"goes"},
		own: []fault{
			{name: "a kind answers 503", refused: "limitranges", during: restarted},
			{name: "a kind does not answer", hung: "limitranges", during: restarted},
		},
		before: func(r *run) {
			for _, short := range []string{"a", "b", "goes"} {
				r.declare(short, strings.ReplaceAll(limits, "limits}", short+"}"), r.at("limited"), deleting)
			}
			r.declare("others", configMap)
			r.createNamespaces(stageLabel, "limited")
		},
		do: func(r *run) {
			r.undeclare("goes")
			r.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: r.name("other"), Labels: map[string]string{runLabel: r.id},
			}})
			r.await("a namespace without the broken kind is to be populated", soon, func(ctx context.Context) []string {
				ns := &corev1.Namespace{}
				if err := r.client.Get(ctx, client.ObjectKey{Name: r.name("other")}, ns); err != nil {
					return []string{err.Error()}
				}
				return r.wrongNamespace(ns, true)
			})
		},
	}
}
