// Package populate brings a namespace to what templates declare for it: Declare renders, NewPlan compares with what is
// there and says why, Apply writes.
//
// It follows "Apply the template" of the Namespace Population proposal, with server-side apply (KEP-555) in the place
// of kubectl apply --prune.
package populate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
)

// Declared is what templates declare for one namespace.
type Declared struct {
	Namespace *corev1.Namespace
	// Templates match the namespace, in the order in which they apply.
	Templates []*v1alpha1.NamespaceTemplate
	// Objects are declared once each: where several templates declare one, the last has it.
	Objects []Object
	// Omitted objects are declared but left out.
	Omitted []render.Omission
	// Overridden objects are declared by a template and, in its place, by a later one.
	Overridden []Overridden
	// Withheld RoleBindings are declared and not applied, because a later template overrides their Role.
	Withheld []Withheld
	// Broken templates declare something that can't be rendered. What they populated before stays.
	Broken []Broken
}

// Object is an object as it is to be in its namespace.
type Object struct {
	*unstructured.Unstructured
	Template *v1alpha1.NamespaceTemplate
	// Hash identifies the content.
	Hash string
}

// Overridden says that a later template declares an object too.
type Overridden struct {
	Object ObjectID
	// Template declares the object in vain, because By declares it too and comes later.
	Template, By string
}

// Finding returns the finding about the earlier template's object.
func (o Overridden) Finding() Finding {
	return Finding{
		Object: o.Object, Template: o.Template, Severity: Warning, Reason: FindingDeclaredTwice,
		Message: fmt.Sprintf("declared by templates %s and %s: the latter's is applied", o.Template, o.By),
	}
}

// Broken is a template that can't be rendered, and why.
type Broken struct {
	Template *v1alpha1.NamespaceTemplate
	Err      error
}

// ObjectID identifies an object in its namespace, whatever the version it is written in.
type ObjectID struct {
	schema.GroupKind
	Name string
}

// String names the object as kubectl does: rolebinding.rbac.authorization.k8s.io/creator.
func (id ObjectID) String() string {
	return strings.ToLower(id.GroupKind.String()) + "/" + id.Name
}

// ID returns what identifies the object in its namespace.
func (o Object) ID() ObjectID {
	return ObjectID{o.GroupVersionKind().GroupKind(), o.GetName()}
}

// Declare renders the templates, which match ns and are in ascending order of names, for ns.
func Declare(cache *render.Cache, ns *corev1.Namespace, templates []*v1alpha1.NamespaceTemplate) Declared {
	declared := Declared{Namespace: ns, Templates: templates}
	values := render.Values{Namespace: ns.Name, Creator: ns.Annotations[v1alpha1.CreatorAnnotation]}
	position := map[ObjectID]int{}
	for _, template := range templates {
		objects, omitted, err := stamp(cache, template, ns, values)
		if err != nil {
			declared.Broken = append(declared.Broken, Broken{template, err})
			continue
		}
		declared.Omitted = append(declared.Omitted, omitted...)
		for _, object := range objects {
			id := object.ID()
			earlier, taken := position[id]
			if !taken {
				position[id] = len(declared.Objects)
				declared.Objects = append(declared.Objects, object)
				continue
			}
			declared.Overridden = append(declared.Overridden,
				Overridden{Object: id, Template: declared.Objects[earlier].Template.Name, By: template.Name})
			declared.Objects[earlier] = object
		}
	}
	withhold(&declared)
	return declared
}

func stamp(
	cache *render.Cache, template *v1alpha1.NamespaceTemplate, ns *corev1.Namespace, values render.Values,
) ([]Object, []render.Omission, error) {
	compiled, err := cache.Compile(template, match.Overlays(template, ns))
	if err != nil {
		return nil, nil, err
	}
	stamped, omitted, err := compiled.Stamp(values)
	if err != nil {
		return nil, nil, err
	}
	objects := make([]Object, 0, len(stamped))
	for _, object := range stamped {
		hash, err := hashOf(object)
		if err != nil {
			return nil, nil, fmt.Errorf("template %s: %w", template.Name, err)
		}
		objects = append(objects, Object{Unstructured: object, Template: template, Hash: hash})
	}
	return objects, omitted, nil
}

// hashOf hashes the object's JSON, in which Go sorts keys. The namespace is left out, so that objects which are the
// same in many namespaces share a hash. 64 bits tell apart the few contents that one object has in its life; nobody
// gains by a collision, because ownership in managedFields is looked at too.
func hashOf(object *unstructured.Unstructured) (string, error) {
	anywhere := maps.Clone(object.Object)
	if metadata, ok := anywhere["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		delete(metadata, "namespace")
		anywhere["metadata"] = metadata
	}
	data, err := json.Marshal(anywhere)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}

// Matching returns the templates that populate ns, or why none does at all.
func Matching(index *match.Index, ns *corev1.Namespace, exclude ...string) ([]*v1alpha1.NamespaceTemplate, string) {
	if reason := match.UnpopulatedReason(ns, exclude...); reason != "" {
		return nil, reason
	}
	return index.Match(ns), ""
}
