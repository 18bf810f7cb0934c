package policyspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

// SpaceAdmission validates PolicySpaces.
type SpaceAdmission struct {
	live client.Reader
	// quotas is for dry runs in the operator's namespace.
	quotas corev1client.ResourceQuotaInterface
	// missing denies parents that do not exist.
	missing *missingSpaces
}

// Validate implements webhook.Validator for PolicySpaces. It denies a policy space that is its own ancestor, a new
// parent that does not exist, and limits that are invalid in a ResourceQuota. It warns of an ancestor that does not
// exist, of limits above those of an ancestor, and of limits that Kubernetes does not count. It denies the deletion of
// a policy space that is in use.
func (a *SpaceAdmission) Validate(ctx context.Context, request *webhook.Request) error {
	switch {
	case request.SubResource != "":
		return nil
	case request.Operation == admissionv1.Delete:
		return a.checkUnused(ctx, request)
	case request.Object == nil:
		return nil
	}
	space, before, err := spacesIn(request)
	if err != nil {
		return webhook.Deny(codes.InvalidObject, fmt.Sprintf("policyspace %s: %v", request.Name, err))
	}
	if request.OldObject != nil && equality.Semantic.DeepEqual(space.Spec, before.Spec) {
		return nil
	}
	parent := space.Spec.Parent
	isMoved := parent != "" && parent != before.Spec.Parent && parent != space.Name
	if isMoved && !appliesInOwnOrder(request, request.Object) {
		if err := a.missing.check(ctx, request, parent); err != nil {
			return err
		}
	}
	lineage, err := a.lineageOf(ctx, space)
	broken, isBroken := errors.AsType[*hierarchy.BrokenError](err)
	switch {
	case isBroken && broken.Cycle:
		return webhook.Deny(codes.PolicySpaceInvalid, broken.Error())
	case isBroken:
		request.Warnings = append(request.Warnings, broken.Error())
	case err != nil:
		return err
	default:
		request.Warnings = append(request.Warnings, quota.Unreachable(lineage)...)
	}
	if equality.Semantic.DeepEqual(space.Spec.Quota, before.Spec.Quota) {
		return nil
	}
	request.Warnings = append(request.Warnings, uncountedExtended(space)...)
	return a.checkLimits(ctx, space)
}

// spacesIn returns the policy space of a request, and its state before, which is empty for a creation.
func spacesIn(request *webhook.Request) (space, before *v1alpha1.PolicySpace, err error) {
	space, before = &v1alpha1.PolicySpace{}, &v1alpha1.PolicySpace{}
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(request.Object.Object, space)
	if err == nil && request.OldObject != nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(request.OldObject.Object, before)
	}
	return space, before, err
}

// lineageOf returns a policy space and its ancestors, the nearest first. The error may be a hierarchy.BrokenError.
func (a *SpaceAdmission) lineageOf(
	ctx context.Context, space *v1alpha1.PolicySpace,
) ([]*v1alpha1.PolicySpace, error) {
	ancestors, err := Lineage(ctx, a.live, space.Spec.Parent)
	if err != nil {
		return nil, err
	}
	spaces := []*v1alpha1.PolicySpace{space}
	for _, ancestor := range ancestors {
		if ancestor.Name != space.Name {
			spaces = append(spaces, ancestor)
		}
	}
	return hierarchy.NewForest(spaces).Lineage(space.Name)
}

// checkLimits lets the API server validate the limits of a policy space.
func (a *SpaceAdmission) checkLimits(ctx context.Context, space *v1alpha1.PolicySpace) error {
	invalid, err := tryLimits(ctx, a.quotas, space)
	switch {
	case err != nil:
		return fmt.Errorf("validate the limits of policyspace %s with a dry run: %w", space.Name, err)
	case invalid != "":
		return webhook.Deny(codes.PolicySpaceInvalid, invalid)
	}
	return nil
}

// tryLimits returns why the API server accepts no ResourceQuota with the limits of a policy space, or "". It finds that
// out by a dry run that creates one, whose name is always the same, so that the same failure has the same message. It
// returns an error if that is unknown. A denial by a policy, a quota or a webhook of others says nothing against the
// limits: most of them decide about objects that the API server has found to be valid.
func tryLimits(
	ctx context.Context, quotas corev1client.ResourceQuotaInterface, space *v1alpha1.PolicySpace,
) (invalid string, err error) {
	hard := quota.Hard(space)
	if len(hard) == 0 {
		return "", nil
	}
	_, err = quotas.Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "nstpl-trial"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case apierrors.IsInvalid(err) && isAboutLimits(err):
		return fmt.Sprintf("policyspace %s has limits that no ResourceQuota can have: %v", space.Name, err), nil
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsAlreadyExists(err),
		apierrors.IsBadRequest(err): // the answer of a webhook that denies without a code
		return "", nil
	}
	return "", err
}

// isAboutLimits reports whether the API server has found an error in the limits of a ResourceQuota.
func isAboutLimits(err error) bool {
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && answer.ErrStatus.Details != nil &&
		slices.ContainsFunc(answer.ErrStatus.Details.Causes, func(cause metav1.StatusCause) bool {
			return strings.HasPrefix(cause.Field, "spec.hard")
		})
}

// Plugin returns the row of the admission chain.
func (a *SpaceAdmission) Plugin() webhook.Plugin {
	return webhook.Plugin{
		Name: "hierarchy", Validator: a,
		Rules: []admissionregistrationv1.RuleWithOperations{
			webhook.Rule(v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version,
				admissionregistrationv1.ClusterScope,
				[]string{v1alpha1.PolicySpaces.Resource},
				admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete),
		},
		// A policy space that should have been denied has no effect, and its condition Ready contains the reason. If
		// one is deleted while namespaces are in it, they keep what they have. nstpl must be possible to uninstall.
		FailurePolicy:  admissionregistrationv1.Ignore,
		TimeoutSeconds: 5,
	}
}
