package source

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// complete sets the defaults of a template, and returns an error for values that the API server would reject. Both
// follow the schema of the CustomResourceDefinition.
func complete(template *v1alpha1.NamespaceTemplate) error {
	if template.Name == "" {
		return errors.New("metadata.name is missing")
	}
	reasons := append(validation.IsDNS1123Subdomain(template.Name), validation.IsValidLabelValue(template.Name)...)
	if len(reasons) > 0 {
		return fmt.Errorf("metadata.name: %s", strings.Join(reasons, ", "))
	}
	spec := &template.Spec
	return errors.Join(
		setDefault("driftPolicy", &spec.DriftPolicy, v1alpha1.DriftCorrect, v1alpha1.DriftReport),
		setDefault("failurePolicy", &spec.FailurePolicy, v1alpha1.FailureFail, v1alpha1.FailureIgnore),
		setDefault("deletionPolicy", &spec.DeletionPolicy, v1alpha1.DeletionOrphan, v1alpha1.DeletionDelete),
	)
}

// checkInitialization returns an error for values that the API server would reject or that the operator would ignore.
func checkInitialization(configuration *v1alpha1.NamespaceInitializationConfiguration) error {
	if configuration.Name == "" {
		return errors.New("metadata.name is missing")
	}
	var errs []error
	seen := map[string]bool{}
	for i, initializer := range configuration.Initializers {
		addError := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("initializers[%d]: "+format, append([]any{i}, args...)...))
		}
		for _, reason := range validation.IsDNS1123Subdomain(initializer.Name) {
			addError("name: %s", reason)
		}
		if initializer.Name == v1alpha1.TemplateInitializer {
			addError("name: %s is the initializer that populates namespaces: choose another name", initializer.Name)
		}
		if seen[initializer.Name] {
			addError("name: duplicate initializer %s", initializer.Name)
		}
		seen[initializer.Name] = true
		if initializer.NamespaceSelector == nil {
			addError("namespaceSelector is missing: use {} to select every namespace")
		} else if _, err := metav1.LabelSelectorAsSelector(initializer.NamespaceSelector); err != nil {
			addError("namespaceSelector: %w", err)
		}
		if seconds := initializer.TimeoutSeconds; seconds < 0 || seconds > 86400 {
			addError("timeoutSeconds: invalid value %d: must be between 1 and 86400", seconds)
		}
		switch initializer.FailurePolicy {
		case "", v1alpha1.FailureFail, v1alpha1.FailureIgnore:
		default:
			addError("failurePolicy: invalid value %q: must be %s or %s", initializer.FailurePolicy,
				v1alpha1.FailureFail, v1alpha1.FailureIgnore)
		}
	}
	return errors.Join(errs...)
}

// setDefault sets an empty field of spec to the default. It returns an error if the field has another value than the
// default and the alternative.
func setDefault[T ~string](field string, value *T, defaultValue, alternative T) error {
	if *value == "" {
		*value = defaultValue
	}
	if *value != defaultValue && *value != alternative {
		return fmt.Errorf("spec.%s: invalid value %q: must be %s or %s", field, *value, defaultValue, alternative)
	}
	return nil
}

// Merge returns the templates of the cluster as they would be if the files were applied. A template keeps its UID and
// its status, which the operator needs to identify the objects that it populated before.
func Merge(cluster, files []*v1alpha1.NamespaceTemplate) []*v1alpha1.NamespaceTemplate {
	merged := slices.Clone(cluster)
	for _, file := range files {
		at := slices.IndexFunc(merged, func(t *v1alpha1.NamespaceTemplate) bool { return t.Name == file.Name })
		if at < 0 {
			merged = append(merged, file)
			continue
		}
		template := file.DeepCopy()
		template.UID = merged[at].UID
		template.DeletionTimestamp = merged[at].DeletionTimestamp
		template.Status = merged[at].Status
		merged[at] = template
	}
	return merged
}
