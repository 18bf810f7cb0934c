package vetting

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
)

// labelsSetBy returns the labels of namespaces that a template sets, by itself or in an overlay, in ascending order.
func labelsSetBy(template *v1alpha1.NamespaceTemplate) []string {
	var labels []string
	for _, key := range keysSetBy(template) {
		if key.Field == render.Labels {
			labels = append(labels, key.Key)
		}
	}
	return labels
}

// declarationsOf returns what a template declares: its objects, the copies of its sources, and each label and
// annotation of namespaces as if that was an object of its own.
func declarationsOf(template *v1alpha1.NamespaceTemplate) []render.Declaration {
	declarations := render.AllDeclarations(template)
	for _, key := range keysSetBy(template) {
		declarations = append(declarations,
			render.Declaration{GroupVersionKind: render.NamespaceKind, Name: key.String()})
	}
	return declarations
}

// changesNamespaces reports whether an edit may make the operator set or remove labels or annotations of namespaces.
func (e edit) changesNamespaces() bool {
	declares := func(template *v1alpha1.NamespaceTemplate) bool {
		return template != nil && len(render.DeclaredMetadata(&template.Spec)) > 0
	}
	if declares(e.updated) && e.widens() {
		return true
	}
	return e.old != nil && (declares(e.old) || e.old.Status.NamespaceMetadata) && (e.widens() || e.prunesAll())
}

// judgeSelectors returns a problem for each label that one template sets on namespaces and by which another one, or an
// initializer, selects them. Otherwise templates could select in circles, and users who may only write templates could
// move namespaces into the reach of other templates.
func (v *review) judgeSelectors(ctx context.Context) ([]error, error) {
	var problems []error
	sets, selects := labelsSetBy(v.updated), match.SelectorKeys(&v.updated.Spec)
	for _, other := range v.others {
		for _, label := range sets {
			if slices.Contains(other.selects, label) {
				problems = append(problems, fmt.Errorf("it sets the label %s of namespaces, by which template %s selects: "+
					"no template can set a label by which a template selects namespaces, overlays or waves: "+
					"remove it from namespaceMetadata", label, other.name))
			}
		}
		for _, label := range selects {
			if other.sets(label) {
				problems = append(problems, fmt.Errorf("it selects by the label %s, which template %s sets "+
					"(namespaceMetadata): no template can select by a label that a template sets: select by another label",
					label, other.name))
			}
		}
	}
	problems = distinct(problems)
	if len(sets) == 0 {
		return problems, nil
	}
	initializers := &v1alpha1.NamespaceInitializationConfigurationList{}
	if err := v.Live.List(ctx, initializers); err != nil {
		return nil, fmt.Errorf("list the initializers of namespaces: %w", err)
	}
	for i := range initializers.Items {
		for _, initializer := range initializers.Items[i].Initializers {
			for _, label := range match.KeysOf(initializer.NamespaceSelector) {
				if slices.Contains(sets, label) {
					problems = append(problems, fmt.Errorf("it sets the label %s of namespaces, by which "+
						"NamespaceInitializationConfiguration %s selects: remove it from namespaceMetadata", label,
						initializers.Items[i].Name))
				}
			}
		}
	}
	return problems, nil
}

