package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Labels of Pod Security Admission.
const (
	enforceLabel = "pod-security.kubernetes.io/enforce"
	auditLabel   = "pod-security.kubernetes.io/audit"
)

// metadata: a template sets labels of namespaces, of which they had one before, changes them, drops them and sets them
// again. Another template has objects with the value of a protected label, which changes.
func metadata() scenario {
	return scenario{
		name: "metadata", deletes: []string{"of-a"},
		before: func(r *run) {
			r.protectLabel("tier")
			r.createTemplate("levels", configMap, func(template *v1alpha1.NamespaceTemplate) {
				template.Spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{Labels: levels("baseline")}
			})
			r.createTemplate("values", `
{apiVersion: v1, kind: ConfigMap, metadata: {name: tier}, data: {value: $(LABEL:RUN-tier)}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: of-$(LABEL:RUN-tier)}}`)
			r.createNamespaces(auditLabel, "baseline", r.name("tier"), "a")
		},
		do: func(r *run) {
			r.setNamespaceLabels("levels", levels("restricted"))
			r.label(r.name("tier"), "b")
			r.waitUntilRight("labels are missing", faultyTimeout, func(ctx context.Context) []string {
				return r.differentLabels(ctx, enforceLabel, "restricted")
			})
			r.setNamespaceLabels("levels", nil)
		},
		then: func(r *run) {
			// The label that existed before stays, and the other one is removed.
			r.waitUntilRight("labels were not removed", settleTimeout, func(ctx context.Context) []string {
				return append(r.differentLabels(ctx, enforceLabel, ""), r.differentLabels(ctx, auditLabel, "restricted")...)
			})
			r.setNamespaceLabels("levels", levels("baseline"))
		},
		check: func(r *run) []string {
			r.waitConfigMap("of-b", r.namespaceNames())
			return slices.Concat(r.differentLabels(r.ctx, enforceLabel, "baseline"),
				r.differentLabels(r.ctx, auditLabel, "baseline"))
		},
	}
}

func levels(level string) map[string]string {
	return map[string]string{enforceLabel: level, auditLabel: level}
}

// protectLabel protects a label, which administrators may set.
func (r *run) protectLabel(short string) {
	name := r.name(short)
	r.create(&rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{name}, Resources: []string{"labels"}, Verbs: []string{"set"},
		}},
	})
	r.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: v1alpha1.ClusterRoleKind, Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:masters"}},
	})
	r.createForAll(&v1alpha1.ClusterProtectedAttribute{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		AttributeRule: v1alpha1.AttributeRule{
			AttributeKind: v1alpha1.LabelAttribute, AttributeName: name,
			RoleRef: v1alpha1.RoleReference{Kind: v1alpha1.ClusterRoleKind, Name: name},
		},
	})
}

// setNamespaceLabels has a template set other labels of namespaces; nil removes all.
func (r *run) setNamespaceLabels(short string, labels map[string]string) {
	var metadata any
	if labels != nil {
		metadata = map[string]any{"labels": labels}
	}
	r.patchTemplate(short, map[string]any{"namespaceMetadata": metadata})
}

// differentLabels returns the namespaces whose label has another value. An empty value stands for no label.
func (r *run) differentLabels(ctx context.Context, key, value string) []string {
	return r.inEachNamespace(ctx, func(ns *corev1.Namespace) string {
		if ns.Labels[key] == value {
			return ""
		}
		return fmt.Sprintf("namespace %s has %s=%q instead of %q", ns.Name, key, ns.Labels[key], value)
	})
}

// past is a time at which namespaces have expired.
const past = "2020-01-01T00:00:00Z"

