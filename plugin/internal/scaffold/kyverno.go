package scaffold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

var (
	kyvernoPolicy         = schema.GroupKind{Group: "kyverno.io", Kind: "ClusterPolicy"}
	kyvernoGenerating     = schema.GroupKind{Group: "policies.kyverno.io", Kind: "GeneratingPolicy"}
	kyvernoException      = schema.GroupKind{Group: kyvernoPolicy.Group, Kind: "PolicyException"}
	kyvernoExceptionInCEL = schema.GroupKind{Group: kyvernoGenerating.Group, Kind: kyvernoException.Kind}
)

// kyvernoFields are the fields of policies that are converted, or that do not decide about namespaces, by the field of
// the spec that has them, which is "" for the spec itself.
var kyvernoFields = map[string][]string{
	"": strings.Fields("admission applyRules auditAnnotations background emitWarning evaluation failurePolicy generate " +
		"generateExisting generateExistingOnPolicyUpdate matchConditions matchConstraints mutateExistingOnPolicyUpdate " +
		"rules schemaValidation useServerSideApply validationFailureAction validationFailureActionOverrides variables " +
		"webhookConfiguration webhookTimeoutSeconds"),
	"evaluation": strings.Fields("admission generateExisting orphanDownstreamOnPolicyDelete skipBackgroundRequests " +
		"synchronize"),
	"matchConstraints":     strings.Fields("excludeResourceRules matchPolicy namespaceSelector objectSelector resourceRules"),
	"webhookConfiguration": strings.Fields("failurePolicy timeoutSeconds"),
}

// fromKyverno converts the generate rules of ClusterPolicies, and GeneratingPolicies: each rule becomes a template.
func fromKyverno(ctx context.Context, objects []*unstructured.Unstructured, _ *metav1.LabelSelector) *draft {
	d := &draft{}
	rules := 0
	for _, policy := range objectsOf(objects, kyvernoPolicy) {
		generates := slices.DeleteFunc(each(policy.Object, "spec", "rules"), func(rule map[string]any) bool {
			return rule["generate"] == nil
		})
		for _, rule := range generates {
			rules++
			name := at[string](rule, "name")
			r := kyvernoRule{
				item: d.item("clusterpolicy/%s rule %s", policy.GetName(), name), name: objectName(policy.GetName()),
				title: fmt.Sprintf("rule %s of ClusterPolicy %s", name, policy.GetName()), fields: rule,
				generatesExisting: at[bool](policy.Object, "spec", "generateExisting") ||
					at[bool](policy.Object, "spec", "generateExistingOnPolicyUpdate"), // its name before Kyverno 1.10
				conditions: conditionsOf(policy, name, objects),
			}
			if len(generates) > 1 {
				r.name, r.policy = objectName(policy.GetName(), name), "clusterpolicy/"+policy.GetName()
			}
			d.addKyvernoRule(ctx, r)
		}
	}
	for _, policy := range objectsOf(objects, kyvernoGenerating) {
		rules++
		d.addGeneratingPolicy(ctx, policy, conditionsOf(policy, "", objects))
	}
	if rules == 0 {
		return nil
	}
	return d
}

