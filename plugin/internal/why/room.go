package why

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
)

// unknownRoom says for which limits of policy spaces the dry run of an object did not show whether there is room. It
// returns "" if it showed that for all. The API server charges nothing for dry runs. The operator checks those of
// creations, except for devices, and none of updates.
func (e *explainer) unknownRoom(
	ctx context.Context, mapping *meta.RESTMapping, stored *unstructured.Unstructured,
) string {
	if !isNamespaced(mapping) {
		return ""
	}
	created := mapping.Resource.GroupResource()
	isUpdate := stored.GetResourceVersion() != ""
	mayUseDevices := created.Resource == "resourceclaims" && !isUpdate
	var added []corev1.ResourceName
	// A dry run is allowed while the operator, which would check it, is not reached.
	if isUpdate || e.missingOperator(ctx) != "" || e.unreachedOperator(ctx) != "" {
		added = e.added(ctx, mapping, stored, isUpdate)
	}
	if len(added) == 0 && !mayUseDevices {
		return ""
	}
	const unknown = "the dry run did not show whether the quotas of policy spaces have room for "
	live, err := e.cluster.Dynamic.Resource(corev1.SchemeGroupVersion.WithResource("resourcequotas")).
		Namespace(e.namespace).Get(ctx, v1alpha1.QuotaName, getOptions)
	switch {
	case e.isUnread(err, "resourcequotas in namespace "+e.namespace+", in which the usage of policy spaces is counted", ""):
		return unknown + "it, if they limit it"
	case err != nil:
		return "" // no policy space limits anything in the namespace
	}
	hard, _, _ := unstructured.NestedStringMap(live.Object, "spec", "hard")
	var unchecked []string
	for text := range hard {
		name := corev1.ResourceName(text)
		if slices.Contains(added, name) || mayUseDevices && quota.CountsDevices(name) {
			unchecked = append(unchecked, text)
		}
	}
	if len(unchecked) == 0 {
		return ""
	}
	slices.Sort(unchecked)
	return unknown + "its " + strings.Join(unchecked, ", ")
}

// added returns what an object uses, or uses more than before if it is updated.
func (e *explainer) added(
	ctx context.Context, mapping *meta.RESTMapping, stored *unstructured.Unstructured, isUpdate bool,
) []corev1.ResourceName {
	created := mapping.Resource.GroupResource()
	change := quota.Change{New: usageOf(created, stored)}
	if isUpdate {
		if live, err := e.get(ctx, mapping, e.namespace, stored.GetName()); err == nil {
			change.Old = usageOf(created, live)
		}
	}
	return change.Adds()
}

// usageOf returns what an object that the API server has decoded uses.
func usageOf(created schema.GroupResource, object *unstructured.Unstructured) corev1.ResourceList {
	used, err := quota.UsageOf(created, object)
	if err != nil {
		return nil
	}
	return used
}
