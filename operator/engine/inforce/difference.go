// Package inforce compares declared objects with what the API server stored. The operator, nstpl-sync and the plugin
// share the comparison: an object is in force if it is stored as it is declared.
package inforce

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Field is the path of a field. The index of an item of a list is one of its elements, such as "0".
type Field []string

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// String returns the path as rules[0].verbs or metadata.labels["example.com/team"].
func (f Field) String() string {
	var text strings.Builder
	for i, element := range f {
		_, err := strconv.Atoi(element)
		switch {
		case err == nil:
			text.WriteString("[" + element + "]")
		case !plainName.MatchString(element):
			text.WriteString("[" + strconv.Quote(element) + "]")
		case i > 0:
			text.WriteString("." + element)
		default:
			text.WriteString(element)
		}
	}
	return text.String()
}

// set is a node of FieldsV1: see metav1.FieldsV1. A node without children is owned as a whole.
type set map[string]set

// Difference returns the first declared field that an object in the cluster does not have as it is declared, or nil if
// it has all. Values that only are written in another way make no difference, nor do fields that others added, except
// those that change what RBAC, NetworkPolicies, templates and policyspaces do.
//
// The entry is that of managedFields with which the object was applied. It shows which lists are replaced as a whole,
// so that an added item is a difference, and which ones are merged. Without an entry, all lists are replaced as a
// whole.
func Difference(declared, stored *unstructured.Unstructured, entry *metav1.ManagedFieldsEntry) Field {
	kind := declared.GroupVersionKind().GroupKind()
	var owned *set
	if entry != nil && entry.FieldsV1 != nil {
		owned = &set{}
		if json.Unmarshal([]byte(entry.FieldsV1.GetRawString()), owned) != nil {
			owned = &set{} // every list may be merged
		}
	}
	c := comparison{kind: kind, isLiteral: isLiteral(kind)}
	if isWhole(kind) {
		if at := additions(declared, stored, stored.Object["spec"]); at != nil {
			return at
		}
	}
	for _, field := range slices.Sorted(maps.Keys(declared.Object)) {
		value, live, owned, c := declared.Object[field], stored.Object[field], owned, c
		switch {
		case field == "status" || field == "metadata" || field == "spec" && isWhole(kind):
			continue
		case field == "subsets" && kind == endpointsKind: // are grouped in another way
			continue
		case field == "stringData" && kind == secretKind: // is stored in data
			live, owned, c.isLiteral = texts(stored.Object["data"]), nil, true
		case isBytes(kind, field): // may be declared in several lines
			value, live, owned, c.isLiteral = texts(value), texts(live), nil, true
		}
		if at := c.field(field, value, live, owned); at != nil {
			return at
		}
	}
	return metadataDifference(declared, stored, owned)
}

// metadataDifference compares the metadata that clients set.
func metadataDifference(declared, stored *unstructured.Unstructured, owned *set) Field {
	before, _ := declared.Object["metadata"].(map[string]any)
	after, _ := stored.Object["metadata"].(map[string]any)
	c := comparison{isLiteral: true}
	for _, field := range []string{"annotations", "finalizers", "labels", "name", "ownerReferences"} {
		if value, isDeclared := before[field]; isDeclared {
			if at := c.field(field, value, after[field], below(owned, "metadata")); at != nil {
				return append(Field{"metadata"}, at...)
			}
		}
	}
	return nil
}

var (
	configMapKind     = schema.GroupKind{Kind: "ConfigMap"}
	secretKind        = schema.GroupKind{Kind: "Secret"}
	endpointsKind     = corev1.SchemeGroupVersion.WithKind("Endpoints").GroupKind()
	networkPolicyKind = schema.GroupKind{Group: networkingv1.GroupName, Kind: "NetworkPolicy"}
)

// isLiteral reports whether the API server stores the values of a kind as they are written.
func isLiteral(kind schema.GroupKind) bool {
	return kind.Group == rbacv1.GroupName || kind.Group == v1alpha1.GroupVersion.Group || kind == configMapKind
}

// isBytes reports whether the values in a field are bytes in base64.
func isBytes(kind schema.GroupKind, field string) bool {
	return kind == secretKind && field == "data" || kind == configMapKind && field == "binaryData"
}

