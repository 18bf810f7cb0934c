package source

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/manifest"
)

// complete sets the defaults of a template, and returns the values that the API server would reject. Both follow the
// schema of the CustomResourceDefinition.
func complete(template *v1alpha1.NamespaceTemplate) []manifest.Mistake {
	var mistakes []manifest.Mistake
	reasons := append(validation.IsDNS1123Subdomain(template.Name), validation.IsValidLabelValue(template.Name)...)
	switch {
	case template.Name == "":
		mistakes = append(mistakes, manifest.Mistake{Field: "metadata", Message: "metadata.name is missing"})
	case len(reasons) > 0:
		mistakes = append(mistakes,
			manifest.Mistake{Field: "metadata.name", Message: "metadata.name: " + strings.Join(reasons, ", ")})
	}
	spec := &template.Spec
	return slices.Concat(mistakes,
		setDefault("driftPolicy", &spec.DriftPolicy, v1alpha1.DriftCorrect, v1alpha1.DriftReport),
		setDefault("failurePolicy", &spec.FailurePolicy, v1alpha1.FailureFail, v1alpha1.FailureIgnore),
		setDefault("deletionPolicy", &spec.DeletionPolicy, v1alpha1.DeletionOrphan, v1alpha1.DeletionDelete),
	)
}

// setDefault sets an empty field of spec to the default. It returns a mistake if the field has another value than the
// default and the alternative.
func setDefault[T ~string](field string, value *T, defaultValue, alternative T) []manifest.Mistake {
	if *value == "" {
		*value = defaultValue
	}
	if *value == defaultValue || *value == alternative {
		return nil
	}
	return []manifest.Mistake{{
		Field: "spec." + field,
		Message: fmt.Sprintf("spec.%s: invalid value %q: must be %s or %s", field, *value, defaultValue,
			alternative),
	}}
}

// Merge returns the templates of the cluster as they would be if the files were applied. A template keeps its UID and
// its status, which the operator needs to identify the objects that it populated before, and gets a new generation. It
// has no revisions: none of those in the cluster has the spec of the file.
func Merge(cluster, files []*v1alpha1.NamespaceTemplate) []*v1alpha1.NamespaceTemplate {
	merged := slices.Clone(cluster)
	for _, file := range files {
		at := slices.IndexFunc(merged, func(t *v1alpha1.NamespaceTemplate) bool { return t.Name == file.Name })
		if at < 0 {
			merged = append(merged, file)
			continue
		}
		template := file.DeepCopy()
		template.UID, template.Generation = merged[at].UID, merged[at].Generation+1
		template.DeletionTimestamp = merged[at].DeletionTimestamp
		template.Status = merged[at].Status
		template.Status.Revisions = nil
		merged[at] = template
	}
	return merged
}
