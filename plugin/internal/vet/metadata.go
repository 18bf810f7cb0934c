package vet

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/manifest"
	"nstpl.dev/nstpl/plugin/internal/source"
)

// checkMetadata reports names, labels and annotations that the API server would reject.
func (c *checker) checkMetadata(object source.Object) {
	var fields struct {
		Metadata struct {
			Labels      json.RawMessage `json:"labels"`
			Annotations json.RawMessage `json:"annotations"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(object.Data, &fields) // the schema reports fields of other types
	reject := func(at, value string, reasons []string) {
		if len(reasons) > 0 && value != "" && !c.isReported(object, at) {
			c.violate(object, ruleSchema, at, fmt.Sprintf("%q is invalid: %s", value, plain(reasons[0])),
				"correct the name")
		}
	}
	// Kinds of Kubernetes have other rules, each its own.
	if object.GroupVersionKind().Group == v1alpha1.GroupVersion.Group {
		reject("metadata.name", object.Name, validation.IsDNS1123Subdomain(object.Name))
	}
	reject("metadata.namespace", object.Namespace, validation.IsDNS1123Label(object.Namespace))
	labels, annotations := map[string]string{}, map[string]string{}
	path := field.NewPath("metadata")
	if json.Unmarshal(fields.Metadata.Labels, &labels) == nil {
		c.invalid(object, ruleSchema, labels, metav1validation.ValidateLabels(labels, path.Child("labels")))
	}
	if json.Unmarshal(fields.Metadata.Annotations, &annotations) == nil {
		c.invalid(object, ruleSchema, annotations,
			apivalidation.ValidateAnnotations(annotations, path.Child("annotations")))
	}
}

// checkSelector reports why the API server would reject a label selector.
func (c *checker) checkSelector(object source.Object, at string, data json.RawMessage) {
	selector := &metav1.LabelSelector{}
	if data == nil {
		return
	}
	if _, whole := manifest.Decode(data, selector); !whole {
		return
	}
	errs := metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{},
		field.NewPath(at))
	if len(errs) > 0 {
		// The schema reports the same, without the requirement that is wrong.
		c.Violations = slices.DeleteFunc(c.Violations, func(v finding) bool {
			return v.Path == object.File && v.begins == object.Lines.Of() && v.Rule == ruleSchema && v.Field != "" &&
				(at == v.Field || strings.HasPrefix(at, v.Field+"."))
		})
	}
	c.invalid(object, ruleSelector, selector.MatchLabels, errs)
}

// invalid reports the errors of Kubernetes' validation. labels are the labels that it validated: its errors do not
// name the key.
func (c *checker) invalid(object source.Object, rule string, labels map[string]string, errs field.ErrorList) {
	for _, wrong := range errs {
		at := wrong.Field
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			if bad := fmt.Sprint(wrong.BadValue); strings.HasSuffix(strings.ToLower(at), "labels") &&
				(bad == key || bad == labels[key]) || strings.HasSuffix(at, "annotations") && bad == key {
				at += "[" + key + "]"
				break
			}
		}
		if message, remedy := sentence(wrong); !c.isReported(object, at) {
			c.violate(object, rule, at, message, remedy)
		}
	}
}

// sentence returns an error of Kubernetes' validation in words, and what to do about it.
func sentence(wrong *field.Error) (message, remedy string) {
	detail := strings.ReplaceAll(plain(wrong.Detail), "`", "")
	switch {
	case wrong.Type == field.ErrorTypeRequired:
		return "is required", detail
	case wrong.Type == field.ErrorTypeForbidden:
		return "is not allowed here", detail
	case strings.HasSuffix(wrong.Field, ".operator"):
		return fmt.Sprintf("%q is not an operator", fmt.Sprint(wrong.BadValue)),
			"must be one of In, NotIn, Exists, DoesNotExist"
	}
	return fmt.Sprintf("%q is invalid: %s", fmt.Sprint(wrong.BadValue), detail), "correct the value"
}

// examples matches the examples and the regular expression in a reason of Kubernetes' validation.
var examples = regexp.MustCompile(` \(e\.g\. .*?regex used for validation is '.*?'\)`)

// plain returns a reason of Kubernetes' validation without its examples and its regular expression.
func plain(reason string) string { return examples.ReplaceAllString(reason, "") }
