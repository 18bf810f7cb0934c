package render

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/schema"
)

// Vet returns everything that is wrong with a template and that can be checked without a cluster: why it cannot be
// compiled, by itself or with one of its overlays, and why the API server would reject its objects in some namespaces.
// It returns early, with the problems found so far, once the context is done.
func Vet(ctx context.Context, template *v1alpha1.NamespaceTemplate, schemas *schema.Catalog) []Problem {
	_, problems := VetVariants(ctx, template, schemas)
	return problems
}

// VetVariants is like Vet. If there are no problems, it also returns the template compiled by itself and with each of
// its overlays alone.
func VetVariants(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, schemas *schema.Catalog,
) (variants []Variant, found []Problem) {
	if err := CheckBudget(template); err != nil {
		return nil, []Problem{{Message: err.Error()}}
	}
	variants, err := compileEachOverlay(ctx.Err, template)
	problems := unjoin(err)
	defer func() {
		for _, problem := range problems {
			found = append(found, Problem{Message: problem.Error()})
		}
	}()
	for i, raw := range template.Spec.Templates {
		// compileEachOverlay has already reported an object that cannot be parsed.
		if object, err := parseObject(raw); err == nil {
			for _, problem := range slices.Concat(unjoin(checkName(object)),
				unjoin(checkVersion(object.GroupVersionKind())), CheckLimits(object)) {
				problems = append(problems, fmt.Errorf("spec.templates[%d]: %w", i, problem))
			}
		}
	}
	if len(problems) > 0 {
		return nil, nil
	}
	problems = overlayProblems(variants)
	return variants, nil
}

// overlayProblems returns the problems of objects that only exist with an overlay.
func overlayProblems(variants []Variant) (problems []error) {
	withoutOverlay := map[string]bool{}
	for _, variant := range variants {
		for _, object := range variant.Objects() {
			for _, problem := range CheckLimits(object) {
				if len(variant.Overlays) == 0 {
					withoutOverlay[problem.Error()] = true
				} else if !withoutOverlay[problem.Error()] {
					problems = append(problems, fmt.Errorf("overlay %s: %w", variant.Overlays[0], problem))
				}
			}
		}
	}
	return problems
}

// checkOverlays returns why a template cannot be compiled, by itself or with one of its overlays alone.
func checkOverlays(canceled canceledFunc, template *v1alpha1.NamespaceTemplate) error {
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
	for _, overlay := range template.Spec.Overlays {
		compiled, err := compile(canceled, template, []string{overlay.Name})
		if seen[overlay.Name] {
			err = fmt.Errorf("overlay %s is declared twice: rename one of them", overlay.Name)
		}
		seen[overlay.Name] = true
		errs = append(errs, err)
		variants = append(variants, Variant{Compiled: compiled, Overlays: []string{overlay.Name}})
	}
	return variants, errors.Join(errs...)
}

// unjoin returns the errors that an error joins, or the error itself.
func unjoin(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, one := range joined.Unwrap() {
			all = append(all, unjoin(one)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}
