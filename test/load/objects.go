package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// objectsYAML has the objects that both sides create in a namespace.
//
//go:embed objects.yaml
var objectsYAML []byte

// stageLabel is a label of all objects, which rollouts and edits change.
const stageLabel = "load.nstpl.dev/stage"

// objects returns the objects of a namespace.
func objects(stage string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(objectsYAML), 1024)
	for {
		object := &unstructured.Unstructured{}
		err := documents.Decode(object)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read objects.yaml: %w", err)
		}
		object.SetLabels(map[string]string{stageLabel: stage})
		all = append(all, object)
	}
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
