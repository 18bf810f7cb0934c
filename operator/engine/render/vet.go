package render

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/schema"
)

// Vet returns everything that is wrong with a template and that can be checked without a cluster: why it cannot be
// compiled, by itself or with one of its overlays, and why the API server would reject its objects in some namespaces.
// Objects of kinds in schemas are also checked against their schemas; schemas may be nil. Vet returns early, with the
// problems found so far, once the context is done.
func Vet(ctx context.Context, template *v1alpha1.NamespaceTemplate, schemas *schema.Catalog) []Problem {
	_, problems := VetVariants(ctx, template, schemas)
	return problems
}

// VetVariants is like Vet. If there are no problems, it also returns the template compiled by itself and with each of
// its overlays alone.
func VetVariants(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, schemas *schema.Catalog,
) ([]Variant, []Problem) {
	if err := CheckBudget(template); err != nil {
		return nil, problemsIn(err)
	}
	variants, err := compileEachOverlay(ctx.Err, template)
	problems := problemsIn(err)
	if variants == nil {
		problems = append(problems, overlaysAlone(ctx, template)...)
	}
	declared := map[Problem]bool{}
	for i, raw := range template.Spec.Templates {
		object, _ := parseObject(raw) // compileEachOverlay has already reported what is wrong with it
		if object == nil || object.Object == nil {
			continue
		}
		for _, problem := range objectProblems(object, schemas) {
			declared[problem] = true
			problems = append(problems, problem.in(Part{Objects, i}))
		}
	}
	problems = append(problems, creatorInLabels(template)...)
	problems = append(problems, sourceProblems(template)...)
	problems = append(problems, overlayProblems(template, variants, schemas, declared)...)
	if len(problems) > 0 {
		return nil, inOrder(problems)
	}
	return variants, nil
}

// objectProblems returns why the API server would reject an object in some namespaces.
func objectProblems(object *unstructured.Unstructured, schemas *schema.Catalog) []Problem {
	var problems []Problem
	if object.GetKind() != "" && object.GetName() != "" {
		problems = slices.Concat(checkName(object), checkVersion(object), checkLimits(object, typicalValues),
			checkCreator(object), naming(IDOf(object).String(), checkQuantities(object)))
	}
	set, paths := checkServerFields(object)
	problems = append(problems, set...)
	for _, problem := range problems {
		paths = append(paths, problem.Path)
	}
	if schemas == nil || isCopy(object) {
		return problems
	}
	for _, found := range schemas.Check(typicalValues.stampObject(object).Object) {
		isReported := slices.ContainsFunc(paths, func(path string) bool {
			return path != "" && schema.IsWithin(found.Path, path)
		})
		// Another value of a label or an annotation may be valid, but not another type.
		mayBeValid := DependsOnValues(object, found.Path) && !strings.HasPrefix(found.Message, "must be ")
		if !isReported && !mayBeValid {
			problems = append(problems, Problem{
				Rule: ruleSchema, Path: found.Path, Object: IDOf(object).String(), Message: found.Message,
				Remedy: found.Remedy, Unchecked: found.Unchecked,
			})
		}
	}
	return problems
}

// serverFields are the fields of metadata that the API server sets.
var serverFields = []string{
	"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields",
	"ownerReferences", "resourceVersion", "selfLink", "uid",
}

// checkServerFields returns a problem for an object with fields that only the API server or a controller sets, and
// their paths. An empty status and a creationTimestamp of null, which kubectl create --dry-run prints, are valid.
func checkServerFields(object *unstructured.Unstructured) (problems []Problem, paths []string) {
	metadata, _ := object.Object["metadata"].(map[string]any)
	for _, field := range serverFields {
		if metadata[field] != nil {
			paths = append(paths, "metadata."+field)
		}
	}
	if status := object.Object["status"]; status != nil {
		if fields, ok := status.(map[string]any); !ok || len(fields) > 0 {
			paths = append(paths, "status")
		}
	}
	if len(paths) == 0 {
		return nil, nil
	}
	path := paths[0]
	if len(paths) > 1 && strings.HasPrefix(path, "metadata.") {
		path = "metadata"
	}
	return []Problem{{
		Rule: ruleServerMetadata, Path: path, Object: IDOf(object).String(),
		Message: "has fields that the API server sets: " + strings.Join(paths, ", "),
		Remedy:  "remove them, as well as all else that kubectl get prints but you did not write",
	}}, paths
}

