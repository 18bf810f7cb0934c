package population

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/queue"
	"nstpl.dev/nstpl/operator/internal/reporting"
)

// exemptions are the TemplateExemptions of a namespace at the time of a pass.
type exemptions struct {
	all    []*v1alpha1.TemplateExemption
	active match.Exemptions
	now    metav1.Time
	// next is when the next of them expires, or nil.
	next *metav1.Time
}

// exemptionHandler queues the namespace of an exemption that changes. At the start, all namespaces are queued anyway.
// It does not tell r.reported what the cache has, because a pass may still report on what it read before.
func (r *Namespaces) exemptionHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ backoff.Queue) {
			if !e.IsInInitialList {
				r.Queue.Enqueue(queue.Changed, 0, e.Object.GetNamespace())
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ backoff.Queue) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
				e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
				!e.ObjectOld.GetDeletionTimestamp().Equal(e.ObjectNew.GetDeletionTimestamp()) {
				r.Queue.Enqueue(queue.Changed, 0, e.ObjectNew.GetNamespace())
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ backoff.Queue) {
			r.reported.Deleted(client.ObjectKeyFromObject(e.Object), e.Object.GetUID())
			r.Queue.Enqueue(queue.Changed, 0, e.Object.GetNamespace())
		},
	}
}

// readExemptions reads the exemptions of a namespace, and makes those in force known to the index.
func (r *Namespaces) readExemptions(ctx context.Context, ns *corev1.Namespace) (exemptions, error) {
	list := &v1alpha1.TemplateExemptionList{}
	err := r.Client.List(ctx, list, client.InNamespace(ns.Name), client.UnsafeDisableDeepCopy)
	if err != nil {
		return exemptions{}, err
	}
	found := exemptions{now: metav1.Now()}
	for i := range list.Items {
		if !isOfEarlierNamespace(&list.Items[i], ns) {
			found.all = append(found.all, &list.Items[i])
		}
	}
	found.active, found.next = match.InForce(found.all, found.now)
	r.Templates.setExemptions(ns.Name, found.active)
	return found, nil
}

// isOfEarlierNamespace reports whether an exemption is older than its namespace: the cache does not know yet that it
// was deleted with an earlier namespace of the same name.
func isOfEarlierNamespace(exemption *v1alpha1.TemplateExemption, ns *corev1.Namespace) bool {
	return exemption.CreationTimestamp.Before(&ns.CreationTimestamp)
}

// setExemptions makes the exemptions in force in a namespace known to the indexes.
func (r *Templates) setExemptions(namespace string, active match.Exemptions) {
	r.Index.SetExemptions(namespace, active)
	r.Stored.SetExemptions(namespace, active)
	r.Metrics.exempt(namespace, active)
}

// loadExemptions makes all exemptions known at the start, before any template or namespace is reconciled.
func (r *Templates) loadExemptions(ctx context.Context) error {
	list := &v1alpha1.TemplateExemptionList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	byNamespace := map[string][]*v1alpha1.TemplateExemption{}
	for i := range list.Items {
		namespace := list.Items[i].Namespace
		byNamespace[namespace] = append(byNamespace[namespace], &list.Items[i])
	}
	for namespace, all := range byNamespace {
		active, _ := match.InForce(all, metav1.Now())
		r.setExemptions(namespace, active)
	}
	return nil
}

// reportExemptions writes the statuses of a namespace's exemptions after a plan was carried out, and queues the
// namespace for when the next exemption expires. unpopulated is why the namespace is never populated, or empty.
func (r *Namespaces) reportExemptions(
	ctx context.Context, found exemptions, plan populate.Plan, unpopulated string,
) error {
	if found.next != nil {
		r.Queue.Enqueue(queue.Changed, min(time.Until(found.next.Time), backoff.LongestWait), plan.Namespace.Name)
	}
	if plan.Namespace.DeletionTimestamp != nil {
		return nil
	}
	for _, exemption := range found.all {
		if exemption.DeletionTimestamp != nil {
			continue
		}
		stored := r.reported.Latest(client.ObjectKeyFromObject(exemption), exemption)
		status := stored.Status.DeepCopy()
		status.ObservedGeneration = exemption.Generation
		status.Objects = reporting.Shorten(match.ObjectList(&exemption.Spec))
		state, reason, message := r.exemptionState(exemption, found.now, plan, unpopulated)
		reporting.SetKstatus(&status.Conditions, exemption.Generation, state, reason, message)
		if err := r.writeExemption(ctx, stored, status); err != nil {
			return err
		}
	}
	return nil
}

