package match

import (
	"fmt"
	"slices"
	"strings"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// InvalidAnnotation is an annotation of a template that has none of its values.
type InvalidAnnotation struct {
	Key, Value string
	// Values are those that the annotation may have.
	Values []string
}

func (i InvalidAnnotation) String() string {
	return fmt.Sprintf(`the value %q of the annotation %s is invalid: write "%s"`, i.Value, i.Key,
		strings.Join(i.Values, `" or "`))
}

// InvalidAnnotations returns the annotations of a template that switch something and have none of their values. Such a
// template requires permission if it has any value of RequirePermissionAnnotation but "false", and is enabled if it has
// any value of TemplateApplyAnnotation but "disable".
func InvalidAnnotations(template *v1alpha1.NamespaceTemplate) []InvalidAnnotation {
	var invalid []InvalidAnnotation
	check := func(key string, values ...string) {
		if value, exists := template.Annotations[key]; exists && !slices.Contains(values, value) {
			invalid = append(invalid, InvalidAnnotation{key, value, values})
		}
	}
	check(v1alpha1.RequirePermissionAnnotation, "true", "false")
	check(v1alpha1.TemplateApplyAnnotation, v1alpha1.TemplateApplyDisable, v1alpha1.TemplateApplyEnable)
	return invalid
}