// exact are the fields in which an addition changes who may do what.
var exact = []string{"rules", "roleRef", "subjects", "ingress", "egress", "podSelector", "policyTypes"}

// isExactField reports whether additions to a field of the comparison's kind are differences.
func (c comparison) isExactField(field string) bool {
	return (c.kind.Group == rbacv1.GroupName || c.kind == networkPolicyKind) && slices.Contains(exact, field)
}

// defaulted are the fields that the API server adds to exact ones.
var defaulted = []string{"apiGroup", "protocol"}

// omitsEmpty reports whether the API server omits empty texts, as in subjects and roleRef of RBAC. In a selector of a
// NetworkPolicy, an empty value of a label is not a missing one.
func (c comparison) omitsEmpty() bool { return c.isExact && c.kind.Group == rbacv1.GroupName }

// isDefaulted reports whether the API server sets a field of the comparison's kind if it is missing or empty. The
// objects in a template are stored as they are written.
func (c comparison) isDefaulted(field string) bool {
	return c.isExact && !isWhole(c.kind) && slices.Contains(defaulted, field)
}

// comparison compares values of an object.
type comparison struct {
	kind schema.GroupKind
	// isLiteral says that equal values are written alike.
	isLiteral bool
	// isExact says that additions are differences.
	isExact bool
}

// below returns the set below a field. It is nil if the field is owned as a whole, or if no set is known.
func below(owned *set, field string) *set {
	if owned == nil {
		return nil
	}
	child, isOwned := (*owned)["f:"+field]
	if isOwned && len(child) == 0 {
		return nil
	}
	return &child
}

// field compares a field, of which the parent owns a set.
func (c comparison) field(name string, declared, stored any, owned *set) Field {
	c.isExact = c.isExact || c.isExactField(name)
	if !c.isLiteral && !c.isExact && isSetIfZero(name, declared) {
		return nil
	}
	if declared == nil && !c.isLiteral && !c.isExact || declared == "" && c.isDefaulted(name) {
		return nil // null is a missing field, for which the API server may store a default
	}
	if at, differs := c.value(declared, stored, below(owned, name)); differs {
		return append(Field{name}, at...)
	}
	return nil
}

// value returns the path below a value of the first field that differs.
func (c comparison) value(declared, stored any, owned *set) (at Field, differs bool) {
	isLiteral := c.isLiteral || c.isExact
	if isEmpty(declared) && isEmpty(stored) && (!isLiteral || c.omitsEmpty() || !isScalar(declared)) {
		return nil, false
	}
	switch declared := declared.(type) {
	case map[string]any:
		return c.fields(declared, stored, owned)
	case []any:
		return c.items(declared, stored, owned)
	}
	return nil, !c.isSame(declared, stored)
}

func (c comparison) fields(declared map[string]any, stored any, owned *set) (at Field, differs bool) {
	fields, isMap := stored.(map[string]any)
	if !isMap && (stored != nil || len(declared) > 0) {
		return nil, true
	}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		if at := c.field(name, declared[name], fields[name], owned); at != nil {
			return at, true
		}
	}
	if c.isExact {
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			_, isDeclared := declared[name]
			if !isDeclared && !c.isDefaulted(name) && !isEmpty(fields[name]) {
				return Field{name}, true
			}
		}
	}
	return nil, false
}

func (c comparison) items(declared []any, stored any, owned *set) (at Field, differs bool) {
	items, isList := stored.([]any)
	if !isList && (stored != nil || len(declared) > 0) {
		return nil, true
	}
	if owned == nil || c.isExact {
		if len(items) != len(declared) && (len(declared) > 0 || c.isLiteral || c.isExact) {
			return nil, true
		}
		for i := range declared {
			if at, differs := c.value(declared[i], items[i], nil); differs {
				return append(Field{strconv.Itoa(i)}, at...), true
			}
		}
		return nil, false
	}
	for i, item := range declared {
		isStored := func(stored any) bool {
			_, differs := c.value(item, stored, &set{})
			return !differs
		}
		if !slices.ContainsFunc(items, isStored) {
			return Field{strconv.Itoa(i)}, true
		}
	}
	return nil, false
}
