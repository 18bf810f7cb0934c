package vet

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/manifest"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/source"
)

// checkTemplate reports what prevents a template from populating namespaces, and the objects in it whose kinds have no
// known schema.
func (c *checker) checkTemplate(ctx context.Context, object source.Object) {
	template, selectors := decodeTemplate(object)
	c.related.templates = append(c.related.templates, namespaceTemplate{template, object})
	for _, selector := range selectors {
		c.checkSelector(object, selector.field, selector.data)
	}
	problems := render.Vet(ctx, template, c.schemas)
	if reduced, omitted := compilable(ctx, template, problems); reduced != nil {
		problems = append(problems, overlayProblems(render.Vet(ctx, reduced, c.schemas), omitted)...)
	}
	for _, problem := range problems {
		c.checkedTemplate(object, template, problem)
	}
	if c.cluster != nil { // the API server prints its own warnings, and knows all kinds
		return
	}
	for _, warning := range render.Warnings(template) {
		path, message := splitField(warning)
		c.warn(object, path, message)
	}
	for i, raw := range template.Spec.Templates {
		head := headOf(raw)
		if kind := head.GroupVersionKind(); kind.Kind != "" && kind.Version != "" && !c.schemas.Knows(kind) {
			c.skip(object, fmt.Sprintf("spec.templates[%d]", i), nameIn(head)+": "+noSchema(kind))
		}
	}
}

// checkedTemplate adds a problem of a template, unless another rule has already reported the field.
func (c *checker) checkedTemplate(object source.Object, template *v1alpha1.NamespaceTemplate, problem render.Problem) {
	isSelector := problem.Rule == ruleSelector && slices.ContainsFunc(c.Violations, func(v finding) bool {
		return v.Path == object.File && v.begins == object.Lines.Of() && strings.HasPrefix(v.Field, problem.Path)
	})
	if isSelector || c.isReported(object, problem.Path) {
		return
	}
	message := problem.Message
	if problem.Object != "" {
		message = problem.Object + ": " + message
	}
	found := at(object, problem.Rule, problem.Path, message, problem.Remedy)
	if line := lineInPatch(object, template, problem); line > 0 {
		found.Line = line
	}
	if problem.Unchecked {
		found.Rule = ""
		c.Skipped = append(c.Skipped, found)
		return
	}
	c.Violations = append(c.Violations, found)
}

// selector is a label selector of a template.
type selector struct {
	field string
	data  json.RawMessage
}

// decodeTemplate returns a template without the fields that its schema alone decides about, and its selectors. Fields
// of other types are left out: the schema reports them.
func decodeTemplate(object source.Object) (template *v1alpha1.NamespaceTemplate, selectors []selector) {
	type namespaces struct {
		LabelSelector json.RawMessage `json:"labelSelector"`
	}
	var raw struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	var overlays []struct {
		Namespaces namespaces `json:"namespaces"`
	}
	var rollout struct {
		Waves []struct {
			Selector json.RawMessage `json:"selector"`
		} `json:"waves"`
	}
	var selected namespaces
	template = &v1alpha1.NamespaceTemplate{}
	template.Name = object.Name
	_ = json.Unmarshal(object.Data, &raw)
	for name, into := range map[string][]any{
		"namespaces": {&template.Spec.Namespaces, &selected}, "templates": {&template.Spec.Templates},
		"overlays": {&template.Spec.Overlays, &overlays}, "authoritative": {&template.Spec.Authoritative},
		"namespaceMetadata": {&template.Spec.NamespaceMetadata}, "rollout": {&rollout},
		"sources": {&template.Spec.Sources},
	} {
		for _, value := range into {
			if data := raw.Spec[name]; data != nil {
				manifest.Decode(data, value)
			}
		}
	}
	selectors = append(selectors, selector{"spec.namespaces.labelSelector", selected.LabelSelector})
	for i, overlay := range overlays {
		selectors = append(selectors,
			selector{fmt.Sprintf("spec.overlays[%d].namespaces.labelSelector", i), overlay.Namespaces.LabelSelector})
	}
	for i, wave := range rollout.Waves {
		selectors = append(selectors, selector{fmt.Sprintf("spec.rollout.waves[%d].selector", i), wave.Selector})
	}
	return template, selectors
}

// maxReduced is the number of objects at most in a template whose overlays are checked although it is invalid itself.
const maxReduced = 64

