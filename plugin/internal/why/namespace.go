package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

var getOptions = metav1.GetOptions{}

// namespaceAnswer explains a namespace.
func (e *explainer) namespaceAnswer(ctx context.Context, name string) (answer, error) {
	a := answer{Subject: "namespace/" + name}
	ns, err := e.cluster.Namespace(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		a.Summary = a.Subject + " does not exist"
		a.add(labelRemedy, fmt.Sprintf("Create it with 'kubectl nstpl create %s'. "+
			"'kubectl nstpl preview %[1]s' shows which objects it would get.", name))
		return a, nil
	case apierrors.IsForbidden(err):
		a.Summary = "you may not read " + a.Subject + ", so its state is unknown"
		a.add(labelRemedy, "Ask an administrator for the verb get on this namespace.")
		return a, nil
	case err != nil:
		return a, err
	}
	selecting := -1
	if templates, known := e.templates(ctx); known {
		selecting = e.addTemplates(ctx, &a, ns, templates)
	}
	addState(&a, ns, selecting, time.Now())
	if creator := ns.Annotations[v1alpha1.CreatorAnnotation]; creator != "" {
		a.add(labelCreatedBy, "user "+creator)
	}
	addPolicySpace(&a, ns)
	return a, nil
}

// addTemplates adds which templates select a namespace and why. It returns their number.
func (e *explainer) addTemplates(
	ctx context.Context, a *answer, ns *corev1.Namespace, templates []*v1alpha1.NamespaceTemplate,
) (selecting int) {
	index, unread := e.cluster.Index(ctx, templates, []*corev1.Namespace{ns})
	for _, err := range unread {
		e.noteOnce("%v", err)
	}
	a.awaited = survey.Awaited(index, ns)
	optedOut := map[string]bool{}
	for _, template := range index.OptedOut(ns) {
		optedOut[template.Name] = true
	}
	var others int
	for _, template := range index.All() {
		layers := index.Layers(template.Name)
		verdict := survey.Explain(index, template, ns)
		switch {
		case verdict.Matches:
			selecting++
			text := template.Name + " selects it: " + verdict.Reason
			if len(verdict.Overlays) > 0 {
				text += "; overlays: " + strings.Join(verdict.Overlays, ", ")
			}
			if layer := layers.For(ns); layer != nil && layer.Revision > 0 {
				text += fmt.Sprintf("; revision %d", layer.Revision)
			}
			if delay := populate.ReportedDelay(template); delay != "" {
				text += "; " + delay
			}
			a.add(labelTemplate, text)
		case optedOut[template.Name], index.Exemptions(ns.Name).OfTemplate(template.Name) != nil:
			a.add(labelTemplate, template.Name+" does not select it: "+verdict.Reason)
		default:
			others++
		}
	}
	for _, exemption := range index.Exemptions(ns.Name) {
		if len(exemption.Spec.Objects) > 0 {
			a.add(labelState, fmt.Sprintf("%s of template %s %s", match.ObjectList(&exemption.Spec),
				exemption.Spec.Template, match.ExemptionReason(exemption)))
		}
	}
	if others > 0 {
		noun := "template"
		if selecting > 0 {
			noun = "other template"
		}
		a.add(labelTemplate, fmt.Sprintf("not selected by %s: see why with 'kubectl nstpl preview %s'",
			output.Count(others, noun), ns.Name))
	}
	return selecting
}

