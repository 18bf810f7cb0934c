package scaffold

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

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
	// clusterKinds are the kinds of objects that are read from a cluster, which must have the first one. NamedKinds are
	// further kinds of its group, whose objects are not converted, but named. More adds further objects, or is nil.
	clusterKinds []schema.GroupKind
	namedKinds   []string
	more         func(context.Context, reader, []*unstructured.Unstructured) ([]*unstructured.Unstructured, error)
	// from returns nil if none of the objects belongs to the tool. The selector is that of the user, or nil.
	from func(context.Context, []*unstructured.Unstructured, *metav1.LabelSelector) *draft
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
			more:         addPropagatedByHNC, from: fromHNC,
		},
		{
			name: "Accurate", flag: "from-accurate", kinds: "SubNamespaces, or Namespaces with its labels",
			usage:        "Convert the roots, sub-namespaces and template namespaces of Accurate, and what it propagates.",
			clusterKinds: []schema.GroupKind{accurateSub, namespaceKind},
			more:         addPropagatedByAccurate, from: fromAccurate,
		},
		{
			name: "OpenShift", flag: "from-openshift-project-template", kinds: "a Template",
			usage: "Convert the template by which OpenShift creates projects.",
			more:  readProjectTemplate, from: fromProjectTemplate, usesSelector: true,
		},
		{
			name: "Kyverno", flag: "from-kyverno-generate", kinds: "ClusterPolicies with generate rules",
			usage:        "Convert the rules of Kyverno that generate objects in namespaces.",
			clusterKinds: []schema.GroupKind{kyvernoPolicy, kyvernoGenerating, kyvernoException, kyvernoExceptionInCEL},
			from:         fromKyverno,
		},
		{
			name: "Capsule", flag: "from-capsule", kinds: "Tenants or GlobalTenantResources",
			usage:        "Convert the Tenants of Capsule, and the resources that it distributes in them.",
			clusterKinds: []schema.GroupKind{capsuleTenant, capsuleGlobal, capsuleLocal},
			namedKinds: strings.Fields("CapsuleConfiguration CustomQuota GlobalCustomQuota GlobalResourceQuota ResourcePool " +
				"ResourcePoolClaim"),
			from: fromCapsule,
		},
	}
}

// convert converts objects. It returns nil if none of them belongs to the tool. It names the other objects of the tool,
// by their API groups.
func (t *tool) convert(
	ctx context.Context, objects []*unstructured.Unstructured, selects *metav1.LabelSelector,
) *draft {
	d := t.from(ctx, objects, selects)
	if d == nil {
		return nil
	}
	for _, object := range objects {
		kind := kindOf(object)
		isOfTool := slices.ContainsFunc(t.clusterKinds, func(other schema.GroupKind) bool {
			return other.Group == kind.Group && kind.Group != ""
		})
		if isOfTool && !slices.Contains(t.clusterKinds, kind) {
			d.item("%s", nameOf(object.Object)).need(nil, "this kind is not converted: decide what replaces the object")
		}
	}
	return d
}

// kindsToRead returns the kinds of the objects that are read from a cluster.
func (t *tool) kindsToRead() []schema.GroupKind {
	kinds := slices.Clone(t.clusterKinds)
	for _, name := range t.namedKinds {
		kinds = append(kinds, schema.GroupKind{Group: kinds[0].Group, Kind: name})
	}
	return kinds
}

// unset are the values, as JSON, of fields that are not set. The last one is what Capsule sets in each Tenant.
var unset = []string{"null", "false", "{}", "[]", `{"hostnameCollisionScope":"Disabled"}`}

// unlisted returns the fields of a JSON value that are set and not among some names.
func unlisted(fields map[string]any, names ...string) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value, _ := json.Marshal(fields[name]) // cannot fail
		if !slices.Contains(unset, string(value)) && !slices.Contains(names, name) {
			found = append(found, name)
		}
	}
	return found
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
