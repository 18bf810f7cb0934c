package hierarchy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	strictjson "sigs.k8s.io/json"
)

// The kinds that a tree can have.
const (
	kindNamespace          = "Namespace"
	kindRole               = "Role"
	kindRoleBinding        = "RoleBinding"
	kindResourceQuota      = "ResourceQuota"
	kindClusterRole        = "ClusterRole"
	kindClusterRoleBinding = "ClusterRoleBinding"
	kindPodSecurityPolicy  = "PodSecurityPolicy"
)

// newObject returns an empty object of a kind, and the version that it has today.
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

// oldVersions are those of RBAC that trees of yesterday are written in, and that mean the same.
var oldVersions = []string{"v1beta1", "v1alpha1"}

// list is the one that an object is an item of: how many it is in, and what its items are that don't say it themselves.
type list struct {
	depth            int
	apiVersion, kind string
}

// maxLists is how many lists may be in one another.
const maxLists = 16

// decode returns the object of a document as today's Kubernetes has it, or those of a list. What is no manifest is
// none. Of an object that can't be read so much is kept as tells where it may be.
func (l *loader) decode(shown string, at lines, data []byte, in list) []Object {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &fields); err != nil || fields == nil {
		l.violate("schema", shown, at.of(), "an item of the list is no object", "write apiVersion, kind and metadata")
		return nil
	}
	apiVersion, versionIsText := textIn(fields, "apiVersion")
	kind, kindIsText := textIn(fields, "kind")
	if apiVersion == "" && kind == "" && versionIsText && kindIsText {
		apiVersion, kind = in.apiVersion, in.kind // as kubectl reads lists
	}
	switch {
	case !versionIsText:
		l.violate("schema", shown, at.of("apiVersion"), "apiVersion is no text", "write group/version, or v1")
		return nil
	case !kindIsText:
		l.violate("schema", shown, at.of("kind"), "kind is no text", "write the name of a kind")
		return nil
	case apiVersion == "" && kind == "" && in.depth == 0:
		return nil
	case apiVersion == "" || kind == "":
		l.violate("schema", shown, at.of(), "apiVersion or kind is missing", "give it both")
		return nil
	}
	group, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		l.violate("schema", shown, at.of("apiVersion"), err.Error(), "write group/version, or v1")
		return nil
	}
	if item, isList := strings.CutSuffix(kind, "List"); isList {
		typed, _ := newObject(schema.GroupKind{Group: group.Group, Kind: item})
		ours := item == "" || typed != nil
		if _, hasItems := fields["items"]; ours || hasItems {
			return l.items(shown, at, fields, ours, list{in.depth + 1, apiVersion, item})
		}
	}
	object := Object{Path: shown, Line: at.of(), kind: kind, lines: at, size: len(data)}
	object.name, object.namespace = named(fields["metadata"])
	return []Object{l.object(object, group, data)}
}

// textIn returns a field that is to be a text, and whether it is one, or nothing.
func textIn(fields map[string]json.RawMessage, field string) (text string, ok bool) {
	return text, fields[field] == nil || json.Unmarshal(fields[field], &text) == nil
}

// named returns what an object is called, and its namespace, as far as they can be read.
func named(metadata json.RawMessage) (name, namespace string) {
	var fields struct{ Name, Namespace any }
	if json.Unmarshal(metadata, &fields) != nil {
		return "", ""
	}
	for into, value := range map[*string]any{&name: fields.Name, &namespace: fields.Namespace} {
		switch value.(type) {
		case string, float64, bool:
			*into = fmt.Sprint(value)
		}
	}
	return name, namespace
}

// items returns the objects of a list. Of Kubernetes' own lists all fields are known.
func (l *loader) items(shown string, at lines, fields map[string]json.RawMessage, known bool, in list) []Object {
	if in.depth > maxLists {
		l.violate("schema", shown, at.of(), fmt.Sprintf("more than %d lists are in one another", maxLists),
			"write the items in one")
		return nil
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if known && !slices.Contains([]string{"apiVersion", "kind", "metadata", "items"}, field) {
			l.violate("schema", shown, at.of(field), fmt.Sprintf("%sList: unknown field %q", in.kind, field),
				"mend the field or leave it out")
		}
	}
	var items []json.RawMessage
	if fields["items"] == nil || json.Unmarshal(fields["items"], &items) != nil {
		l.violate("schema", shown, at.of("items"), in.kind+"List: items is missing, or is no list",
			"write the objects below items")
		return nil
	}
	var objects []Object
	for i, item := range items {
		objects = append(objects, l.decode(shown, at.item(i), item, in)...)
	}
	return objects
}

