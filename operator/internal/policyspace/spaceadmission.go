package policyspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

// Hierarchy admits PolicySpaces.
type SpaceAdmission struct {
	live   client.Reader
	quotas corev1client.ResourceQuotaInterface
}

// NewHierarchy returns the validator. The quotas are those of the operator's namespace, and nothing is ever stored
// there.
func NewSpaceAdmission(live client.Reader, quotas corev1client.ResourceQuotaInterface) *SpaceAdmission {
	return &SpaceAdmission{live: live, quotas: quotas}
}

// Validate is asked about creations and updates of PolicySpaces. It refuses a space above itself and limits that no
// ResourceQuota could have, and warns of what may not be meant.
func (h *SpaceAdmission) Validate(ctx context.Context, request *webhook.Request) error {
	if request.Object == nil || request.SubResource != "" {
		return nil
	}
	space, before := &v1alpha1.PolicySpace{}, &v1alpha1.PolicySpace{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(request.Object.Object, space)
	if err == nil && request.OldObject != nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(request.OldObject.Object, before)
	}
	if err != nil {
		return webhook.Deny(fmt.Sprintf("policyspace %s: %v", request.Name, err))
	}
	if request.OldObject != nil && equality.Semantic.DeepEqual(space.Spec, before.Spec) {
		return nil
	}
	list := &v1alpha1.PolicySpaceList{}
	if err := h.live.List(ctx, list); err != nil {
		return fmt.Errorf("read the other policyspaces: %w", err)
	}
	spaces := []*v1alpha1.PolicySpace{space}
	for i := range list.Items {
		if list.Items[i].Name != space.Name {
			spaces = append(spaces, &list.Items[i])
		}
	}
	lineage, err := hierarchy.NewForest(spaces).Lineage(space.Name)
	broken, isBroken := errors.AsType[*hierarchy.BrokenError](err)
	switch {
	case isBroken && broken.Cycle:
		return webhook.Deny(broken.Error())
	case isBroken:
		request.Warnings = append(request.Warnings, broken.Error())
	default:
		request.Warnings = append(request.Warnings, useless(lineage)...)
	}
	if equality.Semantic.DeepEqual(space.Spec.Quota, before.Spec.Quota) {
		return nil
	}
	return h.checkLimits(ctx, space)
}

// useless warns of limits that can't be reached, because a space above has smaller ones.
func useless(lineage []*v1alpha1.PolicySpace) []string {
	var warnings []string
	space := lineage[0]
	hard := quota.Hard(space)
	for _, name := range slices.Sorted(maps.Keys(hard)) {
		limit := hard[name]
		for _, above := range lineage[1:] {
			if smaller, limited := quota.Hard(above)[name]; limited && smaller.Cmp(limit) < 0 {
				warnings = append(warnings,
					fmt.Sprintf("policyspace %s limits %s to %s, and %s above it to %s: the latter is met first",
						space.Name, name, limit.String(), above.Name, smaller.String()))
				break
			}
		}
	}
	return warnings
}

// checkLimits has the API server itself say whether a ResourceQuota could have the limits.
func (h *SpaceAdmission) checkLimits(ctx context.Context, space *v1alpha1.PolicySpace) error {
	hard := quota.Hard(space)
	if len(hard) == 0 {
		return nil
	}
	_, err := h.quotas.Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "nstpl-trial-"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsInvalid(err) {
		return webhook.Deny(fmt.Sprintf("policyspace %s has limits that no ResourceQuota can have: %v", space.Name,
			err))
	}
	if err != nil {
		return fmt.Errorf("ask the API server about the limits of policyspace %s: %w", space.Name, err)
	}
	return nil
}

// Plugin returns the row of the chain.
func (h *SpaceAdmission) Plugin() webhook.Plugin {
	return webhook.Plugin{
		Name: "hierarchy", Validator: h,
		Rules: []admissionregistrationv1.RuleWithOperations{
			webhook.Rule(v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version,
				admissionregistrationv1.ClusterScope,
				[]string{v1alpha1.PolicySpaces.Resource},
				admissionregistrationv1.Create, admissionregistrationv1.Update),
		},
		FailurePolicy:  admissionregistrationv1.Ignore, // what it refuses does nothing, and the status says so
		TimeoutSeconds: 5,
	}
}
