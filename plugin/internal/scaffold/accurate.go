package scaffold

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

const (
	accuratePrefix   = "accurate.cybozu.com/"
	accurateType     = accuratePrefix + "type"
	accurateTemplate = accuratePrefix + "template"
	accurateParent   = accuratePrefix + "parent"
	accurateMode     = accuratePrefix + "propagate"
	accurateFrom     = accuratePrefix + "from"
	accurateMade     = accuratePrefix + "propagate-generated"
	// accurateCreate is the mode in which a copy is created if it is missing, and then left alone.
	accurateCreate = "create"
)

var (
	accurateSub   = schema.GroupKind{Group: "accurate.cybozu.com", Kind: "SubNamespace"}
	namespaceKind = schema.GroupKind{Kind: "Namespace"}
)

// addPropagatedByAccurate adds the objects of the namespaces from which Accurate propagates. Of Secrets, it reads only
// the metadata.
func addPropagatedByAccurate(
	ctx context.Context, r reader, objects []*unstructured.Unstructured,
) ([]*unstructured.Unstructured, error) {
	a := newAccurate(objects)
	mappings, err := r.mappings(ctx, strings.Split(policyKinds, ","))
	if err != nil {
		return nil, err
	}
	for _, source := range a.sources() {
		for _, mapping := range mappings {
			found, err := r.ListObjects(ctx, mapping.Resource, source, "")
			if err != nil {
				return nil, err
			}
			objects = append(objects, found...)
		}
		secrets, err := r.secrets(ctx, source)
		if err != nil {
			return nil, err
		}
		objects = append(objects, secrets...)
	}
	return objects, nil
}

// secrets returns the Secrets of a namespace without their values.
func (r reader) secrets(ctx context.Context, namespace string) ([]*unstructured.Unstructured, error) {
	var secrets []*unstructured.Unstructured
	err := cluster.Chunks(ctx, r.ChunkSize, metav1.ListOptions{},
		func(ctx context.Context, options metav1.ListOptions) (string, error) {
			list, err := r.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(namespace).
				List(ctx, options)
			if err != nil {
				return "", err
			}
			for _, item := range list.Items {
				secret := &unstructured.Unstructured{}
				secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
				secret.SetNamespace(item.Namespace)
				secret.SetName(item.Name)
				secret.SetAnnotations(item.Annotations)
				secrets = append(secrets, secret)
			}
			return list.GetContinue(), nil
		}, func() { secrets = nil })
	return secrets, err
}

// accurate is the hierarchy of Accurate while it is converted.
type accurate struct {
	*hierarchy
	// subs are the SubNamespaces that are not in conflict with another namespace.
	subs []*unstructured.Unstructured
	// templates has the template that a namespace refers to. A template is a namespace, too.
	templates map[string]string
}

// newAccurate reads the labels of namespaces, and the SubNamespaces for those that are not among the objects.
func newAccurate(objects []*unstructured.Unstructured) accurate {
	a := accurate{hierarchy: newHierarchy("Accurate"), templates: map[string]string{}}
	parents := map[string]string{}
	for _, ns := range objectsOf(objects, namespaceKind) {
		parents[ns.GetName()] = ns.GetLabels()[accurateParent]
	}
	a.subs = a.claimed(objectsOf(objects, accurateSub), parents, func(sub *unstructured.Unstructured) bool {
		conditions := each(sub.Object, "status", "conditions")
		return sub.Object["status"] == "conflict" || slices.ContainsFunc(conditions, func(c map[string]any) bool {
			return c["reason"] == "Conflict" && c["status"] == string(metav1.ConditionTrue)
		})
	})
	for _, ns := range objectsOf(objects, namespaceKind) {
		labels := ns.GetLabels()
		a.setParent(ns.GetName(), labels[accurateParent])
		if isName(ns.GetName()) && isName(labels[accurateTemplate]) {
			a.templates[ns.GetName()] = labels[accurateTemplate]
		}
	}
	for child := range a.parents {
		delete(a.templates, child) // Accurate ignores the label of a sub-namespace
	}
	return a
}

// sources returns the namespaces from which Accurate propagates objects.
func (a accurate) sources() []string {
	all := slices.AppendSeq(slices.Collect(maps.Values(a.parents)), maps.Values(a.templates))
	slices.Sort(all)
	return slices.Compact(all)
}

// fromAccurate converts root namespaces with their sub-namespaces to PolicySpaces, and what Accurate propagates from
// these and from template namespaces to templates.
func fromAccurate(ctx context.Context, objects []*unstructured.Unstructured, _ *metav1.LabelSelector) *draft {
	a := newAccurate(objects)
	isOfAccurate := func(object *unstructured.Unstructured) bool {
		return kindOf(object) == accurateSub ||
			kindOf(object) == namespaceKind && object.GetLabels()[accurateType] != ""
	}
	if len(a.sources()) == 0 && !slices.ContainsFunc(objects, isOfAccurate) {
		return nil
	}
	a.addSpaces(nil)
	a.item("configuration").need(nil, "Accurate's file of labelKeys, annotationKeys, namingPolicies and watches is not "+
		"read: set the labels by spec.namespaceMetadata, and selfService.namePattern of the policy spaces")
	a.addMetadata(ctx, a.subs)
	for _, source := range a.sources() {
		a.addPropagated(ctx, source, objects)
	}
	return a.draft
}