// compilable returns a template without what keeps it from being compiled, so that its overlays can be checked in the
// same run, and reports whether objects are omitted. It returns nil if the overlays have been checked, or if there are
// none.
func compilable(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, problems []render.Problem,
) (reduced *v1alpha1.NamespaceTemplate, omitted bool) {
	if _, err := render.Compile(ctx, template, nil); err == nil || len(template.Spec.Overlays) == 0 ||
		len(template.Spec.Templates) > maxReduced {
		return nil, false
	}
	reduced = template.DeepCopy()
	everything := v1alpha1.NamespaceSelector{LabelSelector: &metav1.LabelSelector{}}
	reduced.Spec.Namespaces = everything
	reduced.Spec.NamespaceMetadata, reduced.Spec.Sources = nil, nil
	for i := range reduced.Spec.Overlays {
		reduced.Spec.Overlays[i].Namespaces, reduced.Spec.Overlays[i].NamespaceMetadata = everything, nil
	}
	reduced.Spec.Templates = nil
	for i, raw := range template.Spec.Templates {
		single := &v1alpha1.NamespaceTemplate{ObjectMeta: template.ObjectMeta}
		single.Spec.Namespaces, single.Spec.Templates = everything, []runtime.RawExtension{raw}
		isTwice := slices.ContainsFunc(problems, func(p render.Problem) bool {
			return p.Rule == ruleDuplicate && p.Part == render.Part{List: render.Objects, Index: i}
		})
		if _, err := render.Compile(ctx, single, nil); err == nil && !isTwice {
			reduced.Spec.Templates = append(reduced.Spec.Templates, raw)
		} else {
			omitted = true
		}
	}
	return reduced, omitted
}

// overlayProblems returns the problems of overlays. If objects are omitted, it leaves out that an overlay cannot be
// applied: its patches may change these objects.
func overlayProblems(problems []render.Problem, omitted bool) []render.Problem {
	return slices.DeleteFunc(problems, func(p render.Problem) bool {
		return p.Part.List != render.Overlays || omitted && p.Rule == "overlay"
	})
}

// lineInPatch returns the line of the field in a patch that makes an object invalid, or 0 if it is not known.
func lineInPatch(object source.Object, template *v1alpha1.NamespaceTemplate, problem render.Problem) int {
	if problem.OverlayField == "" || problem.Part.List != render.Overlays {
		return 0
	}
	overlay := problem.Part.Index
	steps := manifest.SplitField(problem.OverlayField)
	for i, patch := range template.Spec.Overlays[overlay].Patches {
		inside := object.Lines.Text(manifest.SplitField(
			fmt.Sprintf("spec.overlays[%d].patches[%d].patch", overlay, i))...)
		var operations []struct{ Path string }
		if yaml.Unmarshal([]byte(patch.Patch), &operations) == nil {
			for number, operation := range operations {
				if isAtOrAbove(operation.Path, steps) {
					return inside.Of(fmt.Sprint(number))
				}
			}
			continue
		}
		var head metav1.PartialObjectMetadata
		if yaml.Unmarshal([]byte(patch.Patch), &head) == nil && nameIn(head) == problem.Object && inside.Has(steps...) {
			return inside.Of(steps...)
		}
	}
	return 0
}

// isAtOrAbove reports whether a JSON pointer is that of a field, or of what contains the field.
func isAtOrAbove(pointer string, steps []string) bool {
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for i, step := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		if i >= len(steps) || unescape.Replace(step) != steps[i] {
			return false
		}
	}
	return true
}

// fieldPath matches a message that begins with the path of a field.
var fieldPath = regexp.MustCompile(`^(?s)(spec\.[A-Za-z]+(?:\[\d+\])?(?:\.[^\s:]+)?): (.*)$`)

// splitField splits a message that begins with the path of a field. The path is "" if it does not.
func splitField(text string) (field, message string) {
	if match := fieldPath.FindStringSubmatch(text); match != nil {
		return match[1], match[2]
	}
	return "", text
}

// headOf returns the kind and the metadata of an object in a template. They are empty if it cannot be decoded.
func headOf(raw runtime.RawExtension) metav1.PartialObjectMetadata {
	var head metav1.PartialObjectMetadata
	_ = json.Unmarshal(raw.Raw, &head) // package render reports objects that cannot be decoded
	return head
}

// nameIn returns the name of an object in kubectl's notation, such as resourcequota/budget.
func nameIn(head metav1.PartialObjectMetadata) string {
	return output.Object(schema.GroupKind{Group: head.GroupVersionKind().Group, Kind: head.Kind}, head.Name)
}

// declared returns the names of the objects in a template, by their index.
func declared(template *v1alpha1.NamespaceTemplate) []string {
	names := make([]string, len(template.Spec.Templates))
	for i, raw := range template.Spec.Templates {
		if head := headOf(raw); head.Kind != "" && head.Name != "" {
			names[i] = nameIn(head)
		}
	}
	return names
}