// conditionsOf returns what, beside a rule, decides in which namespaces a policy generates objects.
func conditionsOf(policy *unstructured.Unstructured, rule string, objects []*unstructured.Unstructured) []string {
	var found []string
	for _, of := range slices.Sorted(maps.Keys(kyvernoFields)) {
		fields := at[map[string]any](policy.Object, strings.Fields("spec "+of)...)
		for _, field := range unlisted(fields, kyvernoFields[of]...) {
			found = append(found, strings.TrimPrefix(of+"."+field, "."))
		}
	}
	spec := policy.Object["spec"]
	if at[any](spec, "admission") == false || at[any](spec, "evaluation", "admission", "enabled") == false {
		found = append(found, "admission: false")
	}
	if at[string](spec, "applyRules") == "One" && len(each(spec, "rules")) > 1 {
		found = append(found, "applyRules: One")
	}
	isOfRule := func(name string) bool { return name == rule || hasWildcard(name) }
	for _, exception := range objects {
		isNamed := slices.ContainsFunc(each(exception.Object, "spec", "exceptions"), func(of map[string]any) bool {
			return of["policyName"] == policy.GetName() && slices.ContainsFunc(texts(of, "ruleNames"), isOfRule)
		}) || slices.ContainsFunc(each(exception.Object, "spec", "policyRefs"), func(of map[string]any) bool {
			return of["name"] == policy.GetName() && of["kind"] == policy.GetKind()
		})
		if isNamed && exception.GetKind() == kyvernoException.Kind {
			found = append(found, fmt.Sprintf("PolicyException %s/%s", exception.GetNamespace(), exception.GetName()))
		}
	}
	return found
}

// kyvernoRule is a rule that generates an object.
type kyvernoRule struct {
	*item
	// name is that of its template, and title what comments call it. Policy is the name of the item for all rules of
	// its policy, or "" if there is only this rule.
	name, title, policy string
	fields              map[string]any
	// generatesExisting is true if rules of the policy that say nothing generate objects in namespaces that exist.
	// Conditions are those of the policy, which cannot be converted.
	generatesExisting bool
	conditions        []string
}

func (d *draft) addKyvernoRule(ctx context.Context, r kyvernoRule) {
	rule := r.fields
	generate := at[map[string]any](rule, "generate")
	isSynchronized := at[bool](generate, "synchronize")
	t := template{
		item: r.item, name: r.name, report: !isSynchronized,
		prune: isSynchronized && !at[bool](generate, "orphanDownstreamOnPolicyDelete"),
	}
	if err := t.addGenerated(rule, generate); err != nil {
		t.fail(nil, "it is not converted", err)
		return
	}
	t.add("Converted from %s.", r.title)
	t.add("synchronize was %t, so %s.", isSynchronized, map[bool]string{
		true:  "changes are corrected",
		false: "changes are reported and not corrected, until the template or the source changes",
	}[isSynchronized])
	t.selectAsKyverno(rule)
	for _, condition := range r.conditions {
		t.undecided("%s has no counterpart", condition)
	}
	existing, isSet := generate["generateExisting"].(bool)
	if !t.incomplete && !existing && (isSet || !r.generatesExisting) {
		d.item("%s", cmp.Or(r.policy, r.from)).need(&t.selectorNotes, "generateExisting: Kyverno generates objects only "+
			"in new namespaces, and templates also populate existing ones: exclude those that must not have them")
	}
	t.exceptKyverno()
	d.addTemplate(ctx, t)
}

// addGenerated adds what a rule generates: an object, or the source that it clones.
func (t *template) addGenerated(rule, generate map[string]any) error {
	namespace := kyvernoVariable.FindStringSubmatch(at[string](generate, "namespace"))
	switch {
	case !isTriggeredByNamespaces(rule):
		return errors.New("it is not triggered by namespaces alone")
	case generate["cloneList"] != nil:
		return remedy{errors.New("cloneList selects objects by their labels, and templates copy objects by their names: " +
			"list each in spec.sources of a template")}
	case generate["foreach"] != nil:
		return remedy{errors.New("foreach has no counterpart: write each object into the template")}
	case namespace == nil && generate["clone"] != nil, namespace == nil && generate["data"] != nil,
		namespace != nil && (namespace[0] != at[string](generate, "namespace") || !isNamespaceVariable(namespace[2])):
		return errors.New("it does not create the object in the namespace that triggers it")
	case generate["clone"] != nil:
		return t.addClone(generate)
	}
	object, err := kyvernoObject(generate)
	t.objects = []declared{object}
	return err
}

