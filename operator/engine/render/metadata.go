package render

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/engine/match"
)

// Names of the fields of metadata that MetadataKey refers to.
const (
	Labels      = "labels"
	Annotations = "annotations"
)

// NamespaceKind is the kind of namespaces. Templates declare only labels and annotations of them.
var NamespaceKind = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}

// MetadataKey identifies a label or an annotation.
type MetadataKey struct {
	// Field is Labels or Annotations.
	Field, Key string
}

// String returns the key for messages, such as: label tier.
func (k MetadataKey) String() string { return strings.TrimSuffix(k.Field, "s") + " " + k.Key }

// Compare orders keys: annotations before labels, and then by name.
func (k MetadataKey) Compare(other MetadataKey) int {
	return cmp.Or(strings.Compare(k.Field, other.Field), strings.Compare(k.Key, other.Key))
}

// Attribute returns the attribute that a rule about the label or annotation protects.
func (k MetadataKey) Attribute() attributes.Attribute {
	kind := v1alpha1.LabelAttribute
	if k.Field == Annotations {
		kind = v1alpha1.AnnotationAttribute
	}
	return attributes.Attribute{Kind: kind, Name: k.Key}
}

// path returns the path of the value in a NamespaceMetadata.
func (k MetadataKey) path() string { return k.Field + "[" + k.Key + "]" }

// MetadataOf returns labels and annotations by their keys. The argument may be nil.
func MetadataOf(declared *v1alpha1.NamespaceMetadata) map[MetadataKey]string {
	if declared == nil {
		return nil
	}
	values := make(map[MetadataKey]string, len(declared.Labels)+len(declared.Annotations))
	for key, value := range declared.Labels {
		values[MetadataKey{Labels, key}] = value
	}
	for key, value := range declared.Annotations {
		values[MetadataKey{Annotations, key}] = value
	}
	return values
}

// DeclaredMetadata returns every value that a template declares for a label or an annotation of namespaces, by itself
// or in an overlay. Values may contain tokens.
func DeclaredMetadata(spec *v1alpha1.NamespaceTemplateSpec) map[MetadataKey][]string {
	all := map[MetadataKey][]string{}
	add := func(declared *v1alpha1.NamespaceMetadata) {
		for key, value := range MetadataOf(declared) {
			if !slices.Contains(all[key], value) {
				all[key] = append(all[key], value)
			}
		}
	}
	add(spec.NamespaceMetadata)
	for i := range spec.Overlays {
		add(spec.Overlays[i].NamespaceMetadata)
	}
	return all
}

// metadataOf returns the labels and annotations of namespaces that a template declares with the named overlays.
func metadataOf(template *v1alpha1.NamespaceTemplate, overlays []string) map[MetadataKey]string {
	values := MetadataOf(template.Spec.NamespaceMetadata)
	for i := range template.Spec.Overlays {
		overlay := &template.Spec.Overlays[i]
		if overlay.NamespaceMetadata == nil || !slices.Contains(overlays, overlay.Name) {
			continue
		}
		if values == nil {
			values = map[MetadataKey]string{}
		}
		maps.Copy(values, MetadataOf(overlay.NamespaceMetadata))
	}
	return values
}

// StampMetadata returns the labels and annotations of one namespace, for which Stamp returned no error. It omits values
// with the token of the creator if the creator is unknown.
func (c *Compiled) StampMetadata(values Values) (map[MetadataKey]string, []Omission) {
	if len(c.metadata) == 0 {
		return nil, nil
	}
	stamped := make(map[MetadataKey]string, len(c.metadata))
	var omitted []Omission
	for _, key := range slices.SortedFunc(maps.Keys(c.metadata), MetadataKey.Compare) {
		value := c.metadata[key]
		if values.Creator == "" && containsToken(value, CreatorToken) {
			omitted = append(omitted, Omission{
				Template: c.Template, Kind: NamespaceKind, Name: values.Namespace,
				Reason: key.String() + " names the namespace's creator, who is not known",
			})
			continue
		}
		stamped[key] = values.expand(value)
	}
	return stamped, omitted
}

// maxMetadata is the greatest size of the labels and annotations that a template declares, in bytes. The API server
// stores 256 KiB of annotations.
const maxMetadata = 64 << 10

// checkNamespaceMetadata returns why labels and annotations that a template declares for namespaces are invalid.
func checkNamespaceMetadata(template *v1alpha1.NamespaceTemplate) []Problem {
	selects := match.SelectorKeys(&template.Spec)
	problems := checkMetadataOf(template.Spec.NamespaceMetadata, selects)
	for i := range problems {
		problems[i] = problems[i].under("spec.namespaceMetadata")
	}
	for i := range template.Spec.Overlays {
		for _, problem := range checkMetadataOf(template.Spec.Overlays[i].NamespaceMetadata, selects) {
			problems = append(problems, problem.under("namespaceMetadata").in(Part{Overlays, i}))
		}
	}
	return problems
}

// checkMetadataOf checks one NamespaceMetadata, which may be nil. selects are the keys by which the template selects.
func checkMetadataOf(declared *v1alpha1.NamespaceMetadata, selects []string) []Problem {
	var problems []Problem
	size := 0
	values := MetadataOf(declared)
	for _, key := range slices.SortedFunc(maps.Keys(values), MetadataKey.Compare) {
		size += len(key.Key) + len(values[key])
		problem := checkMetadataKey(key)
		if problem == nil && key.Field == Labels {
			problem = checkNamespaceLabel(key.Key, values[key], selects)
		}
		if problem != nil {
			problem.Path = key.path()
			problems = append(problems, *problem)
		}
	}
	if size > maxMetadata {
		problems = append(problems, Problem{
			Rule: ruleSize, Message: fmt.Sprintf("the labels and annotations have %d bytes, more than the allowed %d", size,
				maxMetadata),
		})
	}
	return problems
}

