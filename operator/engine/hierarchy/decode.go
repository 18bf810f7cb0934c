package hierarchy

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	strictjson "sigs.k8s.io/json"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
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

// decode returns the object of a document as today's Kubernetes has it, or those of a list. What is no manifest is none.
func (l *loader) decode(shown string, at lines, data []byte) []Object {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        json.RawMessage   `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		l.violate("schema", shown, at.of(), "it is no object of Kubernetes: "+sayDecoding(err), "write apiVersion, kind and metadata.name as texts")
		return nil
	}
	switch {
	case head.APIVersion == "" && head.Kind == "":
		return nil
	case head.APIVersion == "" || head.Kind == "":
		l.violate("schema", shown, at.of(), "apiVersion or kind is missing", "give it both")
		return nil
	case strings.HasSuffix(head.Kind, "List") && (head.Items != nil || head.Kind == "List"):
		var objects []Object
		for i, item := range head.Items {
			objects = append(objects, l.decode(shown, at.item(i), item)...)
		}
		return objects
	}
	group, err := schema.ParseGroupVersion(head.APIVersion)
	if err != nil {
		l.violate("schema", shown, at.of("apiVersion"), err.Error(), "write group/version, or v1")
		return nil
	}
	object := Object{Path: shown, Line: at.of(), kind: head.Kind, lines: at}
	kind := schema.GroupKind{Group: group.Group, Kind: head.Kind}
	if head.Kind == kindPodSecurityPolicy && (group.Group == "extensions" || group.Group == "policy") {
		return l.podSecurityPolicy(object, data)
	}
	typed, current := newObject(kind)
	if typed == nil {
		object.kind = kind.String()
		object.name = nameIn(head.Metadata)
		return []Object{object} // where it is decides what is said of it
	}
	if group != current {
		if group.Group == "" {
			l.violate("schema", shown, at.of("apiVersion"), fmt.Sprintf("there is no %s in %s", head.Kind, head.APIVersion), "write apiVersion: "+current.String())
			return nil
		}
		l.warn(shown, at.of("apiVersion"), fmt.Sprintf("%s is not served any more: it is read as %s", head.APIVersion, current))
	}
	unknown, err := strictjson.UnmarshalStrict(data, typed)
	if err != nil {
		unknown = []error{err}
	}
	for _, problem := range unknown {
		l.violate("schema", shown, at.field(problem), fmt.Sprintf("%s %s: %s", head.Kind, nameIn(head.Metadata), sayDecoding(problem)), "mend the field or leave it out")
	}
	if err != nil {
		return nil
	}
	typed.GetObjectKind().SetGroupVersionKind(current.WithKind(head.Kind))
	object.Object = typed
	meta := typed.(metav1.Object)
	object.name, object.namespace = meta.GetName(), meta.GetNamespace()
	l.checkSchema(object)
	return []Object{object}
}

// podSecurityPolicy keeps one as it is: no cluster of today knows the kind, and trees of yesterday have it.
func (l *loader) podSecurityPolicy(object Object, data []byte) []Object {
	policy := &unstructured.Unstructured{}
	if err := policy.UnmarshalJSON(data); err != nil {
		l.violate("schema", object.Path, object.Line, sayDecoding(err), "mend the field")
		return nil
	}
	l.warn(object.Path, object.Line, "clusters have no PodSecurityPolicy any more, and it is applied to none: use the labels pod-security.kubernetes.io/* on Namespaces")
	object.Object, object.name, object.namespace = policy, policy.GetName(), policy.GetNamespace()
	l.checkName(object)
	return []Object{object}
}

func nameIn(metadata json.RawMessage) string {
	var named struct {
		Name any `json:"name"`
	}
	if json.Unmarshal(metadata, &named) != nil || named.Name == nil {
		return "without a name"
	}
	return fmt.Sprint(named.Name)
}

// item returns where an item of a list is.
func (l lines) item(number int) lines {
	for i := 0; i+1 < len(l.node.Content); i += 2 {
		if items := l.node.Content[i+1]; l.node.Content[i].Value == "items" && items.Kind == kyaml.SequenceNode && number < len(items.Content) {
			if item := items.Content[number]; item.Kind == kyaml.MappingNode {
				return lines{item, l.offset}
			}
		}
	}
	return l
}

// field returns the line of the field that a decoder complains of, which it writes in quotes.
func (l lines) field(problem error) int {
	_, rest, quoted := strings.Cut(problem.Error(), `unknown field "`)
	if !quoted {
		if _, rest, quoted = strings.Cut(problem.Error(), "Go struct field "); !quoted {
			return l.of()
		}
		_, rest, _ = strings.Cut(rest, ".")
		rest, _, _ = strings.Cut(rest, " ")
	}
	name, _, _ := strings.Cut(rest, `"`)
	return l.of(strings.Split(name, ".")...)
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
