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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// objectsYAML are what both sides put into a namespace.
//
//go:embed objects.yaml
var objectsYAML []byte

// stageLabel is on all objects. A change of the template changes it, and so does somebody who makes one drift.
const stageLabel = "load.nstpl.dev/stage"

// resources are those of objectsYAML, by kind.
var resources = map[string]schema.GroupVersionResource{
	"NetworkPolicy": {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	"ResourceQuota": {Version: "v1", Resource: "resourcequotas"},
	"LimitRange":    {Version: "v1", Resource: "limitranges"},
	"Role":          {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	"RoleBinding":   {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
}

// objects returns what a namespace is to hold, at a stage.
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

// newTemplate declares the objects for the namespaces of a side.
func newTemplate(of side, stage string) (*v1alpha1.NamespaceTemplate, error) {
	all, err := objects(stage)
	if err != nil {
		return nil, err
	}
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "load-" + string(of)}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{sideLabel: string(of)}}
	for _, object := range all {
		raw, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		template.Spec.Templates = append(template.Spec.Templates, runtime.RawExtension{Raw: raw})
	}
	return template, nil
}
