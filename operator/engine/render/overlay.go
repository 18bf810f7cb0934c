package render

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// applyOverlay returns objects with an overlay applied. An overlay may change the contents of objects and delete
// objects. It must not change their kinds, names or namespaces.
func applyOverlay(
	canceled canceledFunc, overlay v1alpha1.Overlay, objects []*unstructured.Unstructured,
) ([]*unstructured.Unstructured, error) {
	err := errors.Join(CheckLabels(overlay.Labels), CheckAnnotations(overlay.Annotations))
	var built []*unstructured.Unstructured
	if err == nil {
		built, err = build(canceled, kustomizationOf(overlay), objects)
	}
	if err != nil {
		return nil, fmt.Errorf("overlay %s: %w", overlay.Name, err)
	}
	var errs []error
	below := objects
	for _, object := range built {
		addAnnotations(object, overlay.Annotations)
		err := checkDeclared(object)
		if err == nil {
			// Kustomize keeps the order of objects, so this detects two objects that swap their names, too.
			at := slices.IndexFunc(below, func(o *unstructured.Unstructured) bool { return isSameObject(o, object) })
			if at < 0 {
				err = fmt.Errorf("it turns another object into %s: an overlay must not change apiVersion, kind or name",
					describe(object))
			} else {
				below = below[at+1:]
			}
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("overlay %s: %w", overlay.Name, err)
	}
	return built, nil
}

// addAnnotations adds annotations to an object. Kustomize's commonAnnotations would add them to pod templates, too.
func addAnnotations(object *unstructured.Unstructured, annotations map[string]string) {
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
