package match

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Exemptions are the TemplateExemptions that are in force in a namespace, in the order of their names.
type Exemptions []*v1alpha1.TemplateExemption

// InForce returns those of the TemplateExemptions of a namespace that are in force at a time, and when the next of them
// expires, or nil if none does.
func InForce(all []*v1alpha1.TemplateExemption, now metav1.Time) (active Exemptions, next *metav1.Time) {
	for _, exemption := range all {
		if !isInForce(exemption, now) {
			continue
		}
		active = append(active, exemption)
		if end := exemption.Spec.Expires; end != nil && (next == nil || end.Before(next)) {
			next = end
		}
	}
	slices.SortFunc(active, func(a, b *v1alpha1.TemplateExemption) int { return strings.Compare(a.Name, b.Name) })
	return active, next
}

// isInForce reports whether a TemplateExemption is in force at a time. One that is being deleted is not: a finalizer
// must not prolong it.
func isInForce(exemption *v1alpha1.TemplateExemption, now metav1.Time) bool {
	return exemption.DeletionTimestamp == nil && !IsExpired(exemption, now)
}

// IsExpired reports whether a TemplateExemption has expired at a time.
func IsExpired(exemption *v1alpha1.TemplateExemption, now metav1.Time) bool {
	return exemption.Spec.Expires != nil && !now.Before(exemption.Spec.Expires)
}

// OfTemplate returns the exemption from a whole template, or nil if there is none.
func (e Exemptions) OfTemplate(template string) *v1alpha1.TemplateExemption {
	return e.find(template, func(spec *v1alpha1.TemplateExemptionSpec) bool { return len(spec.Objects) == 0 })
}

// OfObject returns the exemption from an object of a template, or nil if there is none. It does not look for exemptions
// from the whole template.
func (e Exemptions) OfObject(template string, kind schema.GroupKind, name string) *v1alpha1.TemplateExemption {
	object := v1alpha1.ExemptObject{Group: kind.Group, Kind: kind.Kind, Name: name}
	return e.find(template, func(spec *v1alpha1.TemplateExemptionSpec) bool {
		return slices.Contains(spec.Objects, object)
	})
}

func (e Exemptions) find(
	template string, covers func(*v1alpha1.TemplateExemptionSpec) bool,
) *v1alpha1.TemplateExemption {
	for _, exemption := range e {
		if exemption.Spec.Template == template && covers(&exemption.Spec) {
			return exemption
		}
	}
	return nil
}

// ExemptionReason returns until when, why and by which object something is exempt.
func ExemptionReason(exemption *v1alpha1.TemplateExemption) string {
	until := ""
	if exemption.Spec.Expires != nil {
		until = " until " + exemption.Spec.Expires.UTC().Format("2006-01-02T15:04:05Z07:00")
	}
	return fmt.Sprintf("is exempt%s (templateexemption/%s): %s", until, exemption.Name, exemption.Spec.Reason)
}

// SetExemptions replaces the exemptions of a namespace. The index does not find a template for a namespace that is
// exempt from the whole template.
func (x *Index) SetExemptions(namespace string, exemptions Exemptions) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(exemptions) == 0 {
		delete(x.exemptions, namespace)
		return
	}
	x.exemptions[namespace] = exemptions
}

// Exemptions returns the exemptions of a namespace.
func (x *Index) Exemptions(namespace string) Exemptions {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.exemptions[namespace]
}

// ExemptFrom returns the namespaces with exemptions from a template or from objects of it.
func (x *Index) ExemptFrom(template string) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var names []string
	for namespace, exemptions := range x.exemptions {
		if exemptions.find(template, func(*v1alpha1.TemplateExemptionSpec) bool { return true }) != nil {
			names = append(names, namespace)
		}
	}
	slices.Sort(names)
	return names
}

// CopyExemptions sets the exemptions of all namespaces to those of another index.
func (x *Index) CopyExemptions(from *Index) {
	from.mu.RLock()
	exemptions := maps.Clone(from.exemptions)
	from.mu.RUnlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.exemptions = exemptions
}

// IsOutside reports whether a namespace is opted out of a template, or exempt from the whole template.
func (x *Index) IsOutside(ns *corev1.Namespace, template string) bool {
	return OptedOutOf(ns, template) || x.Exemptions(ns.Name).OfTemplate(template) != nil
}

// outside returns the names of the templates that a namespace is opted out of or exempt from, if it is not opted out of
// all.
func (x *Index) outside(ns *corev1.Namespace) []string {
	names := OptedOutTemplates(ns)
	for _, exemption := range x.Exemptions(ns.Name) {
		if len(exemption.Spec.Objects) == 0 {
			names = append(names, exemption.Spec.Template)
		}
	}
	return names
}

// Explain returns whether a template selects a namespace, and why, as the function Explain does. A namespace that is
// exempt from the template is not selected.
func (x *Index) Explain(template *v1alpha1.NamespaceTemplate, ns *corev1.Namespace) Verdict {
	return x.Exemptions(ns.Name).Apply(Explain(template, ns))
}

// Apply returns a verdict that holds in spite of the exemptions: a template from which the namespace is exempt does not
// select it.
func (e Exemptions) Apply(verdict Verdict) Verdict {
	if exemption := e.OfTemplate(verdict.Template); exemption != nil && verdict.Matches {
		verdict.Matches, verdict.Overlays = false, nil
		verdict.Reason = "the namespace " + ExemptionReason(exemption)
	}
	return verdict
}

// ObjectList lists the objects of an exemption in one line. It returns "all" for a whole template.
func ObjectList(spec *v1alpha1.TemplateExemptionSpec) string {
	if len(spec.Objects) == 0 {
		return "all"
	}
	names := make([]string, 0, len(spec.Objects))
	for _, object := range spec.Objects {
		kind := metav1.GroupKind{Group: object.Group, Kind: object.Kind}
		names = append(names, strings.ToLower(kind.String())+"/"+object.Name)
	}
	return strings.Join(names, ",")
}
