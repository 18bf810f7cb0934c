package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/resid"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// checkDeclared returns why an object, as a template or an overlay declares it, is invalid.
func checkDeclared(object *unstructured.Unstructured) []Problem {
	if object.Object == nil {
		return []Problem{{Rule: ruleSchema, Message: "the object is empty"}}
	}
	problems := checkObject(object)
	if metadata, ok := object.Object["metadata"].(map[string]any); ok && metadata["namespace"] != nil {
		problems = append(problems, Problem{
			Rule: ruleNamespace, Path: "metadata.namespace", Object: IDOf(object).String(), Message: "must not be set",
			Remedy: "remove it, because objects are created in the populated namespace",
		})
	}
	return problems
}

// checkObject returns why an object cannot be created in a namespace.
func checkObject(object *unstructured.Unstructured) []Problem {
	if _, items := object.Object["items"]; items && strings.HasSuffix(object.GetKind(), "List") {
		return []Problem{{
			Rule: ruleList, Message: "the object is a " + object.GetKind(), Remedy: "declare its items one by one",
		}}
	}
	if problems := checkIdentity(object); len(problems) > 0 {
		return problems
	}
	name := IDOf(object).String()
	var problems []Problem
	if isClusterScoped(object.GroupVersionKind()) {
		problems = append(problems, Problem{
			Rule: ruleScope, Object: name, Message: "is not namespace-scoped",
			Remedy: "a template holds objects of a namespace only",
		})
	}
	if object.GroupVersionKind().GroupKind() == exemptionKind {
		problems = append(problems, Problem{
			Rule: ruleScope, Object: name, Message: "cannot be declared",
			Remedy: "create it in the namespace that is exempt, as a user with the verb exempt on the template",
		})
	}
	if key := unusableKey(object.Object); key != "" {
		problems = append(problems, Problem{
			Rule: ruleToken, Object: name, Message: fmt.Sprintf("has the key %q", key),
			Remedy: "keys must not contain tokens, and must not be <<, which merges maps in YAML",
		})
	}
	return append(problems, checkMetadata(object)...)
}

// checkIdentity returns what is wrong with the apiVersion, kind and name of an object.
func checkIdentity(object *unstructured.Unstructured) []Problem {
	var problems []Problem
	for _, field := range [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}} {
		path := strings.Join(field, ".")
		value, _, err := unstructured.NestedString(object.Object, field...)
		switch raw, _, _ := unstructured.NestedFieldNoCopy(object.Object, field...); {
		case err != nil && raw != nil:
			problems = append(problems, Problem{Rule: ruleSchema, Path: path, Message: "must be a string",
				Remedy: "write it in quotes"})
		case value == "":
			problems = append(problems, Problem{Rule: ruleSchema, Message: path + " is missing"})
		case field[0] != "metadata" && !isPlain(value):
			problems = append(problems, Problem{Rule: ruleToken, Path: path,
				Message: fmt.Sprintf("%q contains a token", value),
				Remedy:  "apiVersion and kind must be the same in every namespace"})
		}
	}
	if _, err := schema.ParseGroupVersion(object.GetAPIVersion()); err != nil {
		problems = append(problems, Problem{Rule: ruleSchema, Path: "apiVersion",
			Message: fmt.Sprintf("%q is not a version", object.GetAPIVersion()),
			Remedy:  "write GROUP/VERSION, such as apps/v1, or v1"})
	}
	return problems
}

// isPlain reports whether a text contains no token and no escaped token.
func isPlain(text string) bool {
	literal, constant := Literal(text)
	return constant && literal == text
}

// clusterScoped are cluster-scoped kinds that kustomize does not know, because its schema is of an older Kubernetes.
var clusterScoped = map[schema.GroupKind]bool{
	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"}:           true,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicyBinding"}:    true,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}:         true,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"}:  true,
	{Group: "authentication.k8s.io", Kind: "SelfSubjectReview"}:                        true,
	{Group: "certificates.k8s.io", Kind: "ClusterTrustBundle"}:                         true,
	{Group: "networking.k8s.io", Kind: "IPAddress"}:                                    true,
	{Group: "networking.k8s.io", Kind: "ServiceCIDR"}:                                  true,
	{Group: "resource.k8s.io", Kind: "DeviceClass"}:                                    true,
	{Group: "resource.k8s.io", Kind: "ResourceSlice"}:                                  true,
	{Group: "storage.k8s.io", Kind: "VolumeAttributesClass"}:                           true,
	{Group: v1alpha1.GroupVersion.Group, Kind: "NamespaceInitializationConfiguration"}: true,
	{Group: v1alpha1.GroupVersion.Group, Kind: "NamespaceTemplate"}:                    true,
}

