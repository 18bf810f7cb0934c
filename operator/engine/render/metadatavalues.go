package render

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/manifest"
)

// usedKey is a label or an annotation of the namespace from which a template renders.
type usedKey struct {
	MetadataKey
	// in names the first object with its token, such as resourcequota/budget, or is namespaceMetadata.
	in string
	// count is the number of its tokens.
	count int
}

// findUsedKeys returns the labels and annotations from which the template renders, in the order of their keys.
func (c *Compiled) findUsedKeys() []usedKey {
	var used []usedKey
	find := func(in string, value any) {
		eachToken(value, func(token string) {
			key, isValue := keyIn(token)
			if !isValue {
				return
			}
			i := slices.IndexFunc(used, func(s usedKey) bool { return s.MetadataKey == key })
			if i < 0 {
				i, used = len(used), append(used, usedKey{MetadataKey: key, in: in})
			}
			used[i].count++
		})
	}
	for i := range c.objects {
		find(IDOf(&c.objects[i].Unstructured).String(), c.objects[i].Object)
	}
	for _, value := range c.metadata {
		find("namespaceMetadata", value)
	}
	slices.SortFunc(used, func(a, b usedKey) int { return a.Compare(b.MetadataKey) })
	return used
}

// UsedKeys returns the labels and annotations of the namespace from which the template renders.
func (c *Compiled) UsedKeys() []MetadataKey {
	var keys []MetadataKey
	for _, key := range c.usedKeys {
		keys = append(keys, key.MetadataKey)
	}
	return keys
}

// Declares reports whether the template declares a label or an annotation of the namespace.
func (c *Compiled) Declares(key MetadataKey) bool {
	_, declares := c.metadata[key]
	return declares
}

// MissingError reports that a namespace lacks labels or annotations from which a template renders.
type MissingError struct {
	template string
	missing  []string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("template %s: the namespace has %s: ask a user who may set it", e.template,
		strings.Join(e.missing, ", and "))
}

// maxInserted is how many bytes the values of labels and annotations may add to the objects of a template.
const maxInserted = maxStored

// checkValues returns an error if a namespace lacks a label or an annotation from which the template renders, or if
// their values are too long.
func (c *Compiled) checkValues(values Values) error {
	var missing []string
	inserted := 0
	for _, key := range c.usedKeys {
		value := values.valueOf(key.MetadataKey)
		if value == "" {
			missing = append(missing,
				fmt.Sprintf("no value of the %s, for %s in %s", key, key.Token(), key.in))
		}
		inserted += key.count * len(value)
	}
	switch {
	case len(missing) > 0:
		return &MissingError{template: c.Template, missing: missing}
	case inserted > maxInserted:
		return fmt.Errorf("template %s: labels and annotations of the namespace add %d bytes to its objects, "+
			"more than the allowed %d: shorten them", c.Template, inserted, maxInserted)
	}
	return nil
}

// NewUnprotectedError returns the error that a template renders from labels or annotations that no rule protects.
func NewUnprotectedError(keys []MetadataKey) error {
	tokens, names := make([]string, 0, len(keys)), make([]string, 0, len(keys))
	for _, key := range keys {
		tokens, names = append(tokens, key.Token()), append(names, key.String())
	}
	return fmt.Errorf("%s cannot be used, since no ClusterProtectedAttribute protects the %s: users who may change a "+
		"namespace could choose the value: create a ClusterProtectedAttribute, or remove the token",
		strings.Join(tokens, ", "), strings.Join(names, ", "))
}

// NewDependencyError returns the error that a template renders from a label or an annotation that another template
// sets.
func NewDependencyError(key MetadataKey, setter string) error {
	return fmt.Errorf("the token %s cannot be used, since template %s sets the %s (namespaceMetadata): a template cannot "+
		"depend on what templates set: write its value instead, or have a user set it", key.Token(), setter, key)
}

// Reference is a token of a label or an annotation in a template.
type Reference struct {
	MetadataKey
	// Part is the object or the overlay with the token, and Path the path of the field in the template.
	Part Part
	Path string
}

// UsedKeys returns the labels and annotations of namespaces from which a template renders.
func UsedKeys(spec *v1alpha1.NamespaceTemplateSpec) []MetadataKey {
	var keys []MetadataKey
	for _, reference := range References(spec) {
		if !slices.Contains(keys, reference.MetadataKey) {
			keys = append(keys, reference.MetadataKey)
		}
	}
	return keys
}

