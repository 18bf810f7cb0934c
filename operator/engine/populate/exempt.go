package populate

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
)

// ExemptObject is an object that a template declares and that is left alone, because the namespace is exempt from it.
type ExemptObject struct {
	Kind      schema.GroupVersionKind
	Name      string
	Template  string
	Exemption *v1alpha1.TemplateExemption
	Reason    string
}

// ID returns the ID of the object.
func (e ExemptObject) ID() ObjectID { return ObjectID{GroupKind: e.Kind.GroupKind(), Name: e.Name} }

// exempts records that an object of a template is left alone if the namespace is exempt from it, and reports whether it
// is.
func (d *Declared) exempts(template string, kind schema.GroupVersionKind, name string) bool {
	exemption := d.inputs.Exemptions.OfObject(template, kind.GroupKind(), name)
	if exemption == nil {
		return false
	}
	exempt := ExemptObject{kind, name, template, exemption, match.ExemptionReason(exemption)}
	if !slices.Contains(d.Exempt, exempt) {
		d.Exempt = append(d.Exempt, exempt)
	}
	return true
}

// withoutExempt returns the objects of a template that are not exempt. It changes the list.
func (d *Declared) withoutExempt(template string, objects []Object) []Object {
	if len(d.inputs.Exemptions) == 0 {
		return objects
	}
	return slices.DeleteFunc(objects, func(object Object) bool {
		return d.exempts(template, object.GroupVersionKind(), object.GetName())
	})
}

// withoutExemptOmissions returns the omissions about objects that are not exempt. It changes the list. An object that
// is exempt is left alone, whether or not the template could declare it yet.
func (d *Declared) withoutExemptOmissions(omitted []render.Omission) []render.Omission {
	if len(d.inputs.Exemptions) == 0 {
		return omitted
	}
	return slices.DeleteFunc(omitted, func(o render.Omission) bool {
		return d.exempts(o.Template, o.Kind, o.Name)
	})
}

// exemptsMetadata reports whether the labels and annotations that a template declares for the namespace are exempt.
func (d *Declared) exemptsMetadata(template string) bool {
	return d.inputs.Exemptions.OfObject(template, render.NamespaceKind.GroupKind(), d.Namespace.Name) != nil
}

// exemptRole returns the exempt Role of the same template that a RoleBinding binds, or nil. The users of the namespace
// decide about an exempt Role, and the author of the RoleBinding was checked for the rules of the declared one.
func (d *Declared) exemptRole(binding Object) *ExemptObject {
	role, ok := boundRole(binding.Unstructured)
	if !ok {
		return nil
	}
	for i := range d.Exempt {
		if d.Exempt[i].ID() == role && d.Exempt[i].Template == binding.Template.Name {
			return &d.Exempt[i]
		}
	}
	return nil
}

// exemptWith records that a RoleBinding is left alone with the Role that it binds.
func (d *Declared) exemptWith(role ExemptObject, binding Object) {
	d.Exempt = append(d.Exempt, ExemptObject{
		binding.GroupVersionKind(), binding.GetName(), binding.Template.Name, role.Exemption,
		fmt.Sprintf("binds %s, which %s", role.ID(), match.ExemptionReason(role.Exemption)),
	})
}

// exemptChange plans an object that is left alone because of an exemption. observed is nil if it does not exist.
func exemptChange(exempt ExemptObject, observed *metav1.PartialObjectMetadata, recorded existing) Change {
	return Change{
		Populated: recorded.populatedBy(exempt.ID()) != "", Adopted: recorded.adoptedBy(exempt.ID()),
		Action: LeaveAlone, Kind: exempt.Kind, Name: exempt.Name, Template: exempt.Template, Reason: exempt.Reason,
		Observed: observed, Exemption: exempt.Exemption,
	}
}

func (e ExemptObject) finding() Finding {
	return Finding{
		Object: e.ID(), Template: e.Template, Severity: Exempt, Reason: FindingExempt, Message: e.Reason,
	}
}
