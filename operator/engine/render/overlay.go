package render

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// applyOverlay returns objects with an overlay applied. An overlay may change the contents of objects and delete
// objects. It must not change their kinds, names or namespaces. The part is the overlay in its template.
func applyOverlay(
	canceled canceledFunc, part Part, overlay v1alpha1.Overlay, objects []*unstructured.Unstructured,
) ([]*unstructured.Unstructured, error) {
	if problems := checkOverlay(overlay, objects); len(problems) > 0 {
		for i, problem := range problems {
			field := problem.Path
			problem.Path = ""
			problems[i] = problem.inOverlay(part, field, overlay.Name)
		}
		return nil, join(problems)
	}
	built, err := build(canceled, kustomizationOf(overlay), objects)
	if ended := canceled(); ended != nil {
		return nil, fmt.Errorf("overlay %s: %w", overlay.Name, ended)
	}
	if err != nil {
		return nil, buildProblem(canceled, part, overlay, objects, err)
	}
	var problems []Problem
	below := objects
	for _, object := range built {
		AddAnnotations(object, overlay.Annotations) // commonAnnotations would add them to pod templates, too
		invalid := checkDeclared(object)
		if len(invalid) == 0 {
			// Kustomize keeps the order of objects, so this detects two objects that swap their names, too.
			at := slices.IndexFunc(below, func(o *unstructured.Unstructured) bool { return isSameObject(o, object) })
			if at < 0 {
				invalid = []Problem{{
					Rule: ruleOverlay, Message: "it turns another object into " + describe(object),
					Remedy: "an overlay must not change apiVersion, kind or name",
				}}
			} else {
				below = below[at+1:]
			}
		}
		for _, problem := range invalid {
			problems = append(problems, problem.inOverlay(part, changingField(overlay), overlay.Name))
		}
	}
	if len(problems) > 0 {
		return nil, join(problems)
	}
	return built, nil
}

// checkOverlay returns why an overlay must not be applied to objects. kustomize cannot be stopped once it has begun.
func checkOverlay(overlay v1alpha1.Overlay, objects []*unstructured.Unstructured) []Problem {
	reserved := slices.Concat(CheckLabels(overlay.Labels), CheckAnnotations(overlay.Annotations))
	if len(reserved) > 0 {
		return reserved
	}
	built, problems := estimateBuild(sizesOf(objects), overlay)
	if problem, tooLarge := built.problem(); tooLarge {
		problems = append(problems, problem)
	}
	return problems
}

// changingField returns the path in an overlay of its only patch, or "" if it does anything else.
func changingField(overlay v1alpha1.Overlay) string {
	if len(overlay.Patches) == 1 && len(overlay.Labels)+len(overlay.Annotations)+len(overlay.Images)+
		len(overlay.Replicas) == 0 {
		return "patches[0]"
	}
	return ""
}

// AddAnnotations adds annotations to an object.
func AddAnnotations(object *unstructured.Unstructured, annotations map[string]string) {
	if len(annotations) == 0 {
		return
	}
	all := map[string]string{}
	maps.Copy(all, object.GetAnnotations())
	maps.Copy(all, annotations)
	object.SetAnnotations(all)
}

func kustomizationOf(overlay v1alpha1.Overlay) types.Kustomization {
	kustomization := types.Kustomization{}
	if len(overlay.Labels) > 0 {
		kustomization.Labels = []types.Label{{Pairs: overlay.Labels}}
	}
	for _, patch := range overlay.Patches {
		kustomization.Patches = append(kustomization.Patches,
			types.Patch{Patch: patch.Patch, Target: selectorOf(patch.Target)})
	}
	for _, image := range overlay.Images {
		kustomization.Images = append(kustomization.Images, types.Image{
			Name: image.Name, NewName: image.NewName, NewTag: image.NewTag, Digest: image.Digest,
		})
	}
	for _, replica := range overlay.Replicas {
		kustomization.Replicas = append(kustomization.Replicas, types.Replica{Name: replica.Name, Count: replica.Count})
	}
	return kustomization
}

func selectorOf(t *v1alpha1.PatchTarget) *types.Selector {
	if t == nil {
		return nil
	}
	return &types.Selector{
		ResId: resid.ResId{
			Gvk:  resid.Gvk{Group: t.Group, Version: t.Version, Kind: t.Kind},
			Name: t.Name,
		},
		LabelSelector:      t.LabelSelector,
		AnnotationSelector: t.AnnotationSelector,
	}
}

// isSameObject reports whether two objects have the same apiVersion, kind and name.
func isSameObject(a, b *unstructured.Unstructured) bool {
	return a.GetAPIVersion() == b.GetAPIVersion() && a.GetKind() == b.GetKind() && a.GetName() == b.GetName()
}

func describe(object *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s %s", object.GetAPIVersion(), object.GetKind(), object.GetName())
}