// object reads the object of which it has the beginning. If that can't be done it says why, and leaves the rest out.
func (l *loader) object(object Object, group schema.GroupVersion, data []byte) Object {
	kind := schema.GroupKind{Group: group.Group, Kind: object.kind}
	typed, current := newObject(kind)
	switch {
	case kind.Group == "" && typed == nil && isKnown(kind.Kind):
		l.violate("schema", object.Path, object.lines.of("apiVersion"),
			fmt.Sprintf("there is no %s in %s", kind.Kind, group), "write the group too")
		return object
	case kind.Kind == kindPodSecurityPolicy && (kind.Group == "extensions" || kind.Group == "policy"):
		return l.podSecurityPolicy(object, group, data)
	case typed == nil:
		object.kind = kind.String()
		return object // where it is decides what is said of it
	case group != current && (group.Group != rbacv1.GroupName || !slices.Contains(oldVersions, group.Version)):
		l.violate("schema", object.Path, object.lines.of("apiVersion"),
			fmt.Sprintf("there is no %s in %s", kind.Kind, group), "write apiVersion: "+current.String())
		return object
	case group != current:
		l.warn(object.Path, object.lines.of("apiVersion"),
			fmt.Sprintf("%s is not served any more: it is read as %s", group, current))
	}
	if kind.Kind == kindResourceQuota && l.brokenQuantity(object, data) {
		return object
	}
	if !l.strictly(object, data, typed) {
		return object
	}
	typed.GetObjectKind().SetGroupVersionKind(current.WithKind(kind.Kind))
	object.Object = typed
	if l.disown(object) {
		if kept, err := json.Marshal(typed); err == nil {
			object.size = len(kept)
		}
	}
	l.checkSchema(object)
	return object
}

// isKnown tells whether a kind is one that a tree can have, of whatever group.
func isKnown(kind string) bool {
	typed, _ := newObject(schema.GroupKind{Group: rbacv1.GroupName, Kind: kind})
	return typed != nil || kind == kindPodSecurityPolicy
}

// strictly reads the fields of an object and tells whether it could. It says which ones there are not.
func (l *loader) strictly(object Object, data []byte, into any) bool {
	unknown, err := strictjson.UnmarshalStrict(data, into)
	if err != nil {
		unknown = []error{err}
	}
	for _, problem := range unknown {
		l.violate("schema", object.Path, object.lines.field(problem), object.called()+": "+sayDecoding(problem),
			"mend the field or leave it out")
	}
	return err == nil
}

// brokenQuantity tells whether a limit can't be read. The decoder doesn't say which.
func (l *loader) brokenQuantity(object Object, data []byte) bool {
	var fields struct {
		Spec struct{ Hard map[string]json.RawMessage }
	}
	if json.Unmarshal(data, &fields) != nil {
		return false // the decoder says what is wrong
	}
	broken := false
	for _, name := range slices.Sorted(maps.Keys(fields.Spec.Hard)) {
		var quantity resource.Quantity
		if value := fields.Spec.Hard[name]; json.Unmarshal(value, &quantity) != nil {
			broken = true
			l.violate("schema", object.Path, object.lines.of("spec", "hard", name),
				fmt.Sprintf("%s: spec.hard.%s is %s, which is no quantity", object.called(), name, value),
				"write a number, such as 4, 500m or 2Gi")
		}
	}
	return broken
}

// podSecurityPolicy keeps one as it is: no cluster of today knows the kind, and trees of yesterday have it.
func (l *loader) podSecurityPolicy(object Object, group schema.GroupVersion, data []byte) Object {
	if group.Version != "v1beta1" {
		l.violate("schema", object.Path, object.lines.of("apiVersion"),
			fmt.Sprintf("there is no PodSecurityPolicy in %s", group), "write apiVersion: policy/v1beta1")
		return object
	}
	var fields struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              map[string]any `json:"spec"`
		Status            map[string]any `json:"status"`
	}
	policy := &unstructured.Unstructured{}
	if !l.strictly(object, data, &fields) || json.Unmarshal(data, &policy.Object) != nil {
		return object
	}
	l.warn(object.Path, object.Line,
		"clusters have no PodSecurityPolicy any more, and it is applied to none: use the labels pod-security.kubernetes.io/* on Namespaces")
	object.Object = policy
	l.checkName(object)
	return object
}

// called is how messages call an object.
func (o Object) called() string {
	if o.name == "" {
		return o.kind + " without a name"
	}
	return o.kind + " " + o.name
}

// sayDecoding leaves out what is Go's own.
func sayDecoding(err error) string {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "json: "), "strict decoding error: ")
	if _, wrong, found := strings.Cut(text, "cannot unmarshal "); found {
		value, rest, _ := strings.Cut(wrong, " into Go struct field ")
		field, kind, _ := strings.Cut(rest, " of type ")
		if _, inner, nested := strings.Cut(field, "."); nested {
			field = inner
		}
		return fmt.Sprintf("%s is a %s, and must be a %s", field, value, strings.TrimPrefix(kind, "*"))
	}
	return text
}