// expiry: namespaces of a policyspace with self-service expire. Exactly those are deleted whose users have consented.
func expiry() scenario {
	consent := map[string]string{v1alpha1.DeleteWhenExpiredAnnotation: "true"}
	namespaces := map[string]map[string]string{
		consents: consent, "later-" + consents: nil, "silent": nil, "withdrawn": consent, "never": consent,
		"lives":   consent,
		"guarded": {v1alpha1.DeleteWhenExpiredAnnotation: "true", v1alpha1.DeletionProtectionAnnotation: "true"},
	}
	return scenario{
		name: "expiry", deletes: []string{consents},
		before: func(r *run) {
			space := &v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{Name: r.name("service")}}
			space.Spec.SelfService = &v1alpha1.SelfService{
				NamePattern: "*", MaxAge: &metav1.Duration{Duration: 1000 * time.Hour},
			}
			r.create(space)
			for short, annotations := range namespaces {
				ns := r.namespace(r.name(short), v1alpha1.PolicySpaceLabel, space.Name)
				ns.Annotations = annotations
				r.create(ns)
			}
			r.waitUntilRight("namespaces have no end", settleTimeout, r.namespacesWithoutEnd)
		},
		do: func(r *run) {
			r.annotateNamespace("withdrawn", v1alpha1.DeleteWhenExpiredAnnotation, nil)
			for short := range namespaces {
				switch short {
				case "lives":
				case "never":
					r.annotateNamespace(short, v1alpha1.ExpiresAnnotation, v1alpha1.ExpiresNever)
				default:
					r.annotateNamespace(short, v1alpha1.ExpiresAnnotation, past)
				}
			}
			r.annotateNamespace("later-"+consents, v1alpha1.DeleteWhenExpiredAnnotation, "true")
		},
		until: func(ctx context.Context, r *run) []string {
			var all []string
			for short := range namespaces {
				err := r.client.Get(ctx, client.ObjectKey{Name: r.name(short)}, &corev1.Namespace{})
				if isGone := apierrors.IsNotFound(err); isGone != strings.Contains(short, consents) {
					all = append(all, fmt.Sprintf("namespace %s is deleted: %t (%v)", short, isGone, err))
				}
			}
			return all
		},
	}
}

// namespacesWithoutEnd returns the namespaces that the operator has given no end.
func (r *run) namespacesWithoutEnd(ctx context.Context) []string {
	list := &corev1.NamespaceList{}
	if err := r.client.List(ctx, list, client.MatchingLabels{runLabel: r.id}); err != nil {
		return []string{err.Error()}
	}
	var all []string
	for i := range list.Items {
		if list.Items[i].Annotations[v1alpha1.ExpiresAnnotation] == "" {
			all = append(all, list.Items[i].Name)
		}
	}
	return all
}

func (r *run) annotateNamespace(short, key string, value any) {
	r.annotateUnlessGone(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.name(short)}}, key, value)
}

// namespaceLimit is the limit on namespaces in the scenario counting.
const namespaceLimit = 6

// counting: many clients create namespaces in a policyspace at once, move namespaces into it and delete some of them
// meanwhile, twice. Neither its limit on namespaces nor the lower one of the policyspace above is ever exceeded.
func counting() scenario {
	limit := func(namespaces int64) corev1.ResourceList {
		return corev1.ResourceList{"count/namespaces": *resource.NewQuantity(namespaces, resource.DecimalSI)}
	}
	return scenario{
		name: "counting", unlike: true,
		before: func(r *run) {
			r.createSpace("limited", "", limit(namespaceLimit))
			r.createSpace("team", "limited", limit(namespaceLimit+2))
			r.createNamespaces()
			r.waitNamespacesCounted(settleTimeout)
		},
		do: func(r *run) {
			r.history = newHistory()
			r.changeNamespacesConcurrently(0, r.moveInAndOut)
			r.waitNamespacesCounted(faultyTimeout)
			r.changeNamespacesConcurrently(1, nil)
		},
		until: func(ctx context.Context, r *run) []string { return r.uncountedNamespaces(ctx) },
		check: func(r *run) []string {
			return append(r.history.check(namespaceLimit, r.namespacesInTeam()), r.fillWithNamespaces()...)
		},
	}
}

func (r *run) waitNamespacesCounted(timeout time.Duration) {
	r.waitUntilRight("namespaces are not counted", timeout, r.uncountedNamespaces)
}