func (r *Namespaces) writeExemption(
	ctx context.Context, exemption *v1alpha1.TemplateExemption, status *v1alpha1.TemplateExemptionStatus,
) error {
	if equality.Semantic.DeepEqual(&exemption.Status, status) {
		return nil
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": exemption.UID}, "status": status,
	})
	if err != nil {
		return err
	}
	written := &v1alpha1.TemplateExemption{}
	written.Name, written.Namespace = exemption.Name, exemption.Namespace
	err = r.Client.Status().Patch(ctx, written, client.RawPatch(types.MergePatchType, body))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of templateexemption/%s in namespace %s: %w", exemption.Name,
			exemption.Namespace, err)
	}
	if err == nil {
		r.reported.Written(client.ObjectKeyFromObject(written), written)
	}
	return nil
}

// exemptionState returns whether an exemption has an effect, and why.
func (r *Namespaces) exemptionState(
	exemption *v1alpha1.TemplateExemption, now metav1.Time, plan populate.Plan, unpopulated string,
) (state reporting.Kstatus, reason, message string) {
	template := exemption.Spec.Template
	if match.IsExpired(exemption, now) {
		return reporting.Current, v1alpha1.ExemptionExpired, "the exemption has expired and has no effect any more"
	}
	if len(exemption.Spec.Objects) == 0 && unpopulated == "" &&
		slices.ContainsFunc(r.Templates.Index.OptedOut(plan.Namespace), hasName(template)) {
		return reporting.Current, v1alpha1.ExemptionActive, "the namespace is exempt from template " + template
	}
	exempt, others := exemptObjects(exemption, plan)
	switch {
	case len(exempt) > 0 && len(others) > 0:
		return reporting.Current, v1alpha1.ExemptionActive, fmt.Sprintf("the namespace is exempt from %s of template "+
			"%s; the template does not declare %s for this namespace", strings.Join(exempt, ", "), template,
			strings.Join(others, ", "))
	case len(exempt) > 0:
		return reporting.Current, v1alpha1.ExemptionActive,
			fmt.Sprintf("the namespace is exempt from %s of template %s", strings.Join(exempt, ", "), template)
	}
	return reporting.Failed, v1alpha1.ExemptionNothingMatches, r.nothingMatches(template, plan, others, unpopulated)
}

func hasName(name string) func(*v1alpha1.NamespaceTemplate) bool {
	return func(template *v1alpha1.NamespaceTemplate) bool { return template.Name == name }
}

// nothingMatches returns why an exemption has no effect. undeclared are the objects that it names.
func (r *Namespaces) nothingMatches(name string, plan populate.Plan, undeclared []string, unpopulated string) string {
	if unpopulated != "" {
		return unpopulated
	}
	template := r.Templates.Index.Get(name)
	if template == nil {
		return fmt.Sprintf("template %s does not exist", name)
	}
	if verdict := r.Templates.Index.Explain(template, plan.Namespace); !verdict.Matches {
		return fmt.Sprintf("template %s does not select the namespace: %s", name, verdict.Reason)
	}
	if len(undeclared) == 0 {
		return fmt.Sprintf("the rollout of template %s has not reached the namespace", name)
	}
	return fmt.Sprintf("template %s does not declare %s for this namespace", name, strings.Join(undeclared, ", "))
}

// exemptObjects returns the objects of an exemption that a plan leaves alone because of it, and the others.
func exemptObjects(exemption *v1alpha1.TemplateExemption, plan populate.Plan) (exempt, others []string) {
	for _, object := range exemption.Spec.Objects {
		id := populate.ObjectID{
			GroupKind: schema.GroupKind{Group: object.Group, Kind: object.Kind}, Name: object.Name,
		}
		isExempt := slices.ContainsFunc(plan.Changes, func(c populate.Change) bool {
			// Another exemption, of the same object, may be the first.
			return c.Exemption != nil && c.Exemption.Spec.Template == exemption.Spec.Template && c.ID() == id
		})
		if isExempt {
			exempt = append(exempt, id.String())
		} else {
			others = append(others, id.String())
		}
	}
	return exempt, others
}
