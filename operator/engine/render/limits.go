package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// longestValues have the longest name of a namespace, and a creator whose name is valid everywhere. checkCreator and
// Warnings report what the names of other users can break.
var longestValues = Values{
	Namespace: strings.Repeat("n", validation.DNS1123LabelMaxLength), Creator: "c", sample: SampleValue,
}

// SampleValue is the value of every label and annotation for which templates are checked. As a name, a label and a
// quantity it is valid.
const SampleValue = "1"

// CheckLimits returns the reasons why the API server would reject an object: invalid names, labels and annotations, and
// those that are too long in a namespace with a long name. The paths are those in the object.
func CheckLimits(object *unstructured.Unstructured) []Problem {
	return checkLimits(object, longestValues)
}

// checkLimits returns the reasons why the API server would reject an object in a namespace with the values. Warnings
// reports what only a longer name of a namespace breaks.
func checkLimits(object *unstructured.Unstructured, values Values) []Problem {
	id := IDOf(object)
	var problems []Problem
	for _, reason := range nameReasons(id.GroupKind, values.expand(id.Name)) {
		problems = append(problems, Problem{
			Rule: ruleName, Path: "metadata.name", Message: "is not a valid name" + values.longNamespaceNote(id.Name),
			Remedy: reason,
		})
	}
	problems = append(problems, checkAttributeLimits(object, values)...)
	if size := storedSize(longestValues.stampObject(object)); size > maxStored {
		problems = append(problems, Problem{
			Rule: ruleSize,
			Message: fmt.Sprintf("the object needs about %d bytes with the operator's own metadata, more than the allowed %d",
				size, maxStored),
			Remedy: "split it",
		})
	}
	return naming(IDOf(object).String(), problems)
}

// checkAttributeLimits returns the reasons why the API server would reject the labels and annotations of an object.
func checkAttributeLimits(object *unstructured.Unstructured, values Values) []Problem {
	var problems []Problem
	labels, annotations := map[string]string{}, map[string]string{}
	for key, value := range object.GetLabels() {
		labels[key] = values.expand(value)
	}
	annotated := 0
	for key, value := range object.GetAnnotations() {
		annotations[key] = longestValues.expand(value)
		annotated += len(key) + len(annotations[key])
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		at := "metadata.labels[" + key + "]"
		for _, reason := range validation.IsQualifiedName(key) {
			problems = append(problems, Problem{
				Rule: ruleSchema, Path: at, Message: fmt.Sprintf("%q is not a valid label key", key), Remedy: reason,
			})
		}
		for _, reason := range validation.IsValidLabelValue(labels[key]) {
			problems = append(problems, Problem{
				Rule: ruleSchema, Path: at,
				Message: "is not a valid label value" + values.longNamespaceNote(object.GetLabels()[key]),
				Remedy:  reason,
			})
		}
	}
	invalid := apivalidation.ValidateAnnotations(annotations, field.NewPath("metadata", "annotations"))
	slices.SortFunc(invalid, func(a, b *field.Error) int { return strings.Compare(a.Error(), b.Error()) })
	for _, reason := range invalid {
		problems = append(problems, Problem{Rule: ruleSchema, Path: reason.Field, Message: reason.ErrorBody()})
	}
	if annotated > maxAnnotations && annotated <= apivalidation.TotalAnnotationSizeLimitB {
		problems = append(problems, Problem{
			Rule: ruleSize, Path: "metadata.annotations",
			Message: fmt.Sprintf("have %d bytes, more than the allowed %d", annotated, maxAnnotations),
			Remedy:  "shorten them: the operator adds its own",
		})
	}
	return problems
}

const (
	// maxAnnotations is less than what the API server allows, because the operator adds annotations.
	maxAnnotations = apivalidation.TotalAnnotationSizeLimitB - 16<<10
	// maxStored is less than the 1.5 MiB that etcd allows, because the operator adds annotations, and others a status.
	maxStored = 3<<19 - 64<<10
)

// longNamespaceNote returns a note for messages if the length of a text depends on the name of the namespace.
func (v Values) longNamespaceNote(text string) string {
	if containsToken(text, NamespaceToken) {
		return fmt.Sprintf(" (in a namespace whose name has %d characters)", len(v.Namespace))
	}
	return ""
}

// longestFitting returns the length of the longest name of a namespace with which the expanded text has no problems, or
// -1 if that does not depend on the length: all lengths fit, or even a typical name does not.
func longestFitting(text string, problemsOf func(string) []string) int {
	length := len(longestValues.Namespace)
	values := longestValues
	fits := func() bool { return len(problemsOf(values.expand(text))) == 0 }
	if fits() || !containsToken(text, NamespaceToken) {
		return -1
	}
	for ; length >= len(typicalValues.Namespace); length-- {
		values.Namespace = longestValues.Namespace[:length]
		if fits() {
			return length
		}
	}
	return -1
}

// checkCreator returns a problem for the name and the labels of an object if they contain the creator's name and are
// not valid with the names of most users.
func checkCreator(object *unstructured.Unstructured) []Problem {
	var problems []Problem
	id := IDOf(object)
	if containsToken(id.Name, CreatorToken) && len(nameReasons(id.GroupKind, mailValues.expand(id.Name))) > 0 {
		problems = append(problems, Problem{
			Rule: ruleName, Path: "metadata.name",
			Message: "is not a valid name if the creator is " + mailValues.Creator + " or a ServiceAccount",
			Remedy:  "write $(NAMESPACE) instead of $(CREATOR), or name the creator in an annotation",
		})
	}
	for _, key := range slices.Sorted(maps.Keys(object.GetLabels())) {
		if containsToken(object.GetLabels()[key], CreatorToken) {
			problems = append(problems, creatorInLabel("metadata.labels["+key+"]"))
		}
	}
	return naming(IDOf(object).String(), problems)
}

// mailValues have the name that most identity providers give to users.
var mailValues = Values{Namespace: "team-a", Creator: "jane@example.com", sample: SampleValue}

func creatorInLabel(path string) Problem {
	return Problem{
		Rule: ruleSchema, Path: path,
		Message: "is not a valid label value if the creator is " + mailValues.Creator + " or a ServiceAccount",
		Remedy:  "name the creator in an annotation",
	}
}

// nameReasons returns the reasons why an object of a kind cannot have a name. For kinds that are not built in, it
// returns only what holds for all kinds: aggregated APIs have their own rules.
func nameReasons(kind schema.GroupKind, name string) []string {
	switch {
	case kind.Group == rbacGroup || !BuiltIn(kind.Group):
		return content.IsPathSegmentName(name)
	case kind == schema.GroupKind{Kind: "Service"}:
		return validation.IsDNS1123Label(name)
	case kind == schema.GroupKind{Group: "batch", Kind: "CronJob"} && len(name) > maxCronJobName:
		return []string{fmt.Sprintf("must be no more than %d characters", maxCronJobName)}
	}
	return validation.IsDNS1123Subdomain(name)
}

const (
	rbacGroup = "rbac.authorization.k8s.io"
	// maxCronJobName is less than 63, because the Jobs of a CronJob have its name and a suffix.
	maxCronJobName = 52
)

// BuiltIn reports whether Kubernetes itself defines an API group.
func BuiltIn(group string) bool {
	switch group {
	case "", "apps", "autoscaling", "batch", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io",
		"networking.k8s.io", "policy", rbacGroup, "resource.k8s.io", "storage.k8s.io":
		return true
	}
	return false
}
