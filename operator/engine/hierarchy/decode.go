package hierarchy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nstpl.dev/nstpl/operator/engine/manifest"
	"nstpl.dev/nstpl/operator/engine/quantities"
)

// The kinds that a tree may contain.
const (
	kindNamespace          = "Namespace"
	kindRole               = "Role"
	kindRoleBinding        = "RoleBinding"
	kindResourceQuota      = "ResourceQuota"
	kindClusterRole        = "ClusterRole"
	kindClusterRoleBinding = "ClusterRoleBinding"
	kindPodSecurityPolicy  = "PodSecurityPolicy"
)

// newObject returns an empty object of a kind and its current version, or nil if a tree cannot contain the kind.
func newObject(kind schema.GroupKind) (runtime.Object, schema.GroupVersion) {
	switch kind {
	case schema.GroupKind{Kind: kindNamespace}:
		return &corev1.Namespace{}, corev1.SchemeGroupVersion
	case schema.GroupKind{Kind: kindResourceQuota}:
		return &corev1.ResourceQuota{}, corev1.SchemeGroupVersion
	case schema.GroupKind{Group: rbacv1.GroupName, Kind: kindRole}:
		return &rbacv1.Role{}, rbacv1.SchemeGroupVersion
	case schema.GroupKind{Group: rbacv1.GroupName, Kind: kindRoleBinding}:
		return &rbacv1.RoleBinding{}, rbacv1.SchemeGroupVersion
	case schema.GroupKind{Group: rbacv1.GroupName, Kind: kindClusterRole}:
		return &rbacv1.ClusterRole{}, rbacv1.SchemeGroupVersion
	case schema.GroupKind{Group: rbacv1.GroupName, Kind: kindClusterRoleBinding}:
		return &rbacv1.ClusterRoleBinding{}, rbacv1.SchemeGroupVersion
	}
	return nil, schema.GroupVersion{}
}

// oldVersions are versions of RBAC that Kubernetes no longer serves, and that mean the same as v1.
var oldVersions = []string{"v1beta1", "v1alpha1"}

// list is the list that contains an object: its depth, and the apiVersion and kind of items without their own.
type list struct {
	depth            int
	apiVersion, kind string
}

// maxLists is how many levels deep lists may be nested.
const maxLists = 16

// decode returns the object of a document in its current version, or the objects of a list. It returns nothing if the
// document is not a manifest. An object that is invalid is returned with its kind and name only, so that the rules
// about its position are checked, too.
func (l *loader) decode(shown string, at manifest.Lines, data []byte, in list) []Object {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &fields); err != nil || fields == nil {
		l.violate("schema", shown, l.line(at), "an item of the list is not an object",
			"add apiVersion, kind and metadata")
		return nil
	}
	apiVersion, versionIsText := stringField(fields, "apiVersion")
	kind, kindIsText := stringField(fields, "kind")
	if apiVersion == "" && kind == "" && versionIsText && kindIsText {
		apiVersion, kind = in.apiVersion, in.kind // as kubectl does
	}
	switch {
	case !versionIsText:
		l.violate("schema", shown, l.line(at, "apiVersion"), "apiVersion is not a string", "use group/version, or v1")
		return nil
	case !kindIsText:
		l.violate("schema", shown, l.line(at, "kind"), "kind is not a string", "use the name of a kind")
		return nil
	case apiVersion == "" && kind == "" && in.depth == 0:
		return nil
	case apiVersion == "" || kind == "":
		l.violate("schema", shown, l.line(at), "apiVersion or kind is missing", "add both")
		return nil
	}
	group, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		l.violate("schema", shown, l.line(at, "apiVersion"), err.Error(), "use group/version, or v1")
		return nil
	}
	if item, isList := strings.CutSuffix(kind, "List"); isList {
		typed, _ := newObject(schema.GroupKind{Group: group.Group, Kind: item})
		ours := item == "" || typed != nil
		if _, hasItems := fields["items"]; ours || hasItems {
			return l.items(shown, at, fields, ours, list{in.depth + 1, apiVersion, item})
		}
	}
	object := Object{Path: shown, Line: at.Of(), kind: kind, lines: at, size: len(data)}
	object.name, object.namespace = nameAndNamespace(fields["metadata"])
	return []Object{l.object(object, group, data)}
}

// stringField returns the value of a field, and whether it is a string or missing.
func stringField(fields map[string]json.RawMessage, field string) (text string, ok bool) {
	return text, fields[field] == nil || json.Unmarshal(fields[field], &text) == nil
}

// nameAndNamespace returns the name and the namespace in an object's metadata, which may be of other types than string.
func nameAndNamespace(metadata json.RawMessage) (name, namespace string) {
	var fields struct {
		Name      any `json:"name"`
		Namespace any `json:"namespace"`
	}
	if utiljson.Unmarshal(metadata, &fields) != nil {
		return "", ""
	}
	for into, value := range map[*string]any{&name: fields.Name, &namespace: fields.Namespace} {
		switch value.(type) {
		case string, int64, float64, bool:
			*into = fmt.Sprint(value)
		}
	}
	return name, namespace
}