// addState sets the summary and adds the state of a namespace, and what to do. selecting is the number of templates
// that select it, or -1 if it is unknown.
func addState(a *answer, ns *corev1.Namespace, selecting int, now time.Time) {
	condition, skipped := populate.PopulatedCondition(ns), survey.UnpopulatedReason(ns)
	age := duration.HumanDuration(now.Sub(ns.CreationTimestamp.Time))
	switch {
	case skipped != "":
		a.Summary = a.Subject + " is not populated: " + skipped
		if match.OptedOut(ns) {
			a.add(labelRemedy, fmt.Sprintf("Opt it in again with 'kubectl nstpl opt-out %s --undo'.", ns.Name))
		}
	case initialize.Initializing(ns) && populate.HasFailed(condition):
		a.Summary = a.Subject + " could not be populated, so writes into it are denied"
		addExplanation(a, codes.PopulationFailed)
		addFailureRemedy(a, ns.Name, condition.Reason)
	case initialize.Initializing(ns):
		a.Summary = fmt.Sprintf("%s has been held for %s: it waits for %s", a.Subject, age,
			cmp.Or(strings.Join(initialize.Pending(ns), ", "), "the operator"))
		if slices.Contains(initialize.Pending(ns), v1alpha1.TemplateInitializer) {
			a.add(labelState, v1alpha1.TemplateInitializer+" is the operator, which populates the namespace")
		}
		addExplanation(a, codes.Held)
		a.replace(labelRemedy, "Wait. Writes into the namespace are allowed once each initializer has finished.")
	case condition != nil && condition.Status == corev1.ConditionTrue:
		a.Summary = a.Subject + " is populated"
	case condition != nil:
		a.Summary = a.Subject + " does not have all objects that templates declare"
		a.add(labelRemedy, cmp.Or(survey.Remedy(ns.Name, condition.Reason),
			fmt.Sprintf("Resolve what the state names. 'kubectl nstpl diff %s' shows the differences.", ns.Name)))
	case selecting == 0 && len(a.awaited) > 0:
		a.Summary = a.Subject + " is not populated yet: it waits for the rollout of " + output.FirstFew(a.awaited)
		a.add(labelRemedy, fmt.Sprintf("'kubectl nstpl rollout status %s' shows the rollout.", a.awaited[0]))
	case selecting == 0:
		a.Summary = a.Subject + " is not populated: no template selects it"
		a.add(labelRemedy, "Set the labels that a template selects, if it is meant to be populated.")
	default:
		a.Summary = a.Subject + ": the operator has not reported on it"
		if selecting > 0 {
			a.add(labelRemedy, "Wait some seconds. If nothing changes, check that the operator is running with "+
				"'kubectl nstpl version'.")
		}
	}
	if condition != nil {
		a.add(labelState, fmt.Sprintf("%s for %s: %s", condition.Reason,
			duration.HumanDuration(now.Sub(condition.LastTransitionTime.Time)), condition.Message))
	}
	addProtection(a, ns)
	if partly := match.OptedOutTemplates(ns); len(partly) > 0 {
		a.add(labelState, "opted out of "+output.Count(len(partly), "template")+": "+strings.Join(partly, ", "))
	}
}

// addProtection adds that an object is protected from deletion, if it is.
func addProtection(a *answer, object metav1.Object) {
	if object.GetAnnotations()[v1alpha1.DeletionProtectionAnnotation] == "true" {
		a.add(labelState, "protected from deletion, until a user with the verb unprotect on it removes its annotation "+
			v1alpha1.DeletionProtectionAnnotation)
	}
}

// addPolicySpace adds the policy space of a namespace, those above it, and whether a tree manages the namespace.
func addPolicySpace(a *answer, ns *corev1.Namespace) {
	space := ns.Labels[v1alpha1.PolicySpaceLabel]
	if space == "" {
		return
	}
	text := space
	if above := hierarchy.SpacesOf(ns); len(above) > 1 && above[0] == space {
		text += ", which is in " + strings.Join(above[1:], ", which is in ")
	} else if len(above) == 0 {
		text += " (the operator has not put the namespace into it yet)"
	}
	if tree := ns.Labels[v1alpha1.TreeLabel]; tree != "" {
		text += "; the namespace is declared in the tree " + tree
	}
	a.add(labelPolicySpace, text)
}

// addExplanation adds what a code means for users and administrators.
func addExplanation(a *answer, code codes.Code) {
	if explanation, known := codes.Explain(code); known {
		a.add(labelDecidedBy, explanation.DecidedBy)
		a.add(labelRemedy, explanation.User)
		a.add(labelAdministrator, explanation.Administrator)
	}
}

// addFailureRemedy replaces what to do about a namespace that could not be populated, if the reason of its Populated
// condition says more than the code.
func addFailureRemedy(a *answer, namespace, reason string) {
	if remedy := survey.Remedy(namespace, reason); remedy != "" {
		a.replace(labelRemedy, remedy+" The operator tries again by itself, and the namespace opens once it is populated.")
		a.replace(labelAdministrator, "")
	}
}