// exemptionKind is a kind of which no template may declare objects: the operator would write them with its own rights,
// and a template could exempt namespaces from another one.
var exemptionKind = schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "TemplateExemption"}

func isClusterScoped(kind schema.GroupVersionKind) bool {
	kustomizeLock.Lock()
	defer kustomizeLock.Unlock()
	return clusterScoped[kind.GroupKind()] || resid.NewGvk(kind.Group, kind.Version, kind.Kind).IsClusterScoped()
}

// checkMetadata returns what is wrong with the labels and annotations of an object.
func checkMetadata(object *unstructured.Unstructured) []Problem {
	metadata, _ := object.Object["metadata"].(map[string]any)
	var problems []Problem
	for _, field := range []string{"labels", "annotations"} {
		if metadata[field] == nil {
			continue
		}
		values, ok := metadata[field].(map[string]any)
		if !ok {
			problems = append(problems,
				Problem{Rule: ruleSchema, Path: "metadata." + field, Message: "must be an object"})
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if _, ok := values[key].(string); !ok {
				problems = append(problems, Problem{Rule: ruleSchema, Path: "metadata." + field + "[" + key + "]",
					Message: "must be a string", Remedy: "write it in quotes"})
			}
		}
	}
	if len(problems) == 0 {
		problems = slices.Concat(CheckLabels(object.GetLabels()), CheckAnnotations(object.GetAnnotations()))
		for i := range problems {
			problems[i] = problems[i].under("metadata")
		}
	}
	return naming(IDOf(object).String(), problems)
}

// naming returns the problems with the name of the object that they are about.
func naming(object string, problems []Problem) []Problem {
	for i := range problems {
		problems[i].Object = object
	}
	return problems
}

// CheckLabels returns a problem for each of the labels that is reserved for nstpl.
func CheckLabels(labels map[string]string) []Problem {
	var problems []Problem
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if IsReservedKey(key) {
			problems = append(problems, Problem{
				Rule: ruleReservedKey, Path: "labels[" + key + "]",
				Message: "the label " + key + " is reserved for nstpl",
				Remedy:  "remove it",
			})
		}
	}
	return problems
}

// CheckAnnotations returns a problem for each of the annotations that is reserved for nstpl or for kustomize, which
// would omit or rename objects because of them, and for an invalid value of DeletionProtectionAnnotation or
// ReplaceAnnotation.
func CheckAnnotations(annotations map[string]string) []Problem {
	own := append([]string{konfig.IgnoredByKustomizeAnnotation, originAnnotation, transformationsAnnotation},
		resource.BuildAnnotations...)
	var problems []Problem
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		var owner string
		switch {
		case key == v1alpha1.DeletionProtectionAnnotation:
			problems = append(problems, CheckProtection(annotations)...)
			continue
		case key == v1alpha1.ReplaceAnnotation && containsValue(annotations[key]):
			problems = append(problems, Problem{
				Rule: ruleToken, Path: "annotations[" + key + "]", Message: "depends on the namespace",
				Remedy: "write \"true\", or remove it: only the author may allow that the object is replaced",
			})
			continue
		case IsReservedKey(key) && key != v1alpha1.ReplaceAnnotation && key != v1alpha1.RequiredSCCAnnotation:
			owner = "nstpl"
		case slices.Contains(own, key):
			owner = "kustomize"
		default:
			continue
		}
		problems = append(problems, Problem{
			Rule: ruleReservedKey, Path: "annotations[" + key + "]",
			Message: "the annotation " + key + " is reserved for " + owner, Remedy: "remove it",
		})
	}
	return problems
}

// CheckProtection returns a problem for a value of DeletionProtectionAnnotation that admission denies, such as a token.
func CheckProtection(annotations map[string]string) []Problem {
	value, exists := annotations[v1alpha1.DeletionProtectionAnnotation]
	if !exists || value == "true" || value == "false" {
		return nil
	}
	return []Problem{{
		Rule: ruleSchema, Path: "annotations[" + v1alpha1.DeletionProtectionAnnotation + "]",
		Message: fmt.Sprintf("%q is neither \"true\" nor \"false\"", value),
		Remedy:  "write \"true\" to protect the object from deletion, or remove the annotation",
	}}
}

// Annotations that kustomize removes, and whose names it does not export.
const (
	originAnnotation          = "config.kubernetes.io/origin"
	transformationsAnnotation = "alpha.config.kubernetes.io/transformations"
)

// unusableKey returns the least key that contains a token or that YAML reads as a merge key, or "" if there is none.
func unusableKey(value any) string {
	least := ""
	for inside := range within(value) {
		fields, _ := inside.(map[string]any)
		for key := range fields {
			isUnusable := !isConstant(key) || key == "<<"
			if isUnusable && (least == "" || key < least) {
				least = key
			}
		}
	}
	return least
}
