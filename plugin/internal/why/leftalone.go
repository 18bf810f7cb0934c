package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// explainLeftAlone sets why the operator leaves a populated object as it is, for a caller who may not read templates:
// the namespace is opted out of the template, or there is an exemption.
func (e *explainer) explainLeftAlone(
	ctx context.Context, a *answer, ns *corev1.Namespace, live *unstructured.Unstructured,
) {
	template := live.GetLabels()[v1alpha1.TemplateNameLabel]
	if template == "" {
		return
	}
	if match.OptedOutOf(ns, template) {
		a.leftAlone = match.OptedOutReason(template)
		a.add(labelRemedy, fmt.Sprintf("Opt it in again with 'kubectl nstpl opt-out %s --template %s --undo'.", ns.Name,
			template))
		return
	}
	all, err := e.cluster.Exemptions(ctx, []*corev1.Namespace{ns})
	if unread := (cluster.UnreadExemptionsError{}); errors.As(err, &unread) {
		a.lacksExemptions = true
		e.isUnread(unread.Err, "templateexemptions in namespace "+ns.Name, "")
		return
	}
	exemptions, _ := match.InForce(all, metav1.Now())
	if exemption := cmp.Or(exemptions.OfTemplate(template),
		exemptions.OfObject(template, live.GroupVersionKind().GroupKind(), live.GetName())); exemption != nil {
		a.leftAlone = "it " + match.ExemptionReason(exemption)
		addExemptionRemedy(a, template, exemption.Name)
	}
}

// addExemptionRemedy adds how to end an exemption.
func addExemptionRemedy(a *answer, template, exemption string) {
	a.add(labelRemedy, fmt.Sprintf("To put template %s into force for it again, delete the exemption with "+
		"'kubectl delete templateexemption %s -n %s'.", template, exemption, a.Namespace))
}
