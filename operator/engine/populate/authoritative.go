package populate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// keptObjects are the objects that Kubernetes and the operator create in namespaces themselves. They are never deleted
// or reported as undeclared.
var keptObjects = []ObjectID{
	{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: "kube-root-ca.crt"},
	{GroupKind: schema.GroupKind{Kind: "ServiceAccount"}, Name: "default"},
	{GroupKind: schema.GroupKind{Kind: "ResourceQuota"}, Name: v1alpha1.QuotaName},
}

// notAdopted reports whether a template was compiled from a tree that does not manage the namespace: the namespace
// existed before and was not adopted (see hierarchy.NotAdoptedError). Such a template deletes no undeclared objects. It
// matches the namespace only if the tree took over the namespace's policy space.
func notAdopted(declared Declared, template *v1alpha1.NamespaceTemplate) bool {
	return template.Labels[v1alpha1.TreeLabel] != "" &&
		declared.Namespace.Annotations[v1alpha1.InTreeAnnotation] != "true"
}

// onlyReports reports whether a template does not delete undeclared objects in the namespace.
func onlyReports(declared Declared, template *v1alpha1.NamespaceTemplate) bool {
	return template.Spec.AuthoritativePolicy == v1alpha1.AuthoritativeReport || notAdopted(declared, template)
}

// authority returns the template that is authoritative for a kind in the namespace, or nil. If several are, a template
// that only reports takes precedence, so that nothing is deleted against its author's decision.
func authority(declared Declared, kind schema.GroupKind) *v1alpha1.NamespaceTemplate {
	var authoritative *v1alpha1.NamespaceTemplate
	for _, template := range declared.Templates {
		if !slices.Contains(template.Spec.Authoritative, v1alpha1.GroupKind{Group: kind.Group, Kind: kind.Kind}) {
			continue
		}
		if authoritative == nil || onlyReports(declared, template) {
			authoritative = template
		}
	}
	return authoritative
}

// deletes reports whether undeclared objects of a kind are deleted in the namespace.
func deletes(declared Declared, kind schema.GroupKind) bool {
	template := authority(declared, kind)
	return template != nil && !onlyReports(declared, template)
}

// DeletingUndeclared returns the template because of which an object is deleted in a namespace if no template declares
// it, or nil if it is not. Templates are those that select the namespace.
func DeletingUndeclared(
	ns *corev1.Namespace, templates []*v1alpha1.NamespaceTemplate, object ObjectID,
) *v1alpha1.NamespaceTemplate {
	declared := Declared{Namespace: ns, Templates: templates}
	if !deletes(declared, object.GroupKind) || slices.Contains(keptObjects, object) || declared.copiedBy(object) != "" {
		return nil
	}
	return authority(declared, object.GroupKind)
}

// planUndeclared plans an object that no template declares and that nstpl would otherwise leave alone, for the reason
// in change. The object is deleted or reported if a template is authoritative for its kind.
func planUndeclared(declared Declared, change Change) Change {
	kind := change.Kind.GroupKind()
	template := authority(declared, kind)
	if template == nil || slices.Contains(keptObjects, change.ID()) {
		return change
	}
	if copying := declared.copiedBy(change.ID()); copying != "" {
		change.Reason = fmt.Sprintf("template %s copies it into other namespaces", copying)
		return change
	}
	change.Template = template.Name
	reason := fmt.Sprintf(messageUndeclared+", and template %s is authoritative for its kind", template.Name)
	switch {
	case declared.broken("", change.ID()) != "":
		change.Reason = fmt.Sprintf("template %s, which can't be rendered, may declare it",
			declared.broken("", change.ID()))
	case declared.omits("", change.ID()):
		change.Reason = "a template may declare it once the namespace's creator is known"
	case template.Spec.AuthoritativePolicy == v1alpha1.AuthoritativeReport:
		change.Undeclared, change.Reason = true, reason+"; authoritativePolicy is Report"
	case notAdopted(declared, template):
		change.Undeclared, change.Reason = true, reason+"; the namespace is not adopted"
	default:
		change.Undeclared, change.Action, change.Reason = true, Prune, reason
	}
	if change = beingDeleted(change); change.Action == LeaveAlone && change.Observed.DeletionTimestamp != nil {
		change.Undeclared = false // already being deleted
	}
	return change
}

// copiedBy returns the template of the namespace that copies an object of it into others, or "". It declares no copy
// where the source is, so the source would be undeclared.
func (d Declared) copiedBy(id ObjectID) string {
	for _, template := range d.Templates {
		for i := range template.Spec.Sources {
			ref := render.RefOf(&template.Spec.Sources[i])
			if ref.Namespace == d.Namespace.Name && id == (ObjectID{GroupKind: ref.GroupKind(), Name: ref.Name}) {
				return template.Name
			}
		}
	}
	return ""
}

// unlabelled plans an object that does not have a template's label.
func unlabelled(declared Declared, object *metav1.PartialObjectMetadata) Change {
	return planUndeclared(declared, Change{
		Action: LeaveAlone, Kind: object.GroupVersionKind(), Name: object.Name, Observed: object,
		Reason: messageUndeclared,
	})
}

// Authoritative returns the kinds for which a template is authoritative: their undeclared objects are deleted or
// reported.
func Authoritative(templates []*v1alpha1.NamespaceTemplate) []schema.GroupKind {
	var kinds []schema.GroupKind
	for _, template := range templates {
		for _, kind := range template.Spec.Authoritative {
			if groupKind := (schema.GroupKind{Group: kind.Group, Kind: kind.Kind}); !slices.Contains(kinds, groupKind) {
				kinds = append(kinds, groupKind)
			}
		}
	}
	return kinds
}

// ConsideredKinds returns the kinds of which a plan considers objects without a template's label: those of declared
// objects, which may be in place of these, those for which a template is authoritative, and those of grants, which may
// be in place of grants that the namespace had before.
func (d Declared) ConsideredKinds() []schema.GroupKind {
	kinds := append(Authoritative(d.Templates), roleKind, bindingKind)
	for i := range d.Objects {
		kinds = append(kinds, d.Objects[i].ID().GroupKind)
	}
	for i := range d.Exempt {
		kinds = append(kinds, d.Exempt[i].ID().GroupKind)
	}
	slices.SortFunc(kinds, func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(kinds)
}
