package populate

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
)

// Declared holds the objects that templates declare for one namespace.
type Declared struct {
	Namespace *corev1.Namespace
	// Templates match the namespace, in the order in which they apply.
	Templates []*v1alpha1.NamespaceTemplate
	// Objects are the declared objects, each once. If several templates declare an object, the last one wins.
	Objects []Object
	// Metadata are the labels and annotations of the namespace itself, each once and in the order of their keys.
	Metadata []DeclaredValue
	// Omitted objects are declared but cannot be rendered for this namespace yet.
	Omitted []render.Omission
	// Overridden are the declarations that are not applied, because a later template declares the same object.
	Overridden []Overridden
	// Withheld RoleBindings are declared and not applied, because a later template overrides their Role.
	Withheld []Withheld
	// Broken templates can't be rendered. The objects that they populated before are not pruned.
	Broken []Broken
	// Exempt are the declared objects that are left alone, because the namespace is exempt from them.
	Exempt []ExemptObject

	inputs Inputs
	// revoked are the Roles and RoleBindings that an earlier revision declares and a newest revision takes away.
	revoked map[ObjectID]bool
	// kept are objects of earlier revisions that remain in a namespace that has them as they are declared. They are in
	// Objects only if the newest revisions declare some of what they grant, and then with only that.
	kept []Object
}

// Object is an object as templates declare it for its namespace.
type Object struct {
	*unstructured.Unstructured
	Template *v1alpha1.NamespaceTemplate
	// Hash identifies the content, without the namespace.
	Hash string
	// Unavailable is the source of a copy if it cannot be copied. The object then has no content, and is not applied.
	Unavailable *Source
}

// Overridden is a declaration of an object that a later template declares, too.
type Overridden struct {
	Object ObjectID
	// Field is the label or the annotation of the namespace that both declare, such as "label tier"; empty for objects.
	Field string
	// The declaration in By is applied, and not the one in Template, because By comes later.
	Template, By string
}

// Finding returns the finding about the earlier template's object.
func (o Overridden) Finding() Finding {
	field := ""
	if o.Field != "" {
		field = " (" + o.Field + ")"
	}
	return Finding{
		Object: o.Object, Template: o.Template, Severity: Warning, Reason: FindingDeclaredTwice,
		Message: fmt.Sprintf(messageDeclaredTwice+"%s and %s%s: the declaration of %s is applied", o.Template, o.By,
			field, o.By),
	}
}

// reason returns why the earlier template's object is left alone.
func (o Overridden) reason() string {
	return strings.TrimSpace(fmt.Sprintf("%s is overridden by template %s, which also declares it", o.Field, o.By))
}

// Broken is a template that can't be rendered, and why.
type Broken struct {
	Template *v1alpha1.NamespaceTemplate
	Err      error
}

// ObjectID identifies an object in its namespace.
type ObjectID = render.ObjectID

// ID returns the ID of the object.
func (o Object) ID() ObjectID { return render.IDOf(o.Unstructured) }

// Guard returns why a template must not render from some labels and annotations of namespaces, or nil. A rule must
// protect each of them, or users who may label a namespace would choose what the template renders in it.
type Guard func(template *v1alpha1.NamespaceTemplate, keys []render.MetadataKey) error

// AsReported is the Guard of a client, which knows what the operator has reported in the status of the template.
func AsReported(template *v1alpha1.NamespaceTemplate, keys []render.MetadataKey) error {
	accepted := meta.FindStatusCondition(template.Status.Conditions, v1alpha1.TemplateAccepted)
	if accepted == nil || accepted.Reason != v1alpha1.TemplateValueNotProtected {
		return nil
	}
	for _, key := range keys { // an older revision may render from others
		if strings.Contains(accepted.Message, key.Token()) {
			return errors.New(accepted.Message)
		}
	}
	return nil
}

// Inputs are what Declare needs to know beside the templates and the namespace.
type Inputs struct {
	// Exemptions are those of the namespace.
	Exemptions match.Exemptions
	// Guard decides from which labels and annotations templates render. AsReported is the default.
	Guard Guard
	// Sources returns what copies contain. If it is nil, they have no content.
	Sources Sources
	// Newest are the templates with the revisions that the namespace will have: grants that they take away end at once.
	Newest match.Newest
}

// unguarded returns the inputs of a caller that does not apply what templates declare, whatever revisions they have.
func (i Inputs) unguarded() Inputs {
	i.Guard = func(*v1alpha1.NamespaceTemplate, []render.MetadataKey) error { return nil }
	i.Newest = match.Newest{}
	return i
}

