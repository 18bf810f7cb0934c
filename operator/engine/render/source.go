package render

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// SourceRef identifies a source of a template: an object that is copied into namespaces.
type SourceRef struct {
	schema.GroupVersionKind
	Namespace, Name string
}

// String returns the source for messages, such as: secret/pull in namespace registry.
func (r SourceRef) String() string {
	return fmt.Sprintf("%s/%s in namespace %s", strings.ToLower(r.GroupKind().String()), r.Name, r.Namespace)
}

// SourceRefs returns the sources of a template, each once.
func SourceRefs(spec *v1alpha1.NamespaceTemplateSpec) []SourceRef {
	var refs []SourceRef
	for i := range spec.Sources {
		if ref := RefOf(&spec.Sources[i]); !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// RefOf returns the object that a source refers to.
func RefOf(source *v1alpha1.Source) SourceRef {
	return SourceRef{schema.FromAPIVersionAndKind(source.APIVersion, source.Kind), source.Namespace, source.Name}
}

// SourceOf returns the source of which a rendered object is a copy, and whether it is one. No other object can have the
// annotation, because templates cannot declare it.
func SourceOf(object *unstructured.Unstructured) (SourceRef, bool) {
	namespace, name, found := strings.Cut(object.GetAnnotations()[v1alpha1.CopyOfAnnotation], "/")
	return SourceRef{object.GroupVersionKind(), namespace, name}, found
}

func isCopy(object *unstructured.Unstructured) bool {
	_, is := SourceOf(object)
	return is
}

// Fill adds the content of a source to a rendered copy of it: everything but its metadata and status. The content is
// shared, and must not be changed.
func Fill(object, source *unstructured.Unstructured) {
	object.Object = maps.Clone(object.Object)
	for field, value := range source.Object {
		switch field {
		case "apiVersion", "kind", "metadata", "status":
		default:
			object.Object[field] = value
		}
	}
}

// copyName returns the name of the copy, which may contain tokens.
func copyName(source *v1alpha1.Source) string { return cmp.Or(source.As, source.Name) }

// parseSources returns the copies of a template's sources, without their content. The problems include copies that are
// the same as one of the template's objects.
func parseSources(
	template *v1alpha1.NamespaceTemplate, objects []*unstructured.Unstructured,
) (copies []*unstructured.Unstructured, problems []Problem) {
	seen := map[ObjectID]bool{}
	for _, object := range objects {
		seen[IDOf(object)] = true
	}
	for i := range template.Spec.Sources {
		object, invalid := parseSource(&template.Spec.Sources[i])
		if len(invalid) == 0 && seen[IDOf(object)] {
			invalid = []Problem{{
				Rule: ruleDuplicate, Object: IDOf(object).String(), Message: "is declared twice",
				Remedy: "give the copy another name with the field as",
			}}
		}
		for _, problem := range invalid {
			problems = append(problems, problem.in(Part{Sources, i}))
		}
		if len(invalid) == 0 {
			seen[IDOf(object)] = true
			copies = append(copies, object)
		}
	}
	return copies, problems
}

// parseSource returns the copy of a source without its content, or why it is invalid.
func parseSource(source *v1alpha1.Source) (*unstructured.Unstructured, []Problem) {
	problems := checkReference(source)
	object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}}}
	object.SetAPIVersion(source.APIVersion)
	object.SetKind(source.Kind)
	object.SetName(copyName(source))
	if len(source.Labels) > 0 {
		object.SetLabels(source.Labels)
	}
	if len(source.Annotations) > 0 {
		object.SetAnnotations(source.Annotations)
	}
	if len(problems) == 0 {
		problems = inSource(checkDeclared(object))
	}
	if len(problems) > 0 {
		return nil, problems
	}
	AddAnnotations(object, map[string]string{v1alpha1.CopyOfAnnotation: source.Namespace + "/" + source.Name})
	return object, nil
}

// checkReference returns why a source does not refer to an object that can be copied.
func checkReference(source *v1alpha1.Source) []Problem {
	var problems []Problem
	for _, field := range []struct{ path, value string }{
		{"apiVersion", source.APIVersion}, {"kind", source.Kind}, {"namespace", source.Namespace}, {"name", source.Name},
	} {
		switch {
		case field.value == "":
			problems = append(problems, Problem{Rule: ruleSchema, Path: field.path, Message: "is missing"})
		case !isPlain(field.value):
			problems = append(problems, Problem{
				Rule: ruleToken, Path: field.path, Message: fmt.Sprintf("%q contains a token", field.value),
				Remedy: "a source must be the same in every namespace: use tokens in as, labels and annotations only",
			})
		}
	}
	if len(problems) > 0 {
		return problems
	}
	if reasons := validation.IsDNS1123Label(source.Namespace); len(reasons) > 0 {
		problems = append(problems, Problem{
			Rule: ruleName, Path: "namespace", Message: fmt.Sprintf("%q is not a valid namespace name", source.Namespace),
			Remedy: reasons[0],
		})
	}
	if reasons := content.IsPathSegmentName(source.Name); len(reasons) > 0 {
		problems = append(problems, Problem{
			Rule: ruleName, Path: "name", Message: fmt.Sprintf("%q is not a valid name", source.Name), Remedy: reasons[0],
		})
	}
	if RefOf(source).Group == rbacGroup {
		problems = append(problems, Problem{
			Rule: ruleSource, Path: "kind", Message: "a " + source.Kind + " cannot be copied, because it grants rights",
			Remedy: "declare it in spec.templates",
		})
	}
	return problems
}

// sourceProblems returns why the API server would reject copies in some namespaces because of their metadata.
func sourceProblems(template *v1alpha1.NamespaceTemplate) []Problem {
	var problems []Problem
	for i := range template.Spec.Sources {
		object, invalid := parseSource(&template.Spec.Sources[i])
		if len(invalid) > 0 {
			continue // they are known from compiling the template
		}
		for _, problem := range inSource(objectProblems(object, nil)) {
			problems = append(problems, problem.in(Part{Sources, i}))
		}
	}
	return problems
}

// inSource returns problems of a copy with the paths of the fields of its source.
func inSource(problems []Problem) []Problem {
	for i := range problems {
		path := strings.TrimPrefix(problems[i].Path, "metadata.")
		if path == "name" && problems[i].Path != path {
			path = "as"
		}
		problems[i].Path = path
	}
	return problems
}