// uncountedNamespaces returns the policyspaces that are not Ready or count another number of namespaces than exist.
func (r *run) uncountedNamespaces(ctx context.Context) []string {
	exist := len(r.namespacesInTeam())
	var all []string
	for _, short := range []string{"limited", "team"} {
		space := &v1alpha1.PolicySpace{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: r.name(short)}, space); err != nil {
			return []string{err.Error()}
		}
		ready := meta.FindStatusCondition(space.Status.Conditions, v1alpha1.PolicySpaceReady)
		if ready == nil || ready.Status != metav1.ConditionTrue ||
			space.Status.ObservedGeneration != space.Generation || int(space.Status.Namespaces) != exist {
			all = append(all, fmt.Sprintf("policyspace %s is not Ready with %d namespaces: %+v", short, exist, space.Status))
		}
	}
	return all
}

// namespacesInTeam returns the names of the namespaces in policyspace team.
func (r *run) namespacesInTeam() map[string]string {
	names := map[string]string{}
	r.retryUntilDone("list namespaces", func(ctx context.Context) error {
		clear(names)
		list := &corev1.NamespaceList{}
		err := r.client.List(ctx, list, client.MatchingLabels{v1alpha1.PolicySpaceLabel: r.name("team")})
		for i := range list.Items {
			names[list.Items[i].Name] = list.Items[i].Name
		}
		return err
	})
	return names
}

// changeNamespacesConcurrently has several clients create two namespaces each and delete the first one, and further
// clients do something with one of the run's namespaces.
func (r *run) changeNamespacesConcurrently(wave int, further func(number int, name string)) {
	const clients = 6
	var all sync.WaitGroup
	for number := range clients {
		all.Go(func() {
			first := r.teamNamespace(fmt.Sprintf("c-%d-%d-first", wave, number))
			if r.createCounted(number, first) == accepted {
				r.deleteCounted(number, first.Name)
			}
			r.createCounted(number, r.teamNamespace(fmt.Sprintf("c-%d-%d-second", wave, number)))
		})
	}
	if further != nil {
		for i, name := range r.namespaceNames() {
			all.Go(func() { further(clients+i, name) })
		}
	}
	all.Wait()
}

func (r *run) teamNamespace(short string) *corev1.Namespace {
	return r.namespace(r.name(short), v1alpha1.PolicySpaceLabel, r.name("team"))
}

// createCounted creates a namespace, and records that.
func (r *run) createCounted(number int, ns *corev1.Namespace) (came outcome) {
	r.history.record(number, create, ns.Name, func() outcome {
		came = r.outcomeOf(r.client.Create(r.ctx, ns))
		return came
	})
	return came
}

// deleteCounted deletes a namespace, and records when it was gone: until then it counts.
func (r *run) deleteCounted(number int, name string) {
	existed := r.history.now()
	begin := time.Now()
	for ; r.ctx.Err() == nil && time.Since(begin) < settleTimeout; pause(r.ctx, 20*time.Millisecond) {
		asked, ns := r.history.now(), &corev1.Namespace{}
		err := r.client.Get(r.ctx, client.ObjectKey{Name: name}, ns)
		switch {
		case apierrors.IsNotFound(err):
			r.history.add(done{number, destroy, name, accepted, existed, r.history.now()})
			return
		case err != nil:
			continue
		}
		existed = asked
		if ns.DeletionTimestamp == nil {
			_ = r.client.Delete(r.ctx, ns) // and again if that fails
		}
	}
}

// moveInAndOut moves a namespace into policyspace team and, if that is allowed, out of it again.
func (r *run) moveInAndOut(number int, name string) {
	move := func(space any) error {
		return r.mergeInto(r.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metadataChange("labels", v1alpha1.PolicySpaceLabel, space))
	}
	var came outcome
	r.history.record(number, create, name, func() outcome {
		came = r.outcomeOf(move(r.name("team")))
		return came
	})
	if came != accepted {
		return
	}
	r.history.record(number, destroy, name, func() outcome {
		for begin := time.Now(); r.ctx.Err() == nil && time.Since(begin) < settleTimeout; {
			if move(nil) == nil {
				return accepted
			}
			pause(r.ctx, 20*time.Millisecond)
		}
		return unknown
	})
}

// fillWithNamespaces creates namespaces until they are denied.
func (r *run) fillWithNamespaces() []string {
	return r.fill(namespaceLimit, func() int { return len(r.namespacesInTeam()) }, func(i int) client.Object {
		return r.teamNamespace(fmt.Sprint("last-", i))
	})
}