// addMetadata adds a template for the labels and annotations that a SubNamespace sets on its namespace.
func (a accurate) addMetadata(ctx context.Context, subs []*unstructured.Unstructured) {
	for _, sub := range subs {
		name := sub.GetName()
		spec := at[map[string]any](sub.Object, "spec")
		if !isName(name) || len(spec) == 0 {
			continue
		}
		a.nameFields(sub, name, metadataFields...)
		t := template{item: a.item("namespace/%s", name), name: objectName(name, "metadata"), prune: true}
		t.add("The labels and annotations of SubNamespace %s.", name)
		t.require(in(corev1.LabelMetadataName, name))
		t.convertMetadata(spec, "", nothing, nil)
		if t.size() == 0 {
			continue
		}
		t.need(&t.notes, "Accurate sets only the keys that its configuration names for SubNamespaces: remove the others")
		a.addTemplate(ctx, t)
	}
}

// addPropagated adds the templates for the objects that Accurate propagates from a namespace: for each part of the
// namespaces that a label selector can express, one for each mode, and one for Secrets, which the operator must read.
func (a accurate) addPropagated(ctx context.Context, source string, objects []*unstructured.Unstructured) {
	propagated := map[string][]*unstructured.Unstructured{} // by the suffix of the template's name
	for _, object := range objects {
		annotations := object.GetAnnotations()
		if object.GetNamespace() != source || annotations[accurateFrom] != "" {
			continue
		}
		if annotations[accurateMade] != "" {
			a.item("namespace/%s", source).need(nil,
				"%s: Accurate propagates what is made from it: list that in spec.sources of a template", nameOf(object.Object))
		}
		suffix := ""
		switch annotations[accurateMode] {
		case "":
			continue
		case accurateCreate:
			suffix = accurateCreate
		}
		if survey.IsSecret(object) {
			suffix = objectName("secrets", suffix)
		}
		propagated[suffix] = append(propagated[suffix], object)
	}
	for _, target := range a.targets(source) {
		for _, suffix := range slices.Sorted(maps.Keys(propagated)) {
			t := target
			t.item, t.name = a.item("namespace/%s", source), objectName(target.name, suffix)
			t.notes = slices.Clone(target.notes)
			t.report = strings.HasSuffix(suffix, accurateCreate)
			t.prune = !t.report
			for _, object := range propagated[suffix] {
				if survey.IsSecret(object) {
					t.copySecret(object)
				} else if o, ok := t.toDeclare(object); ok {
					t.objects = append(t.objects, o)
				}
			}
			if t.report {
				t.lose(&t.notes, "propagate=create: Accurate creates a deleted object again, and a template with driftPolicy "+
					"Report only reports it")
			}
			a.addTemplate(ctx, t)
		}
	}
}

// targets returns templates without objects, which select the namespaces that get the objects of another one.
func (a accurate) targets(source string) []template {
	var all []template
	referring := a.referring(source)
	if len(referring) > 0 {
		t := template{name: objectName(source)}
		t.add("What Accurate propagates from template namespace %s. The label stays when Accurate is gone.", source)
		t.require(in(accurateTemplate, slices.Sorted(maps.Keys(referring))...), absent(accurateParent))
		all = append(all, t)
	}
	var spaces []string
	for _, namespaces := range referring {
		spaces = append(spaces, namespaces...)
	}
	if slices.Sort(spaces); a.spaces[source] != nil {
		spaces = append(spaces, source)
	}
	for _, name := range spaces {
		if a.spaces[name] == nil {
			continue
		}
		if name != source { // in its policy space, the namespace is selected with those below it
			all[0].require(absent(name + v1alpha1.DepthLabelSuffix))
		}
		t := template{name: objectName(source)}
		if name == source {
			t.add("What Accurate propagates from namespace %s to its sub-namespaces. It is also declared for %[1]s itself.",
				name)
		} else {
			t.name = objectName(source, name)
			t.add("What Accurate propagates from template namespace %s to %s and its sub-namespaces.", source, name)
		}
		t.selectSpace(name)
		all = append(all, t)
	}
	return all
}

// referring returns the namespaces that refer to a template, or to a template that refers to it, by their template.
func (a accurate) referring(template string) map[string][]string {
	found := map[string][]string{}
	for next := []string{template}; len(next) > 0; next = next[1:] {
		of := next[0]
		if found[of] != nil {
			continue // templates that refer to each other
		}
		for _, ns := range slices.Sorted(maps.Keys(a.templates)) {
			if a.templates[ns] == of {
				found[of] = append(found[of], ns)
				next = append(next, ns)
			}
		}
	}
	return found
}
