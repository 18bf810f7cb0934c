package render

import (
	"errors"
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
func checkDeclared(object *unstructured.Unstructured) error {
	if object.Object == nil {
		return errors.New("the object is empty")
	}
	if err := checkObject(object); err != nil {
		return err
	}
	if metadata, ok := object.Object["metadata"].(map[string]any); ok && metadata["namespace"] != nil {
		return fmt.Errorf("%s sets metadata.namespace: remove it, because objects are created in the populated namespace",
			identityOf(object))
	}
	return nil
}

// checkObject returns why an object cannot be created in a namespace.
func checkObject(object *unstructured.Unstructured) error {
	for _, field := range [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}} {
		if value, _, err := unstructured.NestedString(object.Object, field...); err != nil || value == "" {
			return fmt.Errorf("%s is missing", strings.Join(field, "."))
		}
	}
	if _, err := schema.ParseGroupVersion(object.GetAPIVersion()); err != nil {
		return fmt.Errorf("apiVersion: %w", err)
	}
	for _, value := range []string{object.GetAPIVersion(), object.GetKind()} {
		if (Values{}).expand(value) != value {
			return fmt.Errorf("%q contains a token: apiVersion and kind must be the same in every namespace", value)
		}
	}
	id := identityOf(object)
	if _, items := object.Object["items"]; items && strings.HasSuffix(object.GetKind(), "List") {
		return fmt.Errorf("%s is a list: declare its items one by one", id)
	}
	kind := object.GroupVersionKind()
	if isClusterScoped(kind) {
		return fmt.Errorf("%s is not namespace-scoped: a template holds objects of a namespace only", id)
	}
	if key := unusableKey(object.Object); key != "" {
		return fmt.Errorf(
			"%s has the key %q: keys must not contain tokens, and must not be <<, which merges maps in YAML", id, key)
	}
	if err := checkMetadata(object); err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	return nil
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

func isClusterScoped(kind schema.GroupVersionKind) bool {
	kustomizeLock.Lock()
	defer kustomizeLock.Unlock()
	return clusterScoped[kind.GroupKind()] || resid.NewGvk(kind.Group, kind.Version, kind.Kind).IsClusterScoped()
}

func checkMetadata(object *unstructured.Unstructured) error {
	metadata, _ := object.Object["metadata"].(map[string]any)
	for _, field := range []string{"labels", "annotations"} {
		if metadata[field] == nil {
			continue
		}
		if _, _, err := unstructured.NestedStringMap(metadata, field); err != nil {
			return fmt.Errorf("metadata%w", err)
		}
	}
	return errors.Join(CheckLabels(object.GetLabels()), CheckAnnotations(object.GetAnnotations()))
}

// CheckLabels returns an error if one of the labels is reserved for nstpl.
func CheckLabels(labels map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if isReservedKey(key) {
			return fmt.Errorf("the label %s is reserved for nstpl: remove it", key)
		}
	}
	return nil
}

// CheckAnnotations returns an error if one of the annotations is reserved for nstpl or for kustomize, which would omit
// or rename objects because of them.
func CheckAnnotations(annotations map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if isReservedKey(key) && key != v1alpha1.ReplaceAnnotation && key != v1alpha1.RequiredSCCAnnotation {
			return fmt.Errorf("the annotation %s is reserved for nstpl: remove it", key)
		}
	}
	own := append([]string{konfig.IgnoredByKustomizeAnnotation, originAnnotation, transformationsAnnotation},
		resource.BuildAnnotations...)
	for _, key := range own {
		if _, ok := annotations[key]; ok {
			return fmt.Errorf("the annotation %s is reserved for kustomize: remove it", key)
		}
	}
	return nil
}

// Annotations that kustomize removes, and whose names it does not export.
const (
	originAnnotation          = "config.kubernetes.io/origin"
	transformationsAnnotation = "alpha.config.kubernetes.io/transformations"
)

// unusableKey returns the first key, in ascending order, that contains a token or that YAML reads as a merge key. It
// returns "" if there is none.
func unusableKey(value any) string {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if containsToken(key, NamespaceToken) || containsToken(key, CreatorToken) || key == "<<" {
				return key
			}
			if found := unusableKey(value[key]); found != "" {
				return found
			}
		}
	case []any:
		for _, item := range value {
			if found := unusableKey(item); found != "" {
				return found
			}
		}
	}
	return ""
}
