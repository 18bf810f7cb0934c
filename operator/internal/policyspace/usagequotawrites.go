package policyspace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/patch"
)

// usageQuotaDescription is an annotation for users who find a usage quota in their namespace.
const usageQuotaDescription = "Counts usage for PolicySpace quotas. The limits of this object itself are not enforced. To see those that are, run: kubectl get policyspaces"

// create creates the usage quota of a namespace. It does no harm if the write of an earlier leader arrives late: the
// controller sees the creation, and deletes or changes a usage quota that is not wanted any more.
func (r *UsageQuotas) create(ctx context.Context, ns *corev1.Namespace, limits corev1.ResourceList) error {
	usageQuota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns.Name, Name: v1alpha1.QuotaName,
			Labels:      map[string]string{managedByLabel: managedBy},
			Annotations: usageQuotaAnnotations(),
		},
		Spec: corev1.ResourceQuotaSpec{Hard: limits},
	}
	err := r.Client.Create(ctx, usageQuota)
	if exceedsQuota(err) {
		err = r.createWithRoom(ctx, usageQuota)
	}
	switch {
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case err != nil:
		return fmt.Errorf("create ResourceQuota %s in namespace %s: %w", usageQuota.Name, ns.Name, err)
	}
	return r.enforce(ctx, usageQuota, limits)
}

func exceedsQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// The API server learns of the room for a usage quota by its watch. Users may take the room back meanwhile, so the
// usage quota is created as soon as possible.
const (
	creationPoll    = 5 * time.Millisecond
	creationTimeout = 200 * time.Millisecond
)

// createWithRoom makes room for a usage quota, and creates it.
func (r *UsageQuotas) createWithRoom(ctx context.Context, usageQuota *corev1.ResourceQuota) error {
	if err := r.makeRoom(ctx, usageQuota.Namespace); err != nil {
		return err
	}
	var err error
	create := func(ctx context.Context) (bool, error) {
		err = r.Client.Create(ctx, usageQuota)
		return !exceedsQuota(err), nil
	}
	waited := wait.PollUntilContextTimeout(ctx, creationPoll, creationTimeout, true, create)
	return cmp.Or(err, waited)
}

// makeRoom lets the API server create one more ResourceQuota in a namespace with ResourceQuotas that allow no other.
// Otherwise its users could keep its usage unknown, for which all namespaces of its policy spaces would have to wait.
// It raises the limits in their statuses, which are those that the API server enforces. Kubernetes restores the limits
// of the specs when it counts the next time.
func (r *UsageQuotas) makeRoom(ctx context.Context, namespace string) error {
	quotas := r.Quotas.ResourceQuotas(namespace)
	list, err := quotas.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the ResourceQuotas of namespace %s: %w", namespace, err)
	}
	var errs []error
	for i := range list.Items {
		own := &list.Items[i]
		room := corev1.ResourceList{}
		for _, name := range []corev1.ResourceName{corev1.ResourceQuotas, "count/resourcequotas"} {
			limit, isLimited := own.Status.Hard[name]
			needed := own.Status.Used[name]
			if needed.Add(*resource.NewQuantity(1, resource.DecimalSI)); isLimited && limit.Cmp(needed) < 0 {
				room[name] = needed
			}
		}
		if len(room) == 0 {
			continue
		}
		body, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": own.UID, "resourceVersion": own.ResourceVersion},
			"status":   map[string]any{"hard": room},
		})
		if err == nil {
			_, err = quotas.Patch(ctx, own.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func usageQuotaAnnotations() map[string]string {
	return map[string]string{"description": usageQuotaDescription, v1alpha1.RecountAnnotation: recountTimestamp()}
}

// remove deletes a usage quota that is not wanted any more, if the operator created it. If the write of an earlier
// leader arrives late, requests for limited resources are denied until the controller has created the usage quota
// again.
func (r *UsageQuotas) remove(ctx context.Context, usageQuota *corev1.ResourceQuota) error {
	if usageQuota.Labels[managedByLabel] != managedBy {
		return nil
	}
	return client.IgnoreNotFound(r.Client.Delete(ctx, usageQuota, client.Preconditions{UID: &usageQuota.UID}))
}

// repair changes or replaces a usage quota that a user changed or created. The API server counts again.
func (r *UsageQuotas) repair(
	ctx context.Context, ns *corev1.Namespace, usageQuota *corev1.ResourceQuota, limits corev1.ResourceList,
) error {
	ctrl.LoggerFrom(ctx).Info("repairing a ResourceQuota that counts usage for policyspaces", "namespace", ns.Name)
	if !mustBeReplaced(usageQuota) {
		return r.change(ctx, usageQuota, limits)
	}
	err := r.Client.Delete(ctx, usageQuota, client.Preconditions{UID: &usageQuota.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("replace ResourceQuota %s of namespace %s: %w", usageQuota.Name, ns.Name, err)
	}
	return r.create(ctx, ns, limits)
}

// change replaces the limits of a usage quota, unless they have changed since it was read.
func (r *UsageQuotas) change(
	ctx context.Context, usageQuota *corev1.ResourceQuota, limits corev1.ResourceList,
) error {
	changed := usageQuota.DeepCopy()
	err := r.Client.Patch(ctx, changed, limitsPatch(usageQuota, limits))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case patch.IsStale(err):
		return fmt.Errorf("ResourceQuota %s of namespace %s changed since it was read, so it is reconciled again: %w",
			usageQuota.Name, usageQuota.Namespace, err)
	case err != nil:
		return fmt.Errorf("change ResourceQuota %s of namespace %s: %w", usageQuota.Name, usageQuota.Namespace, err)
	}
	return r.enforce(ctx, changed, limits)
}

// limitsPatch returns a patch that replaces the limits of a usage quota. The API server refuses it if the limits are
// others by then. The patch does not test the resourceVersion, because usage changes all the time.
func limitsPatch(usageQuota *corev1.ResourceQuota, limits corev1.ResourceList) client.Patch {
	var before any
	if len(usageQuota.Spec.Hard) > 0 {
		before = usageQuota.Spec.Hard
	}
	return patch.Tested{}.Test("/metadata/uid", usageQuota.UID).Test("/spec/hard", before).
		SetIn("/metadata/labels", usageQuota.Labels, map[string]string{managedByLabel: managedBy}).
		SetIn("/metadata/annotations", usageQuota.Annotations, usageQuotaAnnotations()).
		Set("/spec/hard", limits)
}

// enforce writes limits to the status of a usage quota, so that the API server charges usage to them at once: until it
// has counted a resource, it denies requests for it instead of allowing them uncounted. If the write of an earlier
// leader arrives late, it does no harm: the usage of a resource that is missing in status.hard is unknown, so requests
// for it are denied, and the controller compares status.hard with spec.hard when either changes.
func (r *UsageQuotas) enforce(
	ctx context.Context, usageQuota *corev1.ResourceQuota, limits corev1.ResourceList,
) error {
	hard := map[corev1.ResourceName]any{}
	for name := range usageQuota.Status.Hard {
		hard[name] = nil
	}
	for name, limit := range limits {
		hard[name] = limit
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": usageQuota.UID}, "status": map[string]any{"hard": hard},
	})
	if err != nil {
		return err
	}
	target := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: usageQuota.Namespace, Name: usageQuota.Name},
	}
	return client.IgnoreNotFound(r.Client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, body)))
}
