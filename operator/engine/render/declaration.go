package render

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Declaration is an object of a template as the template declares it, without compiling the template.
type Declaration struct {
	schema.GroupVersionKind
	Name string
	// Binds is the name of the Role that a RoleBinding refers to, or "".
	Binds string
	// Raw is the object as JSON.
	Raw []byte
}

// Same reports whether two declarations declare the same object, whatever their versions.
func (d Declaration) Same(other Declaration) bool {
	return d.GroupKind() == other.GroupKind() && d.Name == other.Name
}

// Declarations returns the declarations of a template. Names may contain tokens. Overlays can change Binds and nothing
// else of them. Declarations omits objects that are not valid JSON, which Compile rejects.
func Declarations(template *v1alpha1.NamespaceTemplate) []Declaration {
	declarations := make([]Declaration, 0, len(template.Spec.Templates))
	for _, raw := range template.Spec.Templates {
		var object struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Metadata   struct {
				Name string `json:"name"`
			} `json:"metadata"`
			RoleRef any `json:"roleRef"`
		}
		if utiljson.Unmarshal(raw.Raw, &object) != nil {
			continue
		}
		declaration := Declaration{
			GroupVersionKind: schema.FromAPIVersionAndKind(object.APIVersion, object.Kind), Name: object.Metadata.Name,
			Raw: raw.Raw,
		}
		if ref, ok := object.RoleRef.(map[string]any); ok && declaration.GroupKind() == roleBindingKind &&
			ref["kind"] == "Role" {
			declaration.Binds, _ = ref["name"].(string)
		}
		declarations = append(declarations, declaration)
	}
	return declarations
}

var roleBindingKind = schema.GroupKind{Group: rbacGroup, Kind: "RoleBinding"}

// KindsOf returns the kinds of declarations, each once and in the order of the declarations.
func KindsOf(declarations []Declaration) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, declaration := range declarations {
		if !slices.Contains(kinds, declaration.GroupVersionKind) {
			kinds = append(kinds, declaration.GroupVersionKind)
		}
	}
	return kinds
}
