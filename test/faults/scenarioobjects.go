package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/audit"
)

// sourceObjects are a ConfigMap and a Secret to copy, and the right of the operator to read them.
const sourceObjects = `
---
apiVersion: v1
kind: Secret
metadata: {name: pull}
stringData: {value: "1"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: sources}
rules:
- {apiGroups: [""], resources: [configmaps], resourceNames: [ca], verbs: [get]}
- {apiGroups: [""], resources: [secrets], resourceNames: [pull], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: sources}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: sources}
subjects: [{kind: ServiceAccount, name: ` + v1alpha1.OperatorServiceAccount + `, namespace: ` +
	v1alpha1.OperatorNamespace + `}]
`

// sources: a Secret and a ConfigMap of a namespace are copied. Both change, the copy of the Secret is renamed, and the
// ConfigMap is deleted and created again. Its copies are deleted meanwhile, except those with deletionPolicy Orphan.
func sources() scenario {
	return scenario{
		name: "sources", deletes: []string{"pull-old", "ca-goes"},
		more: []fault{{name: "Secrets answer 503", refused: "secrets", lasts: longest / 2}},
		before: func(r *run) {
			r.createSources()
			r.createTemplate("goes", configMap, deletesObjects,
				r.copies(r.source("Secret", "pull", "pull-old"), r.source("ConfigMap", "ca", "ca-goes")))
			r.createTemplate("stays", limits, r.copies(r.source("ConfigMap", "ca", "ca-stays")))
			r.createNamespaces()
		},
		do: func(r *run) {
			for _, value := range []string{"2", "3"} {
				r.patch(r.sourceMap(), map[string]any{"data": map[string]any{"value": value}})
				r.patch(r.sourceSecret(), map[string]any{"stringData": map[string]any{"value": value}})
			}
			r.patchTemplate("goes", map[string]any{"sources": []v1alpha1.Source{
				r.source("Secret", "pull", "pull-new"), r.source("ConfigMap", "ca", "ca-goes"),
			}})
			r.waitAbsent(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pull-old"}})
			r.delete(r.sourceMap())
			r.waitAbsent(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ca-goes"}})
			r.createIn(r.name("vault"), plain("ca"))
		},
		until: func(ctx context.Context, r *run) []string { return r.differentCopies(ctx) },
	}
}

// createSources creates the sources in a namespace that no template selects, and lets the operator populate Secrets.
func (r *run) createSources() {
	r.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.name("vault")}})
	r.createIn(r.name("vault"), plain("ca")+sourceObjects)
	r.create(&rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{
			Name: "faults-secrets", Labels: map[string]string{v1alpha1.AggregateLabel: "true"},
		},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"secrets"},
			Verbs: []string{"list", "watch", "create", "patch", "delete"},
		}},
	})
}

func (r *run) sourceMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.name("vault"), Name: "ca"}}
}

func (r *run) sourceSecret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.name("vault"), Name: "pull"}}
}

// source returns a source with the name of its copies.
func (r *run) source(kind, name, as string) v1alpha1.Source {
	return v1alpha1.Source{APIVersion: "v1", Kind: kind, Namespace: r.name("vault"), Name: name, As: as}
}

// copies has a template copy sources.
func (r *run) copies(sources ...v1alpha1.Source) templateOption {
	return func(template *v1alpha1.NamespaceTemplate) { template.Spec.Sources = sources }
}

// differentCopies returns the copies that do not exist or differ from their source.
func (r *run) differentCopies(ctx context.Context) []string {
	configMap, secret := r.sourceMap(), r.sourceSecret()
	for _, source := range []client.Object{configMap, secret} {
		if err := r.client.Get(ctx, client.ObjectKeyFromObject(source), source); err != nil {
			return []string{err.Error()}
		}
	}
	var all []string
	for _, namespace := range r.namespaceNames() {
		for _, name := range []string{"ca-goes", "ca-stays"} {
			found := &corev1.ConfigMap{}
			err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, found)
			if err != nil || found.Data["value"] != configMap.Data["value"] {
				all = append(all, fmt.Sprintf("configmap %s/%s has %v (%v)", namespace, name, found.Data, err))
			}
		}
		found := &corev1.Secret{}
		err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "pull-new"}, found)
		if err != nil || !bytes.Equal(found.Data["value"], secret.Data["value"]) {
			all = append(all, fmt.Sprintf("secret %s/pull-new has %s (%v)", namespace, found.Data["value"], err))
		}
	}
	return all
}

