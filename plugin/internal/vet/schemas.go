package vet

import (
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"nstpl.dev/nstpl/manifests/crd"
	"nstpl.dev/nstpl/operator/engine/manifest"
	engineschema "nstpl.dev/nstpl/operator/engine/schema"
	"nstpl.dev/nstpl/plugin/internal/source"
)

// readSchemas returns the schemas of the kinds of Kubernetes and of nstpl, and of those that are defined in files or by
// the objects that are checked.
func readSchemas(paths []string, objects []source.Object) (*engineschema.Catalog, error) {
	definitions, err := crd.All()
	if err != nil {
		return nil, err
	}
	add := func(definition *apiextensionsv1.CustomResourceDefinition) {
		// The first definition counts, so that no file can replace the rules of nstpl's own kinds.
		if !slices.ContainsFunc(definitions, func(d *apiextensionsv1.CustomResourceDefinition) bool {
			return d.Spec.Group == definition.Spec.Group && d.Spec.Names.Kind == definition.Spec.Names.Kind
		}) {
			definitions = append(definitions, definition)
		}
	}
	if len(paths) > 0 {
		more, err := definitionsIn(paths)
		if err != nil {
			return nil, err
		}
		for _, definition := range more {
			add(definition)
		}
	}
	for _, object := range objects {
		if !isDefinition(object) {
			continue
		}
		if definition, err := decodeDefinition(object); err == nil { // checkDefinition reports the error
			add(definition)
		}
	}
	return engineschema.New(definitions...)
}

// definitionsIn returns the CustomResourceDefinitions in files. It ignores objects of other kinds.
func definitionsIn(paths []string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	files, err := source.ReadAll(source.Filenames{Paths: paths, Recursive: true}, nil)
	if err != nil {
		return nil, fmt.Errorf("--schema: %w", err)
	}
	for _, problem := range files.Problems {
		return nil, fmt.Errorf("--schema: %w", problem)
	}
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, object := range files.Objects {
		if !isDefinition(object) {
			continue
		}
		definition, err := decodeDefinition(object)
		if err != nil {
			return nil, fmt.Errorf("--schema: %s: %w", object.File, err)
		}
		definitions = append(definitions, definition)
	}
	if len(definitions) == 0 {
		return nil, fmt.Errorf("--schema: no CustomResourceDefinition of version v1 found in %q", paths)
	}
	return definitions, nil
}

func isDefinition(object source.Object) bool {
	return object.APIVersion == apiextensionsv1.SchemeGroupVersion.String() &&
		object.Kind == "CustomResourceDefinition"
}

// decodeDefinition returns a CustomResourceDefinition. It returns an error if its schema cannot be used.
func decodeDefinition(object source.Object) (*apiextensionsv1.CustomResourceDefinition, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	// A schema with fields of a later Kubernetes can be used all the same.
	if mistakes, whole := manifest.Decode(object.Data, definition); !whole {
		return nil, fmt.Errorf("%s: %w", nameOf(object), mistakes[len(mistakes)-1])
	}
	_, err := engineschema.New(definition)
	return definition, err
}

// checkDefinition reports why the API server would reject a CustomResourceDefinition.
func (c *checker) checkDefinition(object source.Object) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	mistakes, whole := manifest.Decode(object.Data, definition)
	for _, mistake := range mistakes {
		c.violate(object, ruleSchema, mistake.Field, strings.TrimPrefix(mistake.Message, mistake.Field+" "),
			"correct or remove the field")
	}
	if !whole {
		return
	}
	if _, err := engineschema.New(definition); err != nil {
		c.violate(object, ruleSchema, "spec", err.Error(), "correct the schema")
	}
}