func isConstant(text string) bool {
	_, constant := Literal(text)
	return constant
}

// checkMetadataKey returns why no template may set a label or an annotation of namespaces, or nil.
func checkMetadataKey(key MetadataKey) *Problem {
	prefix, _, _ := strings.Cut(key.Key, "/")
	switch {
	case !isConstant(key.Key):
		return &Problem{Rule: ruleToken, Message: "the key contains a token", Remedy: "use tokens in values only"}
	case len(validation.IsQualifiedName(key.Key)) > 0:
		return &Problem{Rule: ruleSchema, Message: fmt.Sprintf("the key is invalid: %s",
			strings.Join(validation.IsQualifiedName(key.Key), "; "))}
	case IsReservedKey(key.Key) || prefix == "policy":
		return &Problem{
			Rule: ruleReservedKey, Message: "the " + key.String() + " is reserved for nstpl", Remedy: "remove it",
		}
	case key.Key == corev1.LabelMetadataName || key.Key == corev1.LastAppliedConfigAnnotation:
		return &Problem{
			Rule: ruleReservedKey, Message: "the " + key.String() + " is reserved for Kubernetes", Remedy: "remove it",
		}
	}
	return nil
}

// checkNamespaceLabel returns what is wrong with a label of namespaces, or nil.
func checkNamespaceLabel(key, value string, selects []string) *Problem {
	if slices.Contains(selects, key) {
		return &Problem{
			Rule:    ruleSelector,
			Message: "the template itself selects namespaces, overlays or waves by the label " + key,
			Remedy:  "a template cannot set a label by which a template selects, or it could select in circles",
		}
	}
	stamped := longestValues.expand(value)
	if invalid := validation.IsValidLabelValue(stamped); len(invalid) > 0 {
		where := ""
		if stamped != value {
			where = ", for a namespace with a long name,"
		}
		return &Problem{Rule: ruleSchema, Message: "the value" + where + " is invalid: " + strings.Join(invalid, "; ")}
	}
	return checkPodSecurity(key, stamped)
}

// podSecurityPrefix begins the labels of Pod Security Admission.
const podSecurityPrefix = "pod-security.kubernetes.io/"

var (
	podSecurityModes   = []string{"enforce", "audit", "warn"}
	podSecurityLevels  = []string{"privileged", "baseline", "restricted"}
	podSecurityVersion = regexp.MustCompile(`^(latest|v1\.(0|[1-9][0-9]*))$`)
)

// checkPodSecurity returns what is wrong with a label of Pod Security Admission, which ignores keys that it does not
// know.
func checkPodSecurity(key, value string) *Problem {
	mode, isPodSecurity := strings.CutPrefix(key, podSecurityPrefix)
	if !isPodSecurity {
		return nil
	}
	mode, isVersion := strings.CutSuffix(mode, "-version")
	switch {
	case !slices.Contains(podSecurityModes, mode):
		return &Problem{
			Rule: ruleSchema, Message: "Pod Security Admission has no label " + key,
			Remedy: "the labels end in " + strings.Join(podSecurityModes, ", ") + ", or one of these and -version",
		}
	case isVersion && !podSecurityVersion.MatchString(value):
		return &Problem{
			Rule: ruleSchema, Message: fmt.Sprintf("%q is not a version", value), Remedy: "write latest, or v1.36",
		}
	case !isVersion && !slices.Contains(podSecurityLevels, value):
		return &Problem{
			Rule: ruleSchema, Message: fmt.Sprintf("%q is not a Pod Security Standard", value),
			Remedy: "write " + strings.Join(podSecurityLevels[:2], ", ") + " or " + podSecurityLevels[2],
		}
	}
	return nil
}

// creatorInLabels returns a problem for each label of namespaces that contains the creator's name.
func creatorInLabels(template *v1alpha1.NamespaceTemplate) []Problem {
	var problems []Problem
	check := func(part Part, declared *v1alpha1.NamespaceMetadata) {
		for key, value := range MetadataOf(declared) {
			if key.Field == Labels && containsToken(value, CreatorToken) {
				problem := creatorInLabel("namespaceMetadata." + key.path())
				if part == (Part{}) {
					problem = problem.under("spec")
				} else {
					problem = problem.in(part)
				}
				problems = append(problems, problem)
			}
		}
	}
	check(Part{}, template.Spec.NamespaceMetadata)
	for i := range template.Spec.Overlays {
		check(Part{Overlays, i}, template.Spec.Overlays[i].NamespaceMetadata)
	}
	return problems
}

// metadataWarnings returns the labels of namespaces that are invalid for some values of annotations.
func metadataWarnings(template *v1alpha1.NamespaceTemplate) []string {
	var warnings []string
	warn := func(path string, declared *v1alpha1.NamespaceMetadata) {
		for key, value := range MetadataOf(declared) {
			if key.Field == Labels && strings.Contains(value, annotationToken) && containsValue(value) {
				warnings = append(warnings, fmt.Sprintf("%s.%s: an annotation may have a value that is not valid in "+
					"labels: such namespaces are not populated", path, key.path()))
			}
		}
	}
	warn("spec.namespaceMetadata", template.Spec.NamespaceMetadata)
	for i := range template.Spec.Overlays {
		warn(Part{Overlays, i}.String()+".namespaceMetadata", template.Spec.Overlays[i].NamespaceMetadata)
	}
	return warnings
}
