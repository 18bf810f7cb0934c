// Package gitops prepares the objects of a tree of policies for Argo CD and Flux, which apply what is committed to Git.
//
// Both have an order of their own. Argo CD applies the waves that annotations name. Flux applies Namespaces before
// custom resources, so that the Namespaces need a Kustomization of their own. With the files that Files returns, these
// rules hold:
//
//   - A namespace is created, or moved, after all policies of the same commit were applied.
//   - The policies that a commit no longer declares are deleted after the new ones were applied.
//   - Neither engine deletes a Namespace, also not when its Application or Kustomization is deleted.
package gitops

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/engine/render"
)

// Engine is a program that applies manifests from Git.
type Engine string

// The engines.
const (
	ArgoCD Engine = "argocd"
	Flux   Engine = "flux"
)

// Names returns the names of all engines.
func Names() []string { return []string{string(ArgoCD), string(Flux)} }

// File is a file to commit.
type File struct {
	// Path is relative to the directory that the engine reads, and has slashes.
	Path    string
	Objects []*unstructured.Unstructured
}

// Annotations by which Argo CD and Flux decide how they apply and delete an object.
const (
	argoPrefix     = "argocd.argoproj.io/"
	waveKey        = argoPrefix + "sync-wave"
	syncOptionsKey = argoPrefix + "sync-options"
	compareKey     = argoPrefix + "compare-options"

	fluxPrefix    = "kustomize.toolkit.fluxcd.io/"
	pruneKey      = fluxPrefix + "prune"
	substituteKey = fluxPrefix + "substitute"

	disabled = "disabled"
)

// Files returns the files with the compiled objects of a tree for an engine, or the objects as they are, in one file,
// if the engine is empty. It does not change the given objects. The error names an object of the tree with metadata
// that tells the engine how to apply or delete it.
func Files(engine Engine, tree string, compiled []*unstructured.Unstructured) ([]File, error) {
	name := tree + ".yaml"
	switch engine {
	case ArgoCD:
		objects, err := annotated(compiled, argoReserved, func(object *unstructured.Unstructured) map[string]string {
			return argoAnnotations(render.IDOf(object), tree)
		})
		return []File{{Path: name, Objects: objects}}, err
	case Flux:
		objects, err := annotated(compiled, fluxReserved, func(object *unstructured.Unstructured) map[string]string {
			return fluxAnnotations(render.IDOf(object))
		})
		policies, namespaces := split(objects)
		return []File{{Path: "policies/" + name, Objects: policies}, {Path: "namespaces/" + name, Objects: namespaces}},
			err
	}
	return []File{{Path: name, Objects: compiled}}, nil
}

// split separates the Namespaces from all other objects.
func split(objects []*unstructured.Unstructured) (policies, namespaces []*unstructured.Unstructured) {
	for _, object := range objects {
		if isNamespace(render.IDOf(object)) {
			namespaces = append(namespaces, object)
		} else {
			policies = append(policies, object)
		}
	}
	return policies, namespaces
}

func isNamespace(id inventory.ID) bool {
	return inventory.PhaseOf(id.GroupKind) == inventory.Namespaces
}

// annotated returns copies of objects with more annotations. reserved returns the key of a label or an annotation that
// an object must not have, or "".
func annotated(
	objects []*unstructured.Unstructured, reserved func(*unstructured.Unstructured) string,
	annotations func(*unstructured.Unstructured) map[string]string,
) ([]*unstructured.Unstructured, error) {
	copies := make([]*unstructured.Unstructured, 0, len(objects))
	for _, object := range objects {
		if key := reserved(object); key != "" {
			return nil, fmt.Errorf("%s has %s, which would change how the object is applied or deleted: "+
				"remove it from the tree", render.IDOf(object), key)
		}
		object = object.DeepCopy()
		all := annotations(object)
		maps.Copy(all, object.GetAnnotations())
		if len(all) > 0 {
			object.SetAnnotations(all)
		}
		copies = append(copies, object)
	}
	return copies, nil
}

// argoReserved returns the key of an annotation that Argo CD acts on. With argocd.argoproj.io/hook or helm.sh/hook, for
// example, Argo CD deletes an object once it is applied.
func argoReserved(object *unstructured.Unstructured) string {
	return firstKey(object.GetAnnotations(), argoPrefix, "helm.sh/")
}

// fluxReserved returns the key of a label or an annotation that Flux, or kustomize in it, acts on.
func fluxReserved(object *unstructured.Unstructured) string {
	if key := firstKey(object.GetLabels(), fluxPrefix); key != "" {
		return key
	}
	return firstKey(object.GetAnnotations(), fluxPrefix, "config.kubernetes.io/")
}

// argoInstance is the label by which Argo CD tracks objects before version 3.
const argoInstance = "app.kubernetes.io/instance"

// Adds reports whether a label or an annotation with this key on an object in the cluster is one that Files or the
// engine adds to what a tree declares.
func Adds(object *unstructured.Unstructured, key string) bool {
	return strings.HasPrefix(key, argoPrefix) || strings.HasPrefix(key, fluxPrefix) ||
		key == argoInstance && firstKey(object.GetAnnotations(), argoPrefix) != ""
}

// firstKey returns the first key that begins with one of some prefixes, or "".
func firstKey(metadata map[string]string, prefixes ...string) string {
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
			return key
		}
	}
	return ""
}

// argoAnnotations returns the annotations of an object for Argo CD.
//
// Delete=false keeps all objects when the Application is deleted. A Namespace is never pruned, and IgnoreExtraneous
// keeps an undeclared one from starting a sync again and again. PruneLast deletes undeclared policies after the last
// wave, in which namespaces move to the policies that replace them. By server-side apply, a template may be larger than
// an annotation.
func argoAnnotations(id inventory.ID, tree string) map[string]string {
	annotations := map[string]string{
		waveKey:        strconv.Itoa(wave(id, tree)),
		syncOptionsKey: "Delete=false,PruneLast=true,ServerSideApply=true",
	}
	if isNamespace(id) {
		annotations[syncOptionsKey] = "Delete=false,Prune=false,ServerSideApply=true"
		annotations[compareKey] = "IgnoreExtraneous"
	}
	return annotations
}

// wave returns the wave of an object. All waves are before 0, the wave of objects without the annotation. Within a
// wave, Argo CD applies objects of a kind at the same time. The template of the root has a wave of its own, since it
// makes the operator delete what no template declares.
func wave(id inventory.ID, tree string) int {
	switch phase := inventory.PhaseOf(id.GroupKind); {
	case phase == inventory.Cluster:
		return -5
	case phase == inventory.Templates && id.Name != tree:
		return -4
	case phase == inventory.Templates:
		return -3
	case phase == inventory.Spaces:
		return -2
	}
	return -1
}

// fluxAnnotations returns the annotations of an object for Flux: a Namespace is never pruned, and the tokens in a
// template are not taken for variables of Flux.
func fluxAnnotations(id inventory.ID) map[string]string {
	switch inventory.PhaseOf(id.GroupKind) {
	case inventory.Namespaces:
		return map[string]string{pruneKey: disabled}
	case inventory.Templates:
		return map[string]string{substituteKey: disabled}
	case inventory.Cluster, inventory.Spaces:
	}
	return map[string]string{}
}
