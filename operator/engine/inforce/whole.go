package inforce

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// ofOthers are the fields of a spec that others may add, by the kinds whose specs are compared as a whole: a rollout
// may be paused while an incident lasts, and more limits of a policyspace open nothing. All other additions are
// differences, because an overlay or a driftPolicy that a person adds changes what namespaces get as much as a change
// of a declared field.
var ofOthers = map[schema.GroupKind][]string{
	v1alpha1.GroupVersion.WithKind("NamespaceTemplate").GroupKind(): {"rollout", "revisionHistoryLimit"},
	v1alpha1.GroupVersion.WithKind("PolicySpace").GroupKind():       {"quota", "selfService"},
}

// ofOthersInQuota are the fields that others may add to a declared quota of a policyspace: no tree can declare them.
var ofOthersInQuota = []string{"namespacesPerCreator"}

// switches are the annotations of a template that switch it off, or decide whom it concerns.
var switches = []string{v1alpha1.TemplateApplyAnnotation, v1alpha1.RequirePermissionAnnotation}

// isWhole reports whether additions to the spec of a kind are differences.
func isWhole(kind schema.GroupKind) bool { return ofOthers[kind] != nil }

// HasAdditions reports whether others have added to an object what an apply of the declared one does not remove.
func HasAdditions(declared, stored *unstructured.Unstructured) bool {
	return isWhole(declared.GroupVersionKind().GroupKind()) &&
		additions(declared, stored, merged(stored.Object["spec"], declared.Object["spec"])) != nil
}

// additions returns the first field in which a spec, or a switch of the stored object, is other than declared.
func additions(declared, stored *unstructured.Unstructured, spec any) Field {
	before, after := declared.GetAnnotations(), stored.GetAnnotations()
	for _, key := range switches {
		if before[key] == "" && after[key] != "" {
			return Field{"metadata", "annotations", key}
		}
	}
	kind := declared.GroupVersionKind().GroupKind()
	c := comparison{kind: kind, isLiteral: isLiteral(kind), isExact: true}
	return c.field("spec", wholeSpec(declared, stored), spec, nil)
}

// wholeSpec returns the declared spec with the fields of the stored one that others may add. It shares the values.
func wholeSpec(declared, stored *unstructured.Unstructured) map[string]any {
	spec := stored.Object["spec"]
	whole := withAdditions(declared.Object["spec"], spec, ofOthers[declared.GroupVersionKind().GroupKind()])
	if fields, _ := spec.(map[string]any); fields["quota"] != nil && whole["quota"] != nil {
		whole["quota"] = withAdditions(whole["quota"], fields["quota"], ofOthersInQuota)
	}
	return whole
}

// withAdditions returns a copy of a declared map with some fields of the stored one that it does not declare. It shares
// the values.
func withAdditions(declared, stored any, fields []string) map[string]any {
	whole := map[string]any{}
	before, _ := stored.(map[string]any)
	after, _ := declared.(map[string]any)
	maps.Copy(whole, after)
	for _, field := range fields {
		if value, exists := before[field]; exists && whole[field] == nil {
			whole[field] = value
		}
	}
	return whole
}

// merged returns what server-side apply makes of a value.
func merged(stored, declared any) any {
	before, isMap := stored.(map[string]any)
	after, isMapToo := declared.(map[string]any)
	switch {
	case declared == nil:
		return stored
	case !isMap || !isMapToo:
		return declared
	}
	all := maps.Clone(before)
	for field, value := range after {
		all[field] = merged(before[field], value)
	}
	return all
}

// WithoutAdditions returns a stored object with the spec of the declared one, except for the fields that others may
// add, and without switches that are not declared. Its kind is one whose specs are compared as a whole.
func WithoutAdditions(declared, stored *unstructured.Unstructured) *unstructured.Unstructured {
	restored := stored.DeepCopy()
	restored.Object["spec"] = wholeSpec(declared, stored)
	annotations := restored.GetAnnotations()
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return slices.Contains(switches, key) && declared.GetAnnotations()[key] == ""
	})
	restored.SetAnnotations(annotations)
	return restored
}
