package render

import (
	"encoding/json"
	"slices"
	"strings"

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
	// MayBeProtected reports whether the object may have DeletionProtectionAnnotation, by itself or by an overlay.
	MayBeProtected bool
	// Raw is the object as JSON.
	Raw []byte
}

// ID returns the ID of the object. Its name may contain tokens.
func (d Declaration) ID() ObjectID { return ObjectID{d.GroupKind(), d.Name} }

// Same reports whether two declarations declare the same object, whatever their versions.
func (d Declaration) Same(other Declaration) bool { return d.ID() == other.ID() }

// Declarations returns the declarations of a template. Names may contain tokens. Overlays can change Binds and nothing
// else of them. Declarations omits objects that are not valid JSON, which Compile rejects.
func Declarations(template *v1alpha1.NamespaceTemplate) []Declaration {
	declarations := make([]Declaration, 0, len(template.Spec.Templates))
	overlaysProtect := slices.ContainsFunc(template.Spec.Overlays, protects)
	for _, raw := range template.Spec.Templates {
		var object struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Metadata   struct {
				Name        string         `json:"name"`
				Annotations map[string]any `json:"annotations"`
			} `json:"metadata"`
			RoleRef any `json:"roleRef"`
		}
		if utiljson.Unmarshal(raw.Raw, &object) != nil {
			continue
		}
		declaration := Declaration{
			GroupVersionKind: schema.FromAPIVersionAndKind(object.APIVersion, object.Kind), Name: object.Metadata.Name,
			MayBeProtected: overlaysProtect ||
				object.Metadata.Annotations[v1alpha1.DeletionProtectionAnnotation] == "true",
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

// AllDeclarations returns the declarations of a template and those of the copies of its sources, which overlays cannot
// change.
func AllDeclarations(template *v1alpha1.NamespaceTemplate) []Declaration {
	declarations := Declarations(template)
	for i := range template.Spec.Sources {
		source := &template.Spec.Sources[i]
		raw, err := json.Marshal(source)
		if err != nil {
			continue // cannot happen: it consists of strings
		}
		declarations = append(declarations, Declaration{
			GroupVersionKind: schema.FromAPIVersionAndKind(source.APIVersion, source.Kind), Name: copyName(source),
			MayBeProtected: source.Annotations[v1alpha1.DeletionProtectionAnnotation] == "true", Raw: raw,
		})
	}
	return declarations
}

// protects reports whether an overlay may protect objects from deletion.
func protects(overlay v1alpha1.Overlay) bool {
	return overlay.Annotations[v1alpha1.DeletionProtectionAnnotation] == "true" ||
		slices.ContainsFunc(overlay.Patches, func(patch v1alpha1.Patch) bool {
			return strings.Contains(patch.Patch, "deletion-protection")
		})
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
