package population

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/rollout"
	"nstpl.dev/nstpl/operator/freshness"
	"nstpl.dev/nstpl/operator/internal/patch"
	"nstpl.dev/nstpl/operator/internal/reporting"
	"nstpl.dev/nstpl/operator/internal/sources"
)

// Statuses reads templates and writes their statuses.
type Statuses struct {
	// Client reads from the cache.
	Client client.Client
	// Stored has the templates as the cache has them.
	Stored   *match.Index
	Results  *Results
	Rollouts *Rollouts
	Remains  *Remains
	Sources  *sources.Store

	// written has the templates whose status was written.
	written freshness.Store[string, *v1alpha1.NamespaceTemplate]
}

// read returns a template as it was stored last.
func (s *Statuses) read(ctx context.Context, name string) (*v1alpha1.NamespaceTemplate, error) {
	return s.written.Read(name, func() (*v1alpha1.NamespaceTemplate, error) {
		template := &v1alpha1.NamespaceTemplate{}
		err := s.Client.Get(ctx, client.ObjectKey{Name: name}, template, client.UnsafeDisableDeepCopy)
		if err != nil {
			return template, err
		}
		return s.shared(template), nil
	})
}

// shared returns the cache's own template in place of a copy of it, so that the index keeps no second one. Nothing
// changes either.
func (s *Statuses) shared(read *v1alpha1.NamespaceTemplate) *v1alpha1.NamespaceTemplate {
	cached := s.Stored.Get(read.Name)
	if cached == nil || cached.UID != read.UID || cached.ResourceVersion != read.ResourceVersion {
		return read
	}
	return cached
}

// keepStatus writes the sum of a template's results to its status. Nothing is written before all namespaces that the
// template may select have been reconciled once, so that a restart changes no status.
func (s *Statuses) keepStatus(ctx context.Context, template *v1alpha1.NamespaceTemplate) error {
	if !s.Results.Complete(template.Name) {
		return nil
	}
	status := template.Status.DeepCopy()
	s.summarize(template, status)
	_, err := s.writeStatus(ctx, template, status)
	return err
}

// completeStatus sets what follows from the rest of a status that is about to be written. If the template selects no
// namespace, and none has a result, no other write follows.
func (s *Statuses) completeStatus(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, specs map[string]*v1alpha1.NamespaceTemplateSpec,
	status *v1alpha1.NamespaceTemplateStatus,
) error {
	isObserved := status.ObservedGeneration == template.Generation
	s.countForRollout(template, status)
	status.ObservedGeneration = template.Generation
	setReady(status, template.Generation)
	if err := s.Remains.reportRemaining(ctx, template, status); err != nil {
		return err
	}
	if isObserved || template.DeletionTimestamp != nil || !s.Results.Complete(template.Name) ||
		len(s.Results.Of(template.Name)) > 0 {
		return nil
	}
	namespaces, err := s.Rollouts.selectedBy(rollout.New(template, status.Revisions, specs))
	if err == nil && len(namespaces) == 0 {
		s.summarize(template, status)
	}
	return err
}

// summarize sets the counts and conditions of a status that follow from a template's results.
func (s *Statuses) summarize(template *v1alpha1.NamespaceTemplate, status *v1alpha1.NamespaceTemplateStatus) {
	sum := s.Results.Summary(template.Name, newestGeneration(template.Generation, status.Revisions))
	status.Namespaces = sum.Counts
	status.Failures = sum.Failures
	condition := populatedCondition(sum, status.Revisions)
	condition.ObservedGeneration = template.Generation
	if !apimeta.IsStatusConditionTrue(status.Conditions, v1alpha1.TemplateAccepted) {
		condition.Status, condition.Reason = metav1.ConditionFalse, "NotAccepted"
		condition.Message = "the template is not accepted: the last accepted revision stays in force"
		if acceptedOf(&v1alpha1.NamespaceTemplate{Status: *status}).Reason == v1alpha1.TemplateValueNotProtected {
			condition.Message = "the template is not accepted: the objects stay as they are in the namespaces " +
				"whose revision uses the value"
		}
	}
	if disabled := match.DisabledReason(template); disabled != "" && template.DeletionTimestamp == nil {
		condition.Status, condition.Reason = metav1.ConditionFalse, reasonDisabled
		condition.Message = disabled
	}
	condition.Message = withDelay(condition.Message, s.Sources.Delay(template.Name))
	apimeta.SetStatusCondition(&status.Conditions, condition)
	setReady(status, template.Generation)
}

// withDelay returns a message with a sentence about the changes of sources that wait, if there are any. A long message
// is cut off before that sentence, because what it says is in no other field.
func withDelay(message, delay string) string {
	if delay == "" {
		return message
	}
	if room := reporting.MaxMessage - len("…; ") - len(delay); len(message) > room {
		message = strings.ToValidUTF8(message[:max(room, 0)], "") + "…"
	}
	return message + "; " + delay
}

