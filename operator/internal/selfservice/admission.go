package selfservice

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/internal/policyspace"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/selfservice"
)

// Admission validates namespaces by the rules of the policy spaces that they are in.
type Admission struct {
	rules   *rules
	live    client.Reader
	reviews authorizationv1client.SubjectAccessReviewInterface
	// only denies namespaces that no policy space has rules for.
	only bool
}

// byNoAdministrator is a match condition. Administrators also create namespaces while no replica answers.
const byNoAdministrator = "!authorizer.group('policy.nstpl.dev').resource('policyspaces').check('patch').allowed()"

// Plugin returns the row of the admission chain. While no policy space has rules, the API server sends nothing.
func (a *Admission) Plugin() webhook.Plugin {
	conditions := webhook.Every("labels-of-a-namespace",
		"oldObject == null || object.metadata.?labels != oldObject.metadata.?labels",
		"request.userInfo.username != '"+v1alpha1.OperatorUser+"'",
		byNoAdministrator)
	// Labels can be changed through the subresources, too.
	rules := []admissionregistrationv1.RuleWithOperations{
		webhook.Rule("", "v1", admissionregistrationv1.ClusterScope,
			[]string{"namespaces", "namespaces/status", "namespaces/finalize"},
			admissionregistrationv1.Create, admissionregistrationv1.Update),
	}
	plugin := webhook.Plugin{
		Name: "self-service", Validator: a, Rules: rules, MatchConditions: conditions,
		FailurePolicy:  admissionregistrationv1.Fail, // it is a permission check
		TimeoutSeconds: 5,
		Webhooks: func(context.Context) ([]webhook.Webhook, error) {
			if !a.only && !a.rules.any() {
				return nil, nil
			}
			return []webhook.Webhook{{
				Rules: rules, MatchConditions: conditions, Revision: webhook.OwnWebhook,
			}}, nil
		},
		Changes: &a.rules.changes,
	}
	if !a.only {
		plugin.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: v1alpha1.PolicySpaceLabel, Operator: metav1.LabelSelectorOpExists},
		}}
	}
	return plugin
}

// Validate implements webhook.Validator for Namespaces. It denies a new namespace, and a change of labels, that the
// rules do not allow. What a namespace already violated, it may violate further, unless it moves. A namespace does not
// move to a policy space in which it would expire earlier. Validate warns of the end of a new namespace.
func (a *Admission) Validate(ctx context.Context, request *webhook.Request) error {
	if request.Revision != webhook.OwnWebhook && !a.only && !a.rules.any() {
		// Another plugin's webhook. With rules, the denial counts there, too: nothing is reserved for the namespace.
		return nil
	}
	if request.Object == nil || request.UserInfo.Username == v1alpha1.OperatorUser {
		return nil
	}
	name, labels := request.Object.GetName(), request.Object.GetLabels()
	var before map[string]string
	if request.OldObject != nil {
		if before = request.OldObject.GetLabels(); maps.Equal(before, labels) {
			return nil
		}
	}
	lineage, remaining, err := spacesOf(ctx, a.live, namespaceIn(request.Object))
	if err != nil {
		return err
	}
	if !hasRules(lineage) {
		if err := a.checkElsewhere(ctx, request); err != nil || !hasRules(remaining) {
			return err
		}
	}
	isMoved := request.OldObject == nil || before[v1alpha1.PolicySpaceLabel] != labels[v1alpha1.PolicySpaceLabel]
	expires := request.Object.GetAnnotations()[v1alpha1.ExpiresAnnotation]
	var left []*v1alpha1.PolicySpace
	if isMoved && expires != "" {
		if left, err = policyspace.Lineage(ctx, a.live, before[v1alpha1.PolicySpaceLabel]); err != nil {
			return err
		}
	}
	for _, space := range slices.Concat(lineage, remaining) {
		violations := selfservice.Violations(space.Spec.SelfService, name, labels)
		if !isMoved || contains(remaining, space) {
			old := selfservice.Violations(space.Spec.SelfService, name, before)
			violations = slices.DeleteFunc(violations, func(v string) bool { return slices.Contains(old, v) })
		} else if !contains(left, space) && selfservice.Outlives(space.Spec.SelfService, expires, time.Now()) {
			violations = append(violations, fmt.Sprintf("it must expire within %s, and its annotation %s is %s",
				duration.HumanDuration(space.Spec.SelfService.MaxAge.Duration), v1alpha1.ExpiresAnnotation, expires))
		}
		if len(violations) == 0 {
			continue
		}
		if isAdministrator, err := a.mayPatch(ctx, request, space.Name); err != nil || isAdministrator {
			if err != nil {
				return err
			}
			continue
		}
		return webhook.Deny(codes.SelfService, fmt.Sprintf(
			"the self-service of policyspace %s does not allow namespace %s: %s", space.Name, name,
			strings.Join(violations, ", and ")))
	}
	if maxAge := selfservice.MaxAge(lineage); maxAge > 0 && request.OldObject == nil {
		request.Warnings = append(request.Warnings, fmt.Sprintf(
			"namespace %s expires %s after its creation: the operator writes the time to its annotation %s", name,
			duration.HumanDuration(maxAge), v1alpha1.ExpiresAnnotation))
	}
	return nil
}

