package scaffold

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// tool is another tool whose objects are converted.
type tool struct {
	// name is the name of the tool, and kinds those of the objects that are expected in files.
	name, kinds string
	flag, usage string
	isChosen    bool
	// clusterKinds are the kinds of the objects that are read from a cluster, which must have the first kind. More adds
	// further objects to them, or is nil.
	clusterKinds []schema.GroupKind
	more         func(context.Context, reader, []*unstructured.Unstructured) ([]*unstructured.Unstructured, error)
	// convert returns nil if none of the objects belongs to the tool. The selector is that of the user, or nil.
	convert func(context.Context, []*unstructured.Unstructured, *metav1.LabelSelector) *draft
	// usesSelector is false if the objects of the tool select namespaces.
	usesSelector bool
}

// newTools returns the tools, of which none is chosen.
func newTools() []*tool {
	return []*tool{
		{
			name: "the Hierarchical Namespace Controller", flag: "from-hnc",
			kinds:        "HierarchyConfigurations, SubnamespaceAnchors or HierarchicalResourceQuotas",
			usage:        "Convert the hierarchy of the Hierarchical Namespace Controller, and what it propagates.",
			clusterKinds: []schema.GroupKind{hncHierarchy, hncAnchor, hncQuota, hncConfiguration},
			more:         addPropagatedByHNC, convert: fromHNC,
		},
		{
			name: "Accurate", flag: "from-accurate", kinds: "SubNamespaces, or Namespaces with its labels",
			usage:        "Convert the roots, sub-namespaces and template namespaces of Accurate, and what it propagates.",
			clusterKinds: []schema.GroupKind{accurateSub, namespaceKind},
			more:         addPropagatedByAccurate, convert: fromAccurate,
		},
		{
			name: "OpenShift", flag: "from-openshift-project-template", kinds: "a Template",
			usage: "Convert the template by which OpenShift creates projects.",
			more:  readProjectTemplate, convert: fromProjectTemplate, usesSelector: true,
		},
		{
			name: "Kyverno", flag: "from-kyverno-generate", kinds: "ClusterPolicies with generate rules",
			usage:        "Convert the rules of Kyverno that generate objects in namespaces.",
			clusterKinds: []schema.GroupKind{kyvernoPolicy, kyvernoGenerating}, convert: fromKyverno,
		},
		{
			name: "Capsule", flag: "from-capsule", kinds: "Tenants or GlobalTenantResources",
			usage:        "Convert the Tenants of Capsule, and the resources that it distributes in them.",
			clusterKinds: []schema.GroupKind{capsuleTenant, capsuleGlobal, capsuleLocal}, convert: fromCapsule,
		},
	}
}

// kindOf returns the kind of an object without its version.
func kindOf(object *unstructured.Unstructured) schema.GroupKind {
	return object.GroupVersionKind().GroupKind()
}

func objectsOf(objects []*unstructured.Unstructured, kind schema.GroupKind) []*unstructured.Unstructured {
	var found []*unstructured.Unstructured
	for _, object := range objects {
		if kindOf(object) == kind {
			found = append(found, object)
		}
	}
	return found
}

// at returns a field of a JSON value, or the zero value if there is none of this type.
func at[T any](value any, path ...string) T {
	for _, name := range path {
		fields, _ := value.(map[string]any)
		value = fields[name]
	}
	found, _ := value.(T)
	return found
}

// each returns the objects in a list of a JSON value.
func each(value any, path ...string) []map[string]any {
	var found []map[string]any
	for _, item := range at[[]any](value, path...) {
		if fields, ok := item.(map[string]any); ok {
			found = append(found, fields)
		}
	}
	return found
}

// texts returns the strings in a list of a JSON value.
func texts(value any, path ...string) []string {
	var found []string
	for _, item := range at[[]any](value, path...) {
		if text, ok := item.(string); ok {
			found = append(found, text)
		}
	}
	return found
}