// addClone adds the source that a rule clones.
func (t *template) addClone(generate map[string]any) error {
	as, err := substitute(at[string](generate, "name"), kyvernoVariable, kyvernoValue)
	if err != nil {
		return err
	}
	return t.addSource(v1alpha1.Source{
		APIVersion: at[string](generate, "apiVersion"), Kind: at[string](generate, "kind"), As: as,
		Namespace: at[string](generate, "clone", "namespace"), Name: at[string](generate, "clone", "name"),
	})
}

// kyvernoObject returns the object that a rule generates from its data.
func kyvernoObject(generate map[string]any) (declared, error) {
	data := at[map[string]any](generate, "data")
	switch {
	case at[string](generate, "kind") == "Secret":
		return declared{}, errSecret
	case data == nil:
		return declared{}, errors.New("it has no data")
	}
	object := (&unstructured.Unstructured{Object: data}).DeepCopy()
	object.SetAPIVersion(at[string](generate, "apiVersion"))
	object.SetKind(at[string](generate, "kind"))
	object.SetName(at[string](generate, "name"))
	converted := clean(object)
	err := converted.replace(kyvernoVariable, kyvernoValue)
	return converted, err
}

// kyvernoVariable matches variables, and what Kyverno resolves but templates do not: references such as $(./../name).
// After a backslash, a variable stands for itself.
var kyvernoVariable = regexp.MustCompile(`(\\?)\{\{\s*([^{}]*?)\s*\}\}|\{\{|\$\([./]`)

// isNamespaceVariable reports whether a variable is the name of a namespace that triggers a rule.
func isNamespaceVariable(name string) bool {
	return slices.Contains([]string{"request.object.metadata.name", "request.name", "request.namespace"}, name)
}