// judgeRequiredLabels returns a problem for each label that an edit may make the operator set or remove and that the
// self-service of policy spaces requires, unless the author may change these rules, which do not apply to the operator.
// The value does not matter: the operator removes the label when the template no longer declares it.
func (v *review) judgeRequiredLabels(ctx context.Context) ([]error, error) {
	var labels []string
	for _, template := range []*v1alpha1.NamespaceTemplate{v.old, v.updated} {
		if template != nil && v.changesNamespaces() {
			labels = append(labels, labelsSetBy(template)...)
		}
	}
	if len(labels) == 0 {
		return nil, nil
	}
	if missing, err := v.author.missing(ctx, []right{patchSpaces}); err != nil || len(missing) == 0 {
		return nil, err
	}
	spaces := &v1alpha1.PolicySpaceList{}
	if err := v.Live.List(ctx, spaces); err != nil {
		return nil, fmt.Errorf("list policy spaces: %w", err)
	}
	var problems []error
	for _, label := range labels {
		missing, err := v.author.missing(ctx, rightsToRequire(label, spaces.Items))
		if err != nil {
			return nil, err
		}
		if len(missing) > 0 {
			problems = append(problems, rightsProblem{fmt.Errorf("%s may not set or remove the label %s of namespaces, "+
				"since the self-service of policy spaces requires it: ask an administrator for the right to %s, "+
				"or to make the change", v.author, label, listRights(missing))})
		}
	}
	return distinct(problems), nil
}

// patchSpaces is the right to patch all policy spaces.
var patchSpaces = right{verb: "patch", group: v1alpha1.GroupVersion.Group, resource: v1alpha1.PolicySpaces.Resource}

// rightsToRequire returns the right to patch each of the policy spaces whose self-service requires a label.
func rightsToRequire(label string, spaces []v1alpha1.PolicySpace) []right {
	var rights []right
	for i := range spaces {
		rules := spaces[i].Spec.SelfService
		if rules == nil {
			continue
		}
		if _, isRequired := rules.Labels[label]; isRequired {
			one := patchSpaces
			one.name = spaces[i].Name
			rights = append(rights, one)
		}
	}
	return rights
}

// namespaceChanges returns the changes of protected labels and annotations that an edit may make on namespaces. A
// namespace may have any value before, which the operator replaces unless driftPolicy is Report. So the author must be
// allowed to remove all other protected values as well. With driftPolicy Report, the operator replaces the values of
// the templates that this one overrides; overrides reports whether there are any for a label or an annotation.
func (e edit) namespaceChanges(
	rules *attributes.Rules, overrides func(render.MetadataKey) bool,
) []attributes.Change {
	var changes []attributes.Change
	after := map[render.MetadataKey][]string{}
	if e.updated != nil {
		after = render.DeclaredMetadata(&e.updated.Spec)
	}
	for _, key := range slices.SortedFunc(maps.Keys(after), render.MetadataKey.Compare) {
		for _, value := range after[key] {
			changes = append(changes, attributes.Change{New: namespaceWith(key, value)})
		}
		if e.updated.Spec.DriftPolicy == v1alpha1.DriftReport && !overrides(key) {
			continue
		}
		for _, rule := range rules.Of(key.Attribute(), "") {
			for _, value := range rule.ProtectedValues {
				changes = append(changes, attributes.Change{Old: namespaceWith(key, value), New: map[string]any{}})
			}
		}
	}
	if e.old == nil {
		return changes
	}
	before := render.DeclaredMetadata(&e.old.Spec)
	if e.updated != nil && !e.prunesAll() && !e.changesSelector() && equality.Semantic.DeepEqual(before, after) &&
		equality.Semantic.DeepEqual(e.old.Spec.Overlays, e.updated.Spec.Overlays) {
		return changes
	}
	for _, key := range slices.SortedFunc(maps.Keys(before), render.MetadataKey.Compare) {
		for _, value := range before[key] {
			changes = append(changes, attributes.Change{Old: namespaceWith(key, value), New: map[string]any{}})
		}
	}
	return changes
}

// overrides reports whether another template sets a label or an annotation that the updated one sets instead, since its
// name comes later in the alphabet.
func (v *review) overrides(key render.MetadataKey) bool {
	return slices.ContainsFunc(v.others, func(other *outline) bool {
		return other.name < v.name() && slices.Contains(other.setKeys, key)
	})
}

// namespaceWith returns a Namespace with one label or annotation.
func namespaceWith(key render.MetadataKey, value string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{key.Field: map[string]any{key.Key: value}},
	}
}
