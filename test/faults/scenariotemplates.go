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
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// scenarios returns all scenarios. Every new feature of the operator or of nstpl-sync gets one here.
func scenarios() []scenario {
	return append([]scenario{
		populate(), edit(), redeclare(), remove(), relabel(), leave(), adopt(), authoritative(), recreate(), churn(),
		drift(), broken(), rollout(), stopped(),
		sources(), metadata(), exemption(), protection(),
		move(), moveAbove(), rename(), uids(), accounts(), quota(), counting(), expiry(), memory(),
	}, syncScenarios()...)
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

// unownedFields is an object with a field whose owner the API server does not record.
const unownedFields = `
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot}
secrets: []
`

// binding returns a RoleBinding that binds a role to the run's user.
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

// fixed returns an immutable object that may be replaced.
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
			r.createTemplate("first", configMap+binding("readers", "view")+unownedFields)
			r.createTemplate("second", limits)
		},
		do: func(r *run) { r.createNamespaces() },
	}
}

// edit: a template changes. Some objects are replaced, one is deleted and one is created.
func edit() scenario {
	return scenario{
		name: "edit", deletes: []string{"readers", "fixed", "goes"},
		before: func(r *run) {
			r.createTemplate("t", configMap+binding("readers", "view")+fixed("1")+plain("goes"))
			r.createNamespaces()
		},
		do: func(r *run) { r.updateTemplate("t", binding("readers", "edit")+fixed("2")+configMap+plain("comes")) },
	}
}