// overlayProblems returns the problems of objects that only exist with an overlay. Declared are those of the objects
// without overlays.
func overlayProblems(
	template *v1alpha1.NamespaceTemplate, variants []Variant, schemas *schema.Catalog, declared map[Problem]bool,
) (problems []Problem) {
	for _, variant := range variants {
		if variant.Compiled == nil {
			continue
		}
		if len(variant.Overlays) == 0 {
			for _, object := range variant.Objects() {
				for _, problem := range objectProblems(object, schemas) {
					declared[problem] = true
				}
			}
			continue
		}
		name := variant.Overlays[0]
		i := slices.IndexFunc(template.Spec.Overlays, func(o v1alpha1.Overlay) bool { return o.Name == name })
		for _, object := range variant.Objects() {
			for _, problem := range objectProblems(object, schemas) {
				if !declared[problem] {
					problems = append(problems,
						problem.inOverlay(Part{Overlays, i}, changingField(template.Spec.Overlays[i]), name))
				}
			}
		}
	}
	return problems
}

// overlaysAlone returns what is wrong with the overlays of a template that cannot be compiled without them. It leaves
// out objects that cannot be identified. An overlay may change one of these, so overlaysAlone does not report then that
// the target of a patch is not declared.
func overlaysAlone(ctx context.Context, template *v1alpha1.NamespaceTemplate) (problems []Problem) {
	var objects []*unstructured.Unstructured
	var known []Problem
	seen := map[ObjectID]bool{}
	for _, raw := range template.Spec.Templates {
		object, invalid := parseObject(raw)
		known = append(known, invalid...)
		isList := slices.ContainsFunc(invalid, func(p Problem) bool { return p.Rule == ruleList })
		if object == nil || object.Object == nil || isList || len(checkIdentity(object)) > 0 ||
			seen[IDOf(object)] {
			continue
		}
		seen[IDOf(object)] = true
		objects = append(objects, object)
	}
	isComplete := len(objects) == len(template.Spec.Templates)
	for i, overlay := range template.Spec.Overlays {
		part := Part{Overlays, i}
		_, err := applyOverlay(ctx.Err, part, overlay, objects)
		for _, problem := range problemsIn(err) {
			isKnown := slices.ContainsFunc(known, func(k Problem) bool {
				return k.inOverlay(part, changingField(overlay), overlay.Name) == problem
			})
			if ctx.Err() == nil && !isKnown && (isComplete || problem.Rule != ruleOverlay) {
				problems = append(problems, problem)
			}
		}
	}
	return problems
}

// inOrder returns problems in the order of the template: its selector, its objects, its sources, its overlays.
func inOrder(problems []Problem) []Problem {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Part.List, b.Part.List), cmp.Compare(a.Part.Index, b.Part.Index))
	})
	return slices.Compact(problems)
}

// checkOverlays returns why a template with overlays cannot be compiled, by itself or with one of its overlays alone.
// A template without overlays is not compiled here.
func checkOverlays(canceled canceledFunc, template *v1alpha1.NamespaceTemplate) error {
	if len(template.Spec.Overlays) == 0 {
		return nil
	}
	_, err := compileEachOverlay(canceled, template)
	return err
}

// compileEachOverlay compiles a template by itself and then with each of its overlays alone. The error joins all
// errors.
func compileEachOverlay(canceled canceledFunc, template *v1alpha1.NamespaceTemplate) ([]Variant, error) {
	base, err := compile(canceled, template, nil)
	if err != nil {
		return nil, err
	}
	variants := []Variant{{Compiled: base}}
	var errs []error
	seen := map[string]bool{}
	for i, overlay := range template.Spec.Overlays {
		compiled, err := compile(canceled, template, []string{overlay.Name})
		if seen[overlay.Name] {
			duplicate := Problem{
				Rule: ruleDuplicate, Message: "overlay " + overlay.Name + " is declared twice",
				Remedy: "rename one of them",
			}
			err = duplicate.in(Part{Overlays, i})
		}
		seen[overlay.Name] = true
		errs = append(errs, err)
		variants = append(variants, Variant{Compiled: compiled, Overlays: []string{overlay.Name}})
	}
	return variants, errors.Join(errs...)
}