// spacesOf returns the policy spaces whose rules hold for a namespace, as a reader has them: that of its label and
// those above it, and those of its depth labels if the namespace remains there. It does not leave them while a policy
// space that its label names, or one above that, does not exist, or is of a tree that does not adopt the namespace.
func spacesOf(
	ctx context.Context, reader client.Reader, ns *corev1.Namespace,
) (labelled, remaining []*v1alpha1.PolicySpace, err error) {
	label := ns.Labels[v1alpha1.PolicySpaceLabel]
	labelled, err = policyspace.Lineage(ctx, reader, label)
	if err != nil || label == "" {
		return labelled, nil, err
	}
	destination, err := hierarchy.DestinationOf(ns, func(name string) (*v1alpha1.PolicySpace, error) {
		return find(labelled, name), nil // labelled ends before one that does not exist
	})
	if err != nil || len(destination) > 0 {
		return labelled, nil, err
	}
	for _, name := range hierarchy.SpacesOf(ns) {
		space := &v1alpha1.PolicySpace{}
		err := reader.Get(ctx, client.ObjectKey{Name: name}, space)
		if client.IgnoreNotFound(err) != nil {
			return nil, nil, fmt.Errorf("read policyspace %s: %w", name, err)
		}
		if err == nil && !contains(labelled, space) {
			remaining = append(remaining, space)
		}
	}
	return labelled, remaining, nil
}

// checkElsewhere denies a new namespace, and one that leaves its policy space, where no rules are, if namespaces may be
// created by rules only.
func (a *Admission) checkElsewhere(ctx context.Context, request *webhook.Request) error {
	if !a.only {
		return nil
	}
	if request.OldObject != nil {
		old := namespaceIn(request.OldObject)
		if old.Labels[v1alpha1.PolicySpaceLabel] == request.Object.GetLabels()[v1alpha1.PolicySpaceLabel] {
			return nil
		}
		before, remained, err := spacesOf(ctx, a.live, old)
		if err != nil || !hasRules(before) && !hasRules(remained) {
			return err
		}
	}
	if isAdministrator, err := a.mayPatch(ctx, request, ""); err != nil || isAdministrator {
		return err
	}
	return webhook.Deny(codes.SelfService, fmt.Sprintf(
		"namespace %s must be in a policyspace with self-service: set its label %s to one of those that you may use, "+
			"or ask for the verb patch on policyspaces", request.Object.GetName(), v1alpha1.PolicySpaceLabel))
}

// namespaceIn returns the metadata of a Namespace.
func namespaceIn(object *unstructured.Unstructured) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: object.GetName(), UID: object.GetUID(), Labels: object.GetLabels(), Annotations: object.GetAnnotations(),
	}}
}

// find returns the policy space of a lineage with a name, or nil.
func find(lineage []*v1alpha1.PolicySpace, name string) *v1alpha1.PolicySpace {
	i := slices.IndexFunc(lineage, func(s *v1alpha1.PolicySpace) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return lineage[i]
}

func contains(lineage []*v1alpha1.PolicySpace, space *v1alpha1.PolicySpace) bool {
	return find(lineage, space.Name) != nil
}

func hasRules(lineage []*v1alpha1.PolicySpace) bool {
	return slices.ContainsFunc(lineage, func(space *v1alpha1.PolicySpace) bool { return space.Spec.SelfService != nil })
}

// mayPatch reports whether the requester may patch a policy space, or all of them if the name is empty: then they could
// change the rules.
func (a *Admission) mayPatch(ctx context.Context, request *webhook.Request, space string) (bool, error) {
	return webhook.IsAllowed(ctx, a.reviews, request.UserInfo, authorizationv1.ResourceAttributes{
		Verb: "patch", Group: v1alpha1.PolicySpaces.Group, Version: "*", Resource: v1alpha1.PolicySpaces.Resource,
		Name: space,
	})
}