// redeclare: objects are removed from a template, and added again after their deletion.
func redeclare() scenario {
	names := []string{"a", "b", "c", "d", "e", "f"}
	return scenario{
		name: "again", deletes: []string{""},
		before: func(r *run) {
			r.createTemplate("t", plain(names...))
			r.createNamespaces()
		},
		do: func(r *run) {
			r.updateTemplate("t", plain("a"))
			for _, name := range names[1:] {
				r.waitAbsent(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
			r.updateTemplate("t", plain(names...))
		},
	}
}

// remove: a template and all its objects are deleted.
func remove() scenario {
	return scenario{
		name: "delete", deletes: []string{"settings", "readers", "limits"},
		before: func(r *run) {
			r.createTemplate("t", configMap+binding("readers", "view")+limits, deletesObjects)
			r.createTemplate("stays", plain("stays"))
			r.createNamespaces()
		},
		do: func(r *run) { r.deleteTemplate("t") },
	}
}

// relabel: namespaces move from one template to another, which gives the same user access.
func relabel() scenario {
	return scenario{
		name: "relabel", observe: (*run).watchAccess, deletes: []string{"-a"},
		before: func(r *run) {
			r.createTemplate("a", binding("of-a", "view")+plain("only-a"), r.withStage("a"), deletesObjects)
			r.createTemplate("b", binding("of-b", "view")+plain("only-b"), r.withStage("b"), deletesObjects)
			r.createNamespaces(stageLabel, "a")
		},
		do: func(r *run) { r.label(stageLabel, "b") },
	}
}

// leave: the last namespaces of a template are no longer selected, by it or another.
func leave() scenario {
	return scenario{
		name: "leave", deletes: []string{"settings", "readers"},
		before: func(r *run) {
			r.createTemplate("t", configMap+binding("readers", "view"), r.withStage("a"), deletesObjects)
			r.createNamespaces(stageLabel, "a")
		},
		do: func(r *run) { r.label(stageLabel, nil) },
	}
}

// adopt: declared objects existed before, created by others. Later they are no longer declared, and stay.
func adopt() scenario {
	return scenario{
		name: "adopt", deletes: []string{"ours"},
		before: func(r *run) {
			r.createNamespaces()
			r.createForeignObjects(`
{apiVersion: v1, kind: ConfigMap, metadata: {name: other-keys}, data: {theirs: "1"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: same}, data: {value: "1"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: conflict}, data: {value: theirs}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}` + binding("bound", "view"))
		},
		do: func(r *run) {
			r.createTemplate("t",
				plain("other-keys", "same", "conflict", "ours")+binding("bound", "view")+unownedFields,
				deletesObjects)
		},
		then: func(r *run) { r.updateTemplate("t", configMap) },
	}
}

// authoritative: only declared objects of one kind exist; objects of other kinds stay.
func authoritative() scenario {
	return scenario{
		name: "authoritative", deletes: []string{undeclared},
		before: func(r *run) {
			r.createNamespaces()
			r.createForeignObjects(plain("theirs") + binding("undeclared-1", "view") + binding("undeclared-2", "edit") +
				binding("declared", "view"))
		},
		do: func(r *run) {
			r.createTemplate("t", binding("declared", "view")+plain("ours"), deletesObjects,
				func(template *v1alpha1.NamespaceTemplate) {
					template.Spec.Authoritative = []v1alpha1.GroupKind{{Group: rbacv1.GroupName, Kind: "RoleBinding"}}
				})
		},
	}
}

// recreate: namespaces are deleted and created again with the same names. No object of the earlier ones appears in
// them.
func recreate() scenario {
	return scenario{
		name: "recreate",
		before: func(r *run) {
			r.createTemplate("t", configMap+binding("readers", "view"))
			r.createNamespaces()
			r.createForeignObjects(plain("of-the-earlier"))
		},
		do: func(r *run) {
			for _, name := range r.namespaceNames() {
				r.delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
			for _, name := range r.namespaceNames() {
				r.waitUntilRight("namespace "+name+" exists", settleTimeout, func(ctx context.Context) []string {
					if err := r.client.Get(ctx, client.ObjectKey{Name: name},
						&corev1.Namespace{}); !apierrors.IsNotFound(err) {
						return []string{fmt.Sprint("it exists: ", err)}
					}
					return nil
				})
			}
			r.createNamespaces()
		},
	}
}

// churn: a template is edited and namespaces are relabeled faster than the operator reconciles.
func churn() scenario {
	return scenario{
		name: "churn", deletes: []string{""},
		before: func(r *run) {
			r.createTemplate("a", configMap, r.withStage("a"), deletesObjects)
			r.createTemplate("b", plain("b"), r.withStage("b"), deletesObjects)
			r.createNamespaces(stageLabel, "a")
		},
		do: func(r *run) {
			for i := range 6 {
				r.updateTemplate("a",
					configMap+plain(fmt.Sprint("step", i))+binding("readers", []string{"view", "edit"}[i%2]))
				r.label(stageLabel, []string{"b", "a"}[i%2])
			}
		},
	}
}

// drift: others change one populated object and delete another. The drift is corrected or reported.
func drift() scenario {
	return scenario{
		name: "drift", drifts: true,
		before: func(r *run) {
			r.createTemplate("t", configMap+plain("deleted", "left"))
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

// inWaves has a template rolled out to the canaries first, and then to one namespace at a time.
func inWaves(template *v1alpha1.NamespaceTemplate) {
	canaries := &metav1.LabelSelector{MatchLabels: map[string]string{stageLabel: "canary"}}
	template.Spec.Rollout = &v1alpha1.Rollout{
		Waves: []v1alpha1.Wave{{Selector: canaries}}, MaxUnavailable: new(intstr.FromInt32(1)),
	}
}

func (r *run) pauseRollout(short string, paused bool) {
	r.patchTemplate(short, map[string]any{"rollout": map[string]any{"paused": paused}})
}

// rollout: a rollout in waves is superseded, paused and resumed, while namespaces are created and change their wave.
// Each revision grants access by another RoleBinding.
func rollout() scenario {
	return scenario{
		name: "rollout", observe: (*run).watchAccess, deletes: []string{"of-"},
		before: func(r *run) {
			r.createTemplate("t", configMap+binding("of-1", "view"), inWaves)
			r.createNamespaces()
		},
		do: func(r *run) {
			names := r.namespaceNames()
			r.labelNamespace(names[0], stageLabel, "canary")
			r.updateTemplate("t", configMap+binding("of-2", "view"))
			r.labelNamespace(names[len(names)-1], stageLabel, "canary")
			r.pauseRollout("t", true)
			r.updateTemplate("t", configMap+binding("of-3", "view"))
			r.labelNamespace(names[0], stageLabel, nil)
			r.create(r.namespace(r.name("late")))
			r.pauseRollout("t", false)
		},
	}
}

// stopped: a change fails in the first namespaces that it reaches, and is taken back.
func stopped() scenario {
	fixed := func(value string) string {
		return "\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: fixed}, immutable: true, data: {value: " + value +
			"}}\n"
	}
	return scenario{
		name: "stopped rollout", deletes: []string{"comes"},
		before: func(r *run) {
			r.createTemplate("t", configMap+fixed("one"), inWaves)
			r.createNamespaces()
		},
		do: func(r *run) {
			r.updateTemplate("t", configMap+fixed("two")+plain("comes"))
			r.updateTemplate("t", configMap+fixed("one"))
		},
	}
}

// broken: while one kind is unavailable, namespaces without it are populated, and a template that declares it is not
// deleted.
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
				r.createTemplate(short, strings.ReplaceAll(limits, "limits}", short+"}"), r.withStage("limited"),
					deletesObjects)
			}
			r.createTemplate("others", configMap)
			r.createNamespaces(stageLabel, "limited")
		},
		do: func(r *run) {
			r.deleteTemplate("goes")
			r.create(r.namespace(r.name("other")))
			r.waitUntilRight("a namespace without the unavailable kind is not populated", soon,
				func(ctx context.Context) []string {
					ns := &corev1.Namespace{}
					if err := r.client.Get(ctx, client.ObjectKey{Name: r.name("other")}, ns); err != nil {
						return []string{err.Error()}
					}
					return r.namespaceProblems(ns, true)
				})
		},
	}
}
