package vet

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/manifests/crd"
	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
	engineschema "nstpl.dev/nstpl/operator/engine/schema"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/source"
)

// checkFiles checks the templates and configurations in files, and prints the violations. Violated reports whether
// there are any.
func (v *vet) checkFiles(ctx context.Context) (violated bool, err error) {
	files, err := source.ReadAll(v.files, v.In)
	if err != nil {
		return false, err
	}
	if len(files.Documents) == 0 {
		return false, fmt.Errorf("no NamespaceTemplate found in %q", v.files)
	}
	var c *cluster.Cluster
	if v.server {
		if c, err = v.Connect(); err != nil {
			return false, err
		}
	}
	definitions, err := crd.All()
	if err != nil {
		return false, err
	}
	if v.schemas, err = engineschema.New(definitions...); err != nil {
		return false, err
	}
	violations, seen := []violation{}, map[string]bool{}
	for _, document := range files.Documents {
		object := nameOf(document)
		problems := v.check(ctx, document)
		if object != "" && seen[object] {
			problems = append(problems, errors.New("declared more than once in the files"))
		}
		seen[object] = true
		if v.server && len(problems) == 0 {
			if problems, err = dryRun(ctx, c, document); err != nil {
				return false, err
			}
		}
		for _, problem := range problems {
			violations = append(violations, violation{document.File, object, problem.Error()})
		}
	}
	return len(violations) > 0, v.write(len(files.Documents), violations)
}

// check returns the violations of a document, without a cluster.
func (v *vet) check(ctx context.Context, document source.Document) []error {
	if document.Err != nil {
		return []error{document.Err}
	}
	if document.Template == nil {
		return nil
	}
	for _, warning := range render.Warnings(document.Template) {
		if !v.server { // the API server prints its own warnings
			v.Note("Warning: %s", warning)
		}
	}
	var problems []error
	for _, problem := range render.Vet(ctx, document.Template, v.schemas) {
		problems = append(problems, problem)
	}
	return problems
}

// nameOf returns the name of the object in a document, or "" if the document is invalid.
func nameOf(document source.Document) string {
	switch {
	case document.Template != nil:
		return output.Object(schema.GroupKind{Kind: "NamespaceTemplate"}, document.Template.Name)
	case document.Initialization != nil:
		return output.Object(schema.GroupKind{Kind: "NamespaceInitializationConfiguration"},
			document.Initialization.Name)
	}
	return ""
}

// dryRun returns the violations for which the API server would reject an object. It returns an error if the API server
// could not check the object.
func dryRun(ctx context.Context, c *cluster.Cluster, document source.Document) ([]error, error) {
	var resource schema.GroupVersionResource
	var name string
	if document.Template != nil {
		resource, name = v1alpha1.NamespaceTemplates, document.Template.Name
	} else {
		resource, name = v1alpha1.NamespaceInitializationConfigurations, document.Initialization.Name
	}
	data, err := yaml.YAMLToJSON(document.Data)
	if err != nil {
		return nil, err
	}
	force := true
	_, err = c.Dynamic.Resource(resource).Patch(ctx, name, types.ApplyPatchType, render.EscapeJSON(data),
		metav1.PatchOptions{
			DryRun: []string{metav1.DryRunAll}, Force: &force, FieldManager: cli.FieldManager,
			FieldValidation: metav1.FieldValidationStrict,
		})
	switch {
	case apierrors.IsNotFound(err):
		return nil, cluster.NotInstalledError{}
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return []error{err}, nil
	}
	return nil, err
}

func (v *vet) write(documents int, violations []violation) error {
	if v.format == cli.FormatJSON {
		if err := output.JSON(v.Out, violations); err != nil {
			return err
		}
	} else {
		for _, violation := range violations {
			where := violation.File + ": "
			if violation.Object != "" {
				where += violation.Object + ": "
			}
			for line := range strings.SplitSeq(violation.Message, "\n") {
				output.Line(v.Out, "%s%s", where, line)
			}
		}
	}
	if len(violations) == 0 {
		v.Note("%s, no violations", output.Count(documents, "object"))
		return nil
	}
	v.Note("%s, %s", output.Count(documents, "object"), output.Count(len(violations), "violation"))
	return nil
}
