package population

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/queue"
)

// confirmed returns the report on a namespace with the reason Retrying instead of a failure that is not known to last
// yet. While the namespace is initializing, a failure denies every write into it, so two things must be known first.
// The namespace was tried twice, because an object may need another one that was applied at the same time. And the
// caches have the templates and the policy space of the failure as they are stored, because a user may create a
// namespace right after a template was corrected. For the same reason, a failure is not known to last while a newer
// revision of its template is being rolled out.
func (r *Namespaces) confirmed(
	ctx context.Context, before storedReport, report Report, pass pass,
) Report {
	if !report.hasFailed() || !before.Initializing || before.hasFailed() {
		return report
	}
	lasts, retry := before.Status == corev1.ConditionFalse, requeueSoon
	if lasts {
		current, err := r.causesAreCurrent(ctx, pass.findings, pass.misplaced)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "can't confirm why the namespace is not populated")
		}
		lasts = current && err == nil
	}
	if lasts && r.awaitsRevision(pass.plan, pass.findings) {
		lasts, retry = false, retryDuringRollout
	}
	if !lasts {
		report.Reason = populate.ConditionRetrying
		r.Queue.Enqueue(queue.Opening, retry, pass.plan.Namespace.Name)
	}
	return report
}

// retryDuringRollout is how often a namespace that a rollout will reach is reconciled until then, in case the rollout
// stops before.
const retryDuringRollout = 5 * time.Second

// awaitsRevision reports whether a template that failed has a newer revision that will reach the namespace by itself.
func (r *Namespaces) awaitsRevision(plan populate.Plan, findings []populate.Finding) bool {
	for _, finding := range findings {
		layers := r.Templates.Index.Layers(finding.Template)
		if finding.Severity != populate.Error || len(layers) == 0 ||
			layers[0].State != v1alpha1.RolloutProgressing && layers[0].State != v1alpha1.RolloutComplete {
			continue
		}
		if slices.ContainsFunc(plan.Templates, func(populated *v1alpha1.NamespaceTemplate) bool {
			return populated.Name == finding.Template && !sameGeneration(populated, layers[0].Template)
		}) {
			return true
		}
	}
	return false
}

// causesAreCurrent reports whether the operator knows the templates that failed, and the missing policy space, as the
// API server stores them.
func (r *Namespaces) causesAreCurrent(
	ctx context.Context, findings []populate.Finding, misplaced error,
) (bool, error) {
	if broken, is := errors.AsType[*hierarchy.BrokenError](misplaced); is && !broken.Cycle {
		space := metadataOf("PolicySpace")
		err := r.Live.Get(ctx, client.ObjectKey{Name: broken.Missing}, space)
		if !apierrors.IsNotFound(err) {
			return false, err
		}
	}
	known := map[string]bool{}
	for _, finding := range findings {
		if finding.Severity != populate.Error || finding.Template == "" || known[finding.Template] {
			continue
		}
		known[finding.Template] = true
		if current, err := r.isCurrent(ctx, finding.Template); err != nil || !current {
			return false, err
		}
	}
	return true, nil
}

// isCurrent reports whether a template has been reconciled as the API server stores it.
func (r *Namespaces) isCurrent(ctx context.Context, template string) (bool, error) {
	key := client.ObjectKey{Name: template}
	cached := &v1alpha1.NamespaceTemplate{}
	if err := r.Client.Get(ctx, key, cached, client.UnsafeDisableDeepCopy); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	live := metadataOf("NamespaceTemplate")
	if err := r.Live.Get(ctx, key, live); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return live.UID == cached.UID && live.Generation == cached.Generation &&
		cached.Status.ObservedGeneration == cached.Generation, nil
}

// metadataOf returns an empty object of a kind of nstpl, to read only its metadata into.
func metadataOf(kind string) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	return object
}