// setReady derives the conditions that every kind has from those of a template and from the state of its rollout.
func setReady(status *v1alpha1.NamespaceTemplateStatus, generation int64) {
	accepted := apimeta.FindStatusCondition(status.Conditions, v1alpha1.TemplateAccepted)
	populated := apimeta.FindStatusCondition(status.Conditions, v1alpha1.TemplatePopulated)
	ready, from := reporting.Current, populated
	switch {
	case accepted.Status != metav1.ConditionTrue:
		ready, from = reporting.Failed, accepted
	case len(status.Revisions) > 0 && status.Revisions[0].State == v1alpha1.RolloutStopped:
		reporting.SetKstatus(&status.Conditions, generation, reporting.Failed, "RolloutStopped",
			fmt.Sprintf("the rollout of revision %d stopped, because namespaces failed", status.Revisions[0].Revision))
		return
	case accepted.Reason == reasonKindsUnavailable:
		ready, from = reporting.Failed, accepted
	case populated == nil:
		ready, from = reporting.InProgress, accepted
	case populated.Status != metav1.ConditionTrue && slices.Contains([]string{reasonFailed, reasonDisabled},
		populated.Reason):
		ready = reporting.Failed
	case populated.Status != metav1.ConditionTrue:
		ready = reporting.InProgress
	}
	reporting.SetKstatus(&status.Conditions, generation, ready, from.Reason, from.Message)
}

const (
	// reasonFailed is the reason of the Populated condition of a template whose objects could not be applied in some
	// namespaces.
	reasonFailed = "Failed"
	// reasonDisabled is that of a template that selects no namespace, because it is disabled.
	reasonDisabled = "Disabled"
)

// countForRollout sets the counts and the failures in a status whose revisions differ from the stored ones. They are
// stored in one write, so that no client sees a rollout that stopped without a failure.
func (s *Statuses) countForRollout(template *v1alpha1.NamespaceTemplate, status *v1alpha1.NamespaceTemplateStatus) {
	if !s.Results.Complete(template.Name) ||
		equality.Semantic.DeepEqual(template.Status.Revisions, status.Revisions) {
		return
	}
	sum := s.Results.Summary(template.Name, newestGeneration(template.Generation, status.Revisions))
	status.Namespaces, status.Failures = sum.Counts, sum.Failures
}

// newestGeneration returns the generation of the newest revision, or that of the template if it has no revision.
func newestGeneration(template int64, revisions []v1alpha1.TemplateRevision) int64 {
	if len(revisions) == 0 {
		return template
	}
	return revisions[0].Generation
}

func populatedCondition(sum Summary, revisions []v1alpha1.TemplateRevision) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.TemplatePopulated, Status: metav1.ConditionTrue, Reason: "Populated"}
	counts := sum.Counts
	condition.Message = fmt.Sprintf("%d of %d namespaces are populated", counts.Populated, counts.Matched)
	switch {
	case sum.Pending > 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, "Populating"
	case counts.Failed > 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, reasonFailed
	case counts.Matched > 0 && len(revisions) > 0 && revisions[0].State != v1alpha1.RolloutComplete:
		condition.Status, condition.Reason = metav1.ConditionFalse, "RollingOut"
		condition.Message = fmt.Sprintf("%d of %d namespaces have revision %d", counts.Updated, counts.Matched,
			revisions[0].Revision)
	case counts.Drifted > 0:
		condition.Reason = "Drifted"
		condition.Message += fmt.Sprintf(
			", %d have objects that drifted (driftPolicy Report, or changed again and again, or by admission)", counts.Drifted)
	case counts.Matched == 0:
		condition.Reason = "NoNamespaceMatches"
	}
	for _, overridden := range sum.Overridden {
		condition.Message += "; " + overridden.Finding().String()
	}
	condition.Message = reporting.Shorten(condition.Message)
	return condition
}

func (s *Statuses) writeStatus(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, status *v1alpha1.NamespaceTemplateStatus,
) (*v1alpha1.NamespaceTemplate, error) {
	if equality.Semantic.DeepEqual(&template.Status, status) {
		return template, nil
	}
	changed := template.DeepCopy()
	changed.Status = *status
	err := s.Client.Status().Patch(ctx, changed, patch.WhileUnchanged(template))
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("write the status of template %s: %w", template.Name, err)
	}
	if err == nil {
		s.written.Written(changed.Name, changed)
		_, err = s.read(ctx, template.Name) // forgets it if the cache has it already
	}
	return changed, client.IgnoreNotFound(err)
}

func addKinds(status *v1alpha1.NamespaceTemplateStatus, kinds []v1alpha1.GroupKind) {
	for _, kind := range kinds {
		if !slices.Contains(status.Kinds, kind) {
			status.Kinds = append(status.Kinds, kind)
		}
	}
}