// declaresNothing reports whether a template has neither objects nor labels or annotations of namespaces.
func declaresNothing(template *v1alpha1.NamespaceTemplate) bool {
	spec := &template.Spec
	return len(spec.Templates)+len(spec.Sources)+len(spec.Overlays) == 0 && spec.NamespaceMetadata == nil
}

// Declare renders templates for a namespace. The templates must match ns, and be sorted by name.
func Declare(
	cache *render.Cache, ns *corev1.Namespace, templates []*v1alpha1.NamespaceTemplate, inputs Inputs,
) Declared {
	if inputs.Guard == nil {
		inputs.Guard = AsReported
	}
	declared := Declared{Namespace: ns, Templates: templates, inputs: inputs}
	values := render.Values{
		Namespace: ns.Name, Creator: ns.Annotations[v1alpha1.CreatorAnnotation],
		Labels: ns.Labels, Annotations: ns.Annotations,
	}
	position := map[ObjectID]int{}
	compiled := make([]*render.Compiled, len(templates))
	errs := make([]error, len(templates))
	for i, template := range templates {
		if !declaresNothing(template) {
			compiled[i], errs[i] = cache.Compile(template, match.Overlays(template, ns))
		}
	}
	for i, template := range templates {
		if declaresNothing(template) {
			continue
		}
		err := errs[i]
		if err == nil {
			err = checkValues(template, compiled[i], compiled, inputs.Guard)
		}
		if err != nil {
			declared.Broken = append(declared.Broken, Broken{template, err})
			continue
		}
		objects, metadata, omitted, err := stamp(compiled[i], template, values, inputs.Sources)
		if err != nil {
			declared.Broken = append(declared.Broken, Broken{template, err})
			continue
		}
		declared.Omitted = append(declared.Omitted, declared.withoutExemptOmissions(omitted)...)
		if len(metadata) > 0 && !declared.exempts(template.Name, render.NamespaceKind, ns.Name) {
			declared.addMetadata(template, metadata)
		}
		for _, object := range declared.withoutExempt(template.Name, objects) {
			id := object.ID()
			earlier, isDeclared := position[id]
			if !isDeclared {
				position[id] = len(declared.Objects)
				declared.Objects = append(declared.Objects, object)
				continue
			}
			declared.Overridden = append(declared.Overridden,
				Overridden{Object: id, Template: declared.Objects[earlier].Template.Name, By: template.Name})
			declared.Objects[earlier] = object
		}
	}
	withhold(&declared)
	declared.revoke(cache)
	return declared
}

// checkValues returns why a template must not render from labels and annotations of the namespace: no rule protects
// them, or one of the templates of the namespace, in all, sets them. Otherwise two templates could change what the
// other one sets without end. Admission denies such templates, but may miss one of two that are written together.
func checkValues(
	template *v1alpha1.NamespaceTemplate, compiled *render.Compiled, all []*render.Compiled, guard Guard,
) error {
	keys := compiled.UsedKeys()
	if len(keys) == 0 {
		return nil
	}
	for _, key := range keys {
		for _, other := range all {
			if other != nil && other.Declares(key) {
				return fmt.Errorf("template %s: %w", template.Name, render.NewDependencyError(key, other.Template))
			}
		}
	}
	return guard(template, keys)
}

func stamp(
	compiled *render.Compiled, template *v1alpha1.NamespaceTemplate, values render.Values, sources Sources,
) ([]Object, map[render.MetadataKey]string, []render.Omission, error) {
	stamped, omitted, err := compiled.Stamp(values)
	if err != nil {
		return nil, nil, nil, err
	}
	objects := make([]Object, 0, len(stamped))
	for _, object := range stamped {
		objects = append(objects, Object{Unstructured: object.Unstructured, Template: template, Hash: object.Hash})
	}
	if len(template.Spec.Sources) > 0 {
		if objects, err = filled(objects, values.Namespace, sources); err != nil {
			return nil, nil, nil, fmt.Errorf("template %s: %w", template.Name, err)
		}
	}
	metadata, unknown := compiled.StampMetadata(values)
	return objects, metadata, append(omitted, unknown...), nil
}

// Matching returns the templates that populate ns, or the reason why no template may populate it.
func Matching(index *match.Index, ns *corev1.Namespace, exclude ...string) ([]*v1alpha1.NamespaceTemplate, string) {
	if reason := match.UnpopulatedReason(ns, exclude...); reason != "" {
		return nil, reason
	}
	return index.Match(ns), ""
}