// References returns the tokens of labels and annotations in a template and its overlays, without compiling them.
func References(spec *v1alpha1.NamespaceTemplateSpec) []Reference {
	var found []Reference
	find := func(part Part, path string, value any) {
		visitStrings(path, value, func(at, text string) {
			eachToken(text, func(token string) {
				reference := Reference{Part: part, Path: at}
				var isValue bool
				reference.MetadataKey, isValue = keyIn(token)
				if isValue && !slices.Contains(found, reference) {
					found = append(found, reference)
				}
			})
		})
	}
	for i, raw := range spec.Templates {
		var object map[string]any
		if mayHaveReferences(raw.Raw) && utiljson.Unmarshal(raw.Raw, &object) == nil {
			find(Part{Objects, i}, Part{Objects, i}.String(), object)
		}
	}
	findIn := func(part Part, path string, declared *v1alpha1.NamespaceMetadata) {
		for key, value := range MetadataOf(declared) {
			find(part, path+".namespaceMetadata."+key.path(), value)
		}
	}
	findIn(Part{}, "spec", spec.NamespaceMetadata)
	for i := range spec.Overlays {
		overlay, part := &spec.Overlays[i], Part{Overlays, i}
		findIn(part, part.String(), overlay.NamespaceMetadata)
		for j, patch := range overlay.Patches {
			path := fmt.Sprintf("%s.patches[%d].patch", part, j)
			find(part, path, patch.Patch)
			var parsed any
			if strings.Contains(patch.Patch, `\`) && isReadable(patch) &&
				utilyaml.Unmarshal([]byte(patch.Patch), &parsed) == nil {
				visitStrings("", parsed, func(_, text string) { find(part, path, text) })
			}
		}
		for field, values := range map[string]map[string]string{
			Labels: overlay.Labels, Annotations: overlay.Annotations,
		} {
			for key, value := range values {
				find(part, fmt.Sprintf("%s.%s[%s]", part, field, key), value)
			}
		}
		for j, image := range overlay.Images {
			find(part, fmt.Sprintf("%s.images[%d]", part, j), []any{image.NewName, image.NewTag, image.Digest})
		}
	}
	slices.SortStableFunc(found, func(a, b Reference) int { return strings.Compare(a.Path, b.Path) })
	return found
}

// mayHaveReferences reports whether the JSON of an object, as the API server writes it, may contain tokens of labels or
// annotations.
func mayHaveReferences(raw []byte) bool {
	return bytes.Contains(raw, []byte(labelToken)) || bytes.Contains(raw, []byte(annotationToken))
}

// checkReferences returns the tokens of labels and annotations from which no template may render, with their paths.
func checkReferences(template *v1alpha1.NamespaceTemplate) []Problem {
	var problems []Problem
	for _, reference := range References(&template.Spec) {
		if problem := usedKeyProblem(template, reference.MetadataKey); problem != nil {
			problem.Part, problem.Path = reference.Part, reference.Path
			problems = append(problems, *problem)
		}
	}
	return problems
}

// checkUsedKeys returns the labels and annotations from which no template may render, of a template that is compiled.
// Patches may compose tokens that References does not find.
func checkUsedKeys(template *v1alpha1.NamespaceTemplate, used []usedKey) []Problem {
	var problems []Problem
	for _, key := range used {
		if problem := usedKeyProblem(template, key.MetadataKey); problem != nil {
			problem.Object = key.in
			problems = append(problems, *problem)
		}
	}
	return problems
}

// usedKeyProblem returns why a template may not render from a label or an annotation, or nil. Whether a rule protects
// it is for the caller to judge.
func usedKeyProblem(template *v1alpha1.NamespaceTemplate, key MetadataKey) *Problem {
	prefix, _, _ := strings.Cut(key.Key, "/")
	invalid := validation.IsQualifiedName(key.Key)
	if key.Field == Annotations {
		invalid = validation.IsQualifiedName(strings.ToLower(key.Key))
	}
	problem := &Problem{Rule: ruleToken, Message: "the token " + key.Token() + " cannot be used"}
	switch {
	case len(invalid) > 0:
		problem.Message = fmt.Sprintf("the token %s has an invalid key: %s", key.Token(), invalid[0])
		problem.Remedy = "correct it, or write $" + key.Token() + " for the literal text"
	case key == MetadataKey{Labels, corev1.LabelMetadataName}:
		problem.Remedy = "use " + NamespaceToken + ", which is the same"
	case key == MetadataKey{Annotations, v1alpha1.CreatorAnnotation}:
		problem.Remedy = "use " + CreatorToken + ", which is the same"
	case IsReservedKey(key.Key) || prefix == "policy":
		problem.Message += ", since the " + key.String() + " is reserved for nstpl"
		problem.Remedy = "templates can use labels and annotations that ClusterProtectedAttributes protect"
	case len(DeclaredMetadata(&template.Spec)[key]) > 0:
		problem.Message += ", since the template itself sets the " + key.String()
		problem.Remedy = "write its value instead: a template cannot depend on what templates set"
	default:
		return nil
	}
	return problem
}

// DependsOnValues reports whether the field of an object at a path has a token of a label or an annotation in
// it. An empty path is that of the whole object.
func DependsOnValues(object *unstructured.Unstructured, path string) bool {
	var field any = object.Object
	for _, step := range manifest.SplitField(path) {
		switch container := field.(type) {
		case map[string]any:
			field = container[step]
		case []any:
			var i int
			if _, err := fmt.Sscan(step, &i); err != nil || i < 0 || i >= len(container) {
				return false
			}
			field = container[i]
		default:
			return false
		}
	}
	return containsValue(field)
}