// items returns the objects of a list. known reports whether all fields of the list are known.
func (l *loader) items(
	shown string, at manifest.Lines, fields map[string]json.RawMessage, known bool, in list,
) []Object {
	if in.depth > maxLists {
		l.violate("schema", shown, l.line(at), fmt.Sprintf("lists are nested more than %d levels deep", maxLists),
			"use a single list")
		return nil
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if known && !slices.Contains([]string{"apiVersion", "kind", "metadata", "items"}, field) {
			l.violate("schema", shown, l.line(at, field), fmt.Sprintf("%sList: unknown field %q", in.kind, field),
				"correct or remove the field")
		}
	}
	var items []json.RawMessage
	if fields["items"] == nil || json.Unmarshal(fields["items"], &items) != nil {
		l.violate("schema", shown, l.line(at, "items"), in.kind+"List: items is missing or not a list",
			"list the objects under items")
		return nil
	}
	var objects []Object
	lines := at.Items(len(items))
	for i, item := range items {
		objects = append(objects, l.decode(shown, lines[i], item, in)...)
	}
	return objects
}

// object decodes an object whose kind and name are known. If it is invalid, object reports why and returns it as it is.
func (l *loader) object(object Object, group schema.GroupVersion, data []byte) Object {
	kind := schema.GroupKind{Group: group.Group, Kind: object.kind}
	typed, current := newObject(kind)
	switch {
	case kind.Group == "" && typed == nil && isKnown(kind.Kind):
		l.violate("schema", object.Path, l.line(object.lines, "apiVersion"),
			fmt.Sprintf("kind %s does not exist in %s", kind.Kind, group), "add the API group")
		return object
	case kind.Kind == kindPodSecurityPolicy && (kind.Group == "extensions" || kind.Group == "policy"):
		return l.podSecurityPolicy(object, group, data)
	case typed == nil:
		object.kind = kind.String()
		return object // the rules decide whether it is allowed in its directory
	case group != current && (group.Group != rbacv1.GroupName || !slices.Contains(oldVersions, group.Version)):
		l.violate("schema", object.Path, l.line(object.lines, "apiVersion"),
			fmt.Sprintf("kind %s does not exist in %s", kind.Kind, group), "use apiVersion: "+current.String())
		return object
	case group != current:
		l.warn(object.Path, object.lines.Of("apiVersion"),
			fmt.Sprintf("apiVersion %s is no longer served: it is read as %s", group, current))
	}
	if kind.Kind == kindResourceQuota && l.hasInvalidQuantity(object, data) {
		return object
	}
	if !l.decodeStrictly(object, data, typed) {
		return object
	}
	typed.GetObjectKind().SetGroupVersionKind(current.WithKind(kind.Kind))
	object.Object = typed
	if l.stripServerFields(object) {
		if kept, err := json.Marshal(typed); err == nil {
			object.size = len(kept)
		}
	}
	l.checkSchema(object)
	setDefaults(typed)
	return object
}

// isKnown reports whether a tree may contain a kind, in any API group.
func isKnown(kind string) bool {
	typed, _ := newObject(schema.GroupKind{Group: rbacv1.GroupName, Kind: kind})
	return typed != nil || kind == kindPodSecurityPolicy
}

// decodeStrictly decodes an object and reports whether it could. It reports unknown fields as violations.
func (l *loader) decodeStrictly(object Object, data []byte, into any) bool {
	mistakes, whole := manifest.Decode(data, into)
	for _, mistake := range mistakes {
		l.violate("schema", object.Path, l.line(object.lines, manifest.SplitField(mistake.Field)...),
			object.describe()+": "+mistake.Message, "correct or remove the field")
	}
	return whole
}

// hasInvalidQuantity reports whether a limit is not a quantity. The decoder's error would not name the limit.
func (l *loader) hasInvalidQuantity(object Object, data []byte) bool {
	var fields struct {
		Spec struct{ Hard map[string]json.RawMessage }
	}
	if json.Unmarshal(data, &fields) != nil {
		return false // the decoder reports the error
	}
	broken := false
	for _, name := range slices.Sorted(maps.Keys(fields.Spec.Hard)) {
		value := fields.Spec.Hard[name]
		if _, err := quantities.Decode(value); err != nil {
			broken = true
			l.violate("schema", object.Path, l.line(object.lines, "spec", "hard", name),
				fmt.Sprintf("%s: spec.hard.%s is %s, which is not a quantity", object.describe(), name, value),
				"use a number such as 4, 500m or 2Gi")
		}
	}
	return broken
}

// podSecurityPolicy checks a PodSecurityPolicy and keeps it as it is. Kubernetes removed the kind, but old trees
// contain it.
func (l *loader) podSecurityPolicy(object Object, group schema.GroupVersion, data []byte) Object {
	if group.Version != "v1beta1" {
		l.violate("schema", object.Path, l.line(object.lines, "apiVersion"),
			fmt.Sprintf("kind PodSecurityPolicy does not exist in %s", group), "use apiVersion: policy/v1beta1")
		return object
	}
	var fields struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              map[string]any `json:"spec"`
		Status            map[string]any `json:"status"`
	}
	policy := &unstructured.Unstructured{}
	if !l.decodeStrictly(object, data, &fields) || utiljson.Unmarshal(data, &policy.Object) != nil {
		return object
	}
	l.warn(object.Path, object.Line,
		"PodSecurityPolicy no longer exists in Kubernetes, so this object is not applied: use the labels pod-security.kubernetes.io/* on Namespaces")
	object.Object = policy
	l.checkName(object)
	return object
}