// exemption: the first namespace is exempt from two objects of a template, and the last one from the whole template.
// The template changes one of the objects and drops the other. Then the exemptions are deleted.
func exemption() scenario {
	return scenario{
		name: "exemption", drifts: true, deletes: []string{"goes"},
		before: func(r *run) {
			r.createTemplate("t", configMap+plain("goes", "stays"))
			r.createNamespaces()
		},
		do: func(r *run) {
			names := r.namespaceNames()
			first, last := names[0], names[len(names)-1]
			exempt := []*v1alpha1.TemplateExemption{r.exempt(first, "t", "settings", "goes")}
			if first != last {
				exempt = append(exempt, r.exempt(last, "t"))
				names = names[:len(names)-1]
			}
			from := r.auditNow()
			r.patch(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: first, Name: "settings"}},
				map[string]any{"data": map[string]any{"value": "theirs"}})
			r.updateTemplate("t", strings.ReplaceAll(configMap, `"1"`, `"2"`)+plain("stays", "comes"))
			r.waitConfigMap("comes", names)
			r.failOnWrites(from, "an exempt object", func(write audit.Request) bool {
				about := write.ObjectRef
				isExempt := about.Namespace == first && (about.Name == "settings" || about.Name == "goes")
				return isExempt || about.Namespace == last && first != last && about.Resource == "configmaps"
			})
			for _, exemption := range exempt {
				r.delete(exemption)
			}
		},
	}
}

// exempt exempts a namespace from ConfigMaps of a template, or from the whole template. It returns when the exemption
// is in force.
func (r *run) exempt(namespace, short string, configMaps ...string) *v1alpha1.TemplateExemption {
	exemption := &v1alpha1.TemplateExemption{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "exemption"},
		Spec:       v1alpha1.TemplateExemptionSpec{Template: r.name(short), Reason: "a fault"},
	}
	for _, name := range configMaps {
		exemption.Spec.Objects = append(exemption.Spec.Objects, v1alpha1.ExemptObject{Kind: "ConfigMap", Name: name})
	}
	r.create(exemption)
	r.waitUntilRight("an exemption is not in force", settleTimeout, func(ctx context.Context) []string {
		found := &v1alpha1.TemplateExemption{}
		err := r.client.Get(ctx, client.ObjectKeyFromObject(exemption), found)
		ready := meta.FindStatusCondition(found.Status.Conditions, v1alpha1.ConditionReady)
		if err != nil || ready == nil || ready.Reason != v1alpha1.ExemptionActive {
			return []string{fmt.Sprintf("that of namespace %s is %+v (%v)", namespace, ready, err)}
		}
		return nil
	})
	return exemption
}

// auditNow returns the position at the end of the audit log.
func (r *run) auditNow() int {
	now, err := r.audit.Now()
	if err != nil {
		r.fail(err)
	}
	return now
}

// failOnWrites fails the run if the operator has made writes of a kind since a position in the audit log.
func (r *run) failOnWrites(from int, what string, isForbidden func(audit.Request) bool) {
	writes, err := r.audit.WritesOf(r.testCluster.operator.account(), from, isForbidden)
	if err == nil && len(writes) > 0 {
		err = fmt.Errorf("the operator wrote %s: %s %s", what, writes[0].Verb, writes[0].RequestURI)
	}
	if err != nil {
		r.fail(err)
	}
}

// guarded returns a ConfigMap that is protected from deletion.
func guarded(name string) string {
	return `
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ` + name + `, annotations: {` + v1alpha1.DeletionProtectionAnnotation + `: "true"}}
data: {value: "1"}
`
}

// protection: a template drops an object that is protected from deletion, which stays. Another template with such an
// object is deleted, and stays until the protection is removed.
func protection() scenario {
	return scenario{
		name: "protection", deletes: []string{"goes", "released"},
		before: func(r *run) {
			r.createTemplate("t", configMap+plain("goes")+guarded("kept"))
			r.createTemplate("deleted", plain("goes-too")+guarded("released"), deletesObjects)
			r.createNamespaces()
		},
		do: func(r *run) {
			from := r.auditNow()
			r.updateTemplate("t", configMap)
			r.deleteTemplate("deleted")
			for _, name := range []string{"goes", "goes-too"} {
				r.waitAbsent(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
			r.waitConfigMap("released", r.namespaceNames())
			r.failOnWrites(from, "a protected object", func(write audit.Request) bool {
				return r.isOfRun(write) && write.ObjectRef.Name == "released"
			})
			for _, name := range r.namespaceNames() {
				released := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "released"}}
				r.annotateUnlessGone(released, v1alpha1.DeletionProtectionAnnotation, nil)
			}
		},
		check: func(r *run) []string {
			r.waitConfigMap("kept", r.namespaceNames())
			return nil
		},
	}
}