func kyvernoValue(match []string) (part, error) {
	switch {
	case match[1] != "":
		return part{text: strings.TrimPrefix(match[0], `\`)}, nil
	case isNamespaceVariable(match[2]):
		return namespaceName, nil
	case match[2] == "request.userInfo.username":
		return creatorName, nil
	}
	return part{}, fmt.Errorf("the value of %s is unknown", match[0])
}

// filtersOf returns the filters of a match or exclude block, and whether all of them must be fulfilled.
func filtersOf(block map[string]any) (filters []map[string]any, all bool) {
	switch {
	case block["any"] != nil && block["all"] == nil:
		return each(block, "any"), false
	case block["all"] != nil && block["any"] == nil:
		return each(block, "all"), true
	case block["any"] == nil && len(block) > 0:
		return []map[string]any{block}, true
	}
	return nil, true
}

func isTriggeredByNamespaces(rule map[string]any) bool {
	filters, _ := filtersOf(at[map[string]any](rule, "match"))
	isOther := func(kind string) bool {
		return !slices.Contains([]string{"Namespace", "v1/Namespace", "*/Namespace"}, kind)
	}
	for _, filter := range filters {
		if kinds := texts(filter, "resources", "kinds"); len(kinds) == 0 || slices.ContainsFunc(kinds, isOther) {
			return false
		}
	}
	return len(filters) > 0
}

// selectAsKyverno makes a template select the namespaces that trigger a rule.
func (t *template) selectAsKyverno(rule map[string]any) {
	filters, all := filtersOf(at[map[string]any](rule, "match"))
	if !all && len(filters) > 1 {
		t.undecided("a label selector cannot select by one of %d filters", len(filters))
		filters = nil
	}
	for _, filter := range filters {
		required, problems := kyvernoRequirements(filter)
		t.require(required...)
		for _, problem := range problems {
			t.undecided("match: %s", problem)
		}
	}
	exclude := at[map[string]any](rule, "exclude")
	excluded, all := filtersOf(exclude)
	if len(exclude) > 0 && len(excluded) == 0 {
		t.undecided("exclude: it cannot be read")
	}
	for _, filter := range excluded {
		if t.isWithoutSystem(filter) {
			continue
		}
		required, problems := kyvernoRequirements(filter)
		isSingle := len(required) == 1 && (!all || len(excluded) == 1)
		if len(problems) > 0 || !isSingle || opposites[required[0].Operator] == "" {
			t.undecided("exclude: only names, or one label, can be excluded")
			continue
		}
		required[0].Operator = opposites[required[0].Operator]
		t.require(required...)
	}
	for _, field := range slices.Concat(
		unlisted(rule, "name", "match", "exclude", "generate", "context", "reportProperties", "skipBackgroundRequests"),
		unlisted(at[map[string]any](rule, "generate"), strings.Fields("apiVersion clone cloneList data foreach "+
			"generateExisting kind name namespace orphanDownstreamOnPolicyDelete synchronize uid")...),
	) {
		t.undecided("%s have no counterpart", field)
	}
}

// exceptKyverno leaves out Kyverno's own namespace, as its chart does by default.
func (t *template) exceptKyverno() {
	selects, err := metav1.LabelSelectorAsSelector(&t.LabelSelector)
	if t.incomplete || err != nil || !selects.Matches(labels.Set{corev1.LabelMetadataName: "kyverno"}) {
		return
	}
	t.require(metav1.LabelSelectorRequirement{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kyverno"},
	})
	t.selectorNotes.add("Kyverno's chart excludes Kyverno's own namespace. Correct its name if it is not kyverno.")
}

// isWithoutSystem reports whether a filter excludes nothing but the namespaces kube-*. Templates never populate those
// of Kubernetes. It notes that others with such a name are not excluded.
func (t *template) isWithoutSystem(filter map[string]any) bool {
	resources := at[map[string]any](filter, "resources")
	named := slices.Concat(texts(resources, "names"), texts(resources, "namespaces"))
	if len(filter) != 1 || !slices.Equal(named, []string{"kube-*"}) || len(resources) > 2 ||
		len(resources) == 2 && resources["kinds"] == nil {
		return false
	}
	t.need(&t.selectorNotes, "exclude: kube-*: the namespaces of Kubernetes are never "+
		"populated, but others whose names begin with kube- are not excluded")
	return true
}

// kyvernoRequirements returns the requirements of a filter, and the conditions that label selectors cannot express.
func kyvernoRequirements(filter map[string]any) (required []metav1.LabelSelectorRequirement, problems []string) {
	resources := at[map[string]any](filter, "resources")
	named := texts(resources, "names")
	if name := at[string](resources, "name"); name != "" {
		named = append(named, name)
	}
	// Kyverno compares namespaces, too, with the name of an object that is itself a namespace.
	for _, names := range [][]string{named, texts(resources, "namespaces")} {
		switch {
		case slices.Contains(names, "*"):
		case slices.ContainsFunc(names, hasWildcard):
			problems = append(problems, "names with wildcards have no counterpart: "+strings.Join(names, ", "))
		case len(names) > 0:
			required = append(required, in(corev1.LabelMetadataName, names...))
		}
	}
	byLabels, err := requirements(resources["selector"])
	if err != nil {
		problems = append(problems, "the selector is invalid")
	}
	for _, r := range byLabels {
		switch {
		case r.Operator == metav1.LabelSelectorOpIn && slices.Equal(r.Values, []string{"*"}) && !hasWildcard(r.Key):
			required = append(required, exists(r.Key))
		case hasWildcard(r.Key) || slices.ContainsFunc(r.Values, hasWildcard):
			problems = append(problems, "labels with wildcards have no counterpart: "+r.Key)
		default:
			required = append(required, r)
		}
	}
	if operations := texts(resources, "operations"); len(operations) > 0 && !slices.Contains(operations, "CREATE") {
		problems = append(problems, "the rule is not triggered when a namespace is created")
	}
	listed := []string{"kinds", "names", "name", "namespaces", "selector", "operations", "resources"}
	for _, field := range slices.Concat(unlisted(resources, listed...), unlisted(filter, listed...)) {
		problems = append(problems, field+" have no counterpart")
	}
	return required, problems
}

func hasWildcard(text string) bool { return strings.ContainsAny(text, "*?") }
