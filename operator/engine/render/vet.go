package render

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// strictest are the values that limits are held against: the longest name of a namespace, and a creator of whom nothing
// fails but what is wrong with any. What a user's name can do to an object is for Warnings.
var strictest = Values{Namespace: strings.Repeat("n", validation.DNS1123LabelMaxLength), Creator: "c"}

// Vet returns everything that is wrong with a template and can be seen without a cluster: what keeps it from being
// rendered, by itself or with one of its overlays, and what no API server would store in each of the namespaces. Once
// the context has ended it returns early, with what it knows.
func Vet(ctx context.Context, template *v1alpha1.NamespaceTemplate) []error {
	_, problems := VetVariants(ctx, template)
	return problems
}

// VetVariants is Vet, and also returns the template as it is by itself and with each of its overlays alone, unless
// there are problems.
func VetVariants(ctx context.Context, template *v1alpha1.NamespaceTemplate) (variants []Variant, problems []error) {
	if err := CheckBudget(template); err != nil {
		return nil, []error{err}
	}
	variants, err := eachOverlay(ctx.Err, template)
	problems = flatten(err)
	for i, raw := range template.Spec.Templates {
		// An object that can't be read is among the problems already.
		if object, err := parseObject(raw); err == nil {
			for _, problem := range slices.Concat(flatten(checkName(object)),
				flatten(checkVersion(object.GroupVersionKind())), CheckLimits(object)) {
				problems = append(problems, fmt.Errorf("spec.templates[%d]: %w", i, problem))
			}
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	known := map[string]bool{}
	for _, variant := range variants {
		for _, object := range variant.Objects() {
			for _, problem := range CheckLimits(object) {
				if !known[problem.Error()] && len(variant.Overlays) > 0 {
					problems = append(problems, fmt.Errorf("overlay %s: %w", variant.Overlays[0], problem))
				}
				known[problem.Error()] = known[problem.Error()] || len(variant.Overlays) == 0
			}
		}
	}
	return variants, problems
}

// builds says why a template can't be rendered, by itself or with one of its overlays. The error joins every reason.
func builds(ended endedFunc, template *v1alpha1.NamespaceTemplate) error {
	_, err := eachOverlay(ended, template)
	return err
}

// eachOverlay compiles a template by itself and then with each of its overlays alone.
func eachOverlay(ended endedFunc, template *v1alpha1.NamespaceTemplate) ([]Variant, error) {
	base, err := compile(ended, template, nil)
	if err != nil {
		return nil, err
	}
	variants := []Variant{{Compiled: base}}
	var errs []error
	seen := map[string]bool{}
	for _, overlay := range template.Spec.Overlays {
		compiled, err := compile(ended, template, []string{overlay.Name})
		if seen[overlay.Name] {
			err = fmt.Errorf("overlay %s is there twice: give one another name", overlay.Name)
		}
		seen[overlay.Name] = true
		errs = append(errs, err)
		variants = append(variants, Variant{Compiled: compiled, Overlays: []string{overlay.Name}})
	}
	return variants, errors.Join(errs...)
}

// flatten returns the errors that are joined in one.
func flatten(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, one := range joined.Unwrap() {
			all = append(all, flatten(one)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// CheckLimits says what the API server would not store: names, labels and annotations that are malformed or, where the
// namespace's name is long, too long.
func CheckLimits(object *unstructured.Unstructured) []error {
	id := identityOf(object)
	var problems []error
	name := strictest.expand(id.name)
	for _, reason := range nameReasons(id.GroupKind, name) {
		problems = append(problems, fmt.Errorf("%s: metadata.name%s: %s", id, inLongNamespace(id.name), reason))
	}
	labels, annotations := map[string]string{}, map[string]string{}
	long := false
	for key, value := range object.GetLabels() {
		labels[key] = strictest.expand(value)
		long = long || holds(value, NamespaceToken)
	}
	annotated := 0
	for key, value := range object.GetAnnotations() {
		annotations[key] = strictest.expand(value)
		annotated += len(key) + len(annotations[key])
	}
	invalid := metav1validation.ValidateLabels(labels, field.NewPath("metadata", "labels"))
	invalid = append(invalid,
		apivalidation.ValidateAnnotations(annotations, field.NewPath("metadata", "annotations"))...)
	slices.SortFunc(invalid, func(a, b *field.Error) int { return strings.Compare(a.Error(), b.Error()) })
	for _, reason := range invalid {
		where := ""
		if long && strings.Contains(fmt.Sprint(reason.BadValue), strictest.Namespace) {
			where = inLongNamespace(NamespaceToken)
		}
		problems = append(problems, fmt.Errorf("%s: %w%s", id, reason, where))
	}
	if annotated > maxAnnotations && annotated <= apivalidation.TotalAnnotationSizeLimitB {
		problems = append(problems,
			fmt.Errorf("%s: metadata.annotations have %d bytes, and may have %d: the operator adds its own", id,
				annotated, maxAnnotations))
	}
	if size := storedSize(strictest.stampObject(object)); size > maxStored {
		problems = append(problems,
			fmt.Errorf("%s: it takes about %d bytes with the operator's own metadata, and may take %d", id, size,
				maxStored))
	}
	return problems
}

const (
	// maxAnnotations leaves the operator room for its own annotations.
	maxAnnotations = apivalidation.TotalAnnotationSizeLimitB - 16<<10
	// maxStored leaves room, in the 1.5 MiB that etcd takes, for the operator's own annotations and a status.
	maxStored = 3<<19 - 64<<10
)

func inLongNamespace(text string) string {
	if holds(text, NamespaceToken) {
		return fmt.Sprintf(" (where the namespace's name has %d characters)", len(strictest.Namespace))
	}
	return ""
}

// nameReasons says why no object of a kind can have a name. Kinds that are not Kubernetes' own are given the benefit of
// the doubt: not all of them are custom resources.
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
	// maxCronJobName leaves a CronJob's Jobs the room for a suffix.
	maxCronJobName = 52
)

// BuiltIn reports whether a group is of Kubernetes itself.
func BuiltIn(group string) bool {
	switch group {
	case "", "apps", "autoscaling", "batch", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io",
		"networking.k8s.io", "policy",
		rbacGroup, "resource.k8s.io", "storage.k8s.io":
		return true
	}
	return false
}

// split returns the text before the first token of a name and after the last, and how many tokens there are.
func split(name string) (before, after string, tokens int) {
	scan(name, func(text string) {
		if tokens == 0 {
			before += text
		}
		after += text
	}, func(string) {
		tokens++
		after = ""
	})
	return before, after, tokens
}

// MayCoincide tells whether two names may come out the same for some values of the tokens in them. It never says no
// wrongly.
func MayCoincide(a, b string) bool {
	beforeA, afterA, tokensA := split(a)
	beforeB, afterB, tokensB := split(b)
	switch {
	case tokensA == 0 && tokensB == 0:
		return a == b
	case tokensA == 0:
		return MayCoincide(b, a)
	case tokensB == 0:
		return len(beforeB) >= len(beforeA)+len(afterA) && strings.HasPrefix(beforeB, beforeA) &&
			strings.HasSuffix(beforeB, afterA)
	}
	return (strings.HasPrefix(beforeA, beforeB) || strings.HasPrefix(beforeB, beforeA)) &&
		(strings.HasSuffix(afterA, afterB) || strings.HasSuffix(afterB, afterA))
}

// Warnings says what of a template fails in some namespaces: users' names, such as jane@example.com, are often no valid
// names of objects and no valid labels, and two names may come out the same.
func Warnings(template *v1alpha1.NamespaceTemplate) []string {
	var warnings []string
	var seen []identity
	for i, raw := range template.Spec.Templates {
		object, err := parseObject(raw)
		if err != nil {
			continue
		}
		id := identityOf(object)
		for _, other := range seen {
			if id.GroupKind == other.GroupKind && id.name != other.name && MayCoincide(id.name, other.name) {
				warnings = append(warnings,
					fmt.Sprintf("spec.templates[%d]: %s and %s are the same object in some namespace, "+
						"which then gets nothing of the template: give one of them a prefix", i, other, id))
			}
		}
		seen = append(seen, id)
		if holds(id.name, CreatorToken) && id.Group != rbacGroup {
			warnings = append(warnings,
				fmt.Sprintf("spec.templates[%d]: %s: many a user's name, such as jane@example.com, "+
					"can't stand in metadata.name: the object fails in the namespaces of such users", i, id))
		}
		for key, value := range object.GetLabels() {
			if holds(value, CreatorToken) {
				warnings = append(warnings,
					fmt.Sprintf("spec.templates[%d]: %s: many a user's name, such as jane@example.com, "+
						"is no valid label: use an annotation in place of metadata.labels[%s]", i, id, key))
			}
		}
	}
	slices.Sort(warnings)
	return warnings
}
