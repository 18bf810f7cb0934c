// Package manifests holds the objects of `kubectl apply -k manifests`, so that the plugin knows what its release
// installs. The package crd holds the CustomResourceDefinitions.
package manifests

import (
	"embed"
	"fmt"
	"path"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/manifest"
)

//go:embed rbac/*.yaml admission/*.yaml operator/*.yaml
var files embed.FS

// Objects returns the objects in the order in which the kustomizations list them.
func Objects() ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, dir := range []string{"rbac", "admission", "operator"} {
		var kustomization struct {
			Resources []string `json:"resources"`
		}
		data, err := files.ReadFile(path.Join(dir, "kustomization.yaml"))
		if err == nil {
			err = yaml.Unmarshal(data, &kustomization)
		}
		if err != nil {
			return nil, err
		}
		for _, name := range kustomization.Resources {
			objects, err := read(path.Join(dir, name))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path.Join(dir, name), err)
			}
			all = append(all, objects...)
		}
	}
	return all, nil
}

// namespacedKinds are the kinds whose objects kustomize puts into the operator's namespace.
var namespacedKinds = map[string]bool{
	"ConfigMap": true, "Deployment": true, "NetworkPolicy": true, "PodDisruptionBudget": true, "Secret": true,
	"Service": true, "ServiceAccount": true,
}

// read returns the objects of a file, with their namespaces.
func read(name string) ([]*unstructured.Unstructured, error) {
	data, err := files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, document := range manifest.Split(manifest.Normalize(data)) {
		object := &unstructured.Unstructured{}
		if err := utilyaml.Unmarshal(document.Content, &object.Object); err != nil {
			return nil, err
		}
		if len(object.Object) == 0 {
			continue // a document with comments only
		}
		if namespacedKinds[object.GetKind()] && object.GetNamespace() == "" {
			object.SetNamespace(v1alpha1.OperatorNamespace)
		}
		objects = append(objects, object)
	}
	return objects, nil
}
