package main

import (
	_ "embed"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/operator"
)

// objectsYAML has the objects that both sides create in a namespace.
//
//go:embed objects.yaml
var objectsYAML string

// stageLabel is a label of all objects, which rollouts and edits change.
const stageLabel = "load.nstpl.dev/stage"

// objects returns the objects of a namespace.
func objects(stage string) ([]*unstructured.Unstructured, error) {
	all, err := operator.Decode(objectsYAML)
	for _, object := range all {
		object.SetLabels(map[string]string{stageLabel: stage})
	}
	return all, err
}

// template returns a template that declares the objects for the namespaces of a side.
func template(of side, stage string) ([]byte, error) {
	all, err := objects(stage)
	if err != nil {
		return nil, err
	}
	declared := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: templateName(of)}}
	declared.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NamespaceTemplate"))
	declared.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{
		MatchLabels: map[string]string{sideLabel: string(of)},
	}
	for _, object := range all {
		declared.Spec.Templates = append(declared.Spec.Templates, runtime.RawExtension{Object: object})
	}
	return json.Marshal(declared)
}

func templateName(of side) string {
	return "load-" + string(of)
}
