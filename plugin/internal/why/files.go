package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/source"
)

// explainFiles tries to create the objects in files, and explains each denial.
func (o *why) explainFiles(ctx context.Context) error {
	objects, skipped, err := source.Objects(o.files, o.In)
	if err != nil {
		return err
	}
	for _, note := range skipped {
		o.Note("skipped %s", note)
	}
	if len(objects) == 0 {
		return fmt.Errorf("no objects found in %s", &o.files)
	}
	e, err := o.explainer()
	if err != nil {
		return err
	}
	answers, err := e.tryAll(ctx, objects)
	return errors.Join(o.write(nil, answers...), err)
}

// tryAll tries objects one after the other. After an error it goes on with the next object.
func (e *explainer) tryAll(ctx context.Context, objects []*unstructured.Unstructured) (answers []answer, err error) {
	defer e.Progress("sending dry runs")()
	given := e.namespace
	var errs []error
	for _, object := range objects {
		if own := object.GetNamespace(); own != "" && own != given && e.isExplicit {
			errs = append(errs, fmt.Errorf("%s %s is in namespace %s, which does not match namespace %s", object.GetKind(),
				object.GetName(), own, given))
			continue
		}
		e.namespace = given
		explained, err := e.try(ctx, object)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err))
			continue
		}
		e.addOperator(ctx, &explained)
		explained.add(labelOperator, e.unreachedOperator(ctx))
		answers = append(answers, explained)
	}
	if len(objects) > 1 {
		e.noteOnce("each object was tried alone: it may need others of them, and quotas may not have room for all")
	}
	return answers, errors.Join(errs...)
}

// try sends a dry run of an object, and explains the answer of the API server.
func (e *explainer) try(ctx context.Context, object *unstructured.Unstructured) (answer, error) {
	kind := object.GroupVersionKind()
	mapping, err := e.cluster.Mapper.RESTMappingWithContext(ctx, kind.GroupKind(), kind.Version)
	if err != nil {
		return answer{}, err
	}
	a := answer{Subject: output.Object(kind.GroupKind(), cmp.Or(object.GetName(), object.GetGenerateName()))}
	if isNamespaced(mapping) {
		if own := object.GetNamespace(); own != "" {
			e.namespace = own
		}
		object.SetNamespace(e.namespace)
		a.Namespace = e.namespace
	} else {
		object.SetNamespace("")
	}
	object.SetManagedFields(nil) // an apply rejects them
	stored, err := e.cluster.Try(ctx, mapping, object, cli.FieldManager)
	switch {
	case err == nil:
		addAdmitted(&a, stored)
		isUpdate := stored.GetResourceVersion() != ""
		if template := stored.GetLabels()[v1alpha1.TemplateNameLabel]; template != "" && isUpdate {
			a.add(labelState, fmt.Sprintf("it has the label of template %s: the operator may take the change back, as "+
				"'kubectl nstpl why %s -n %s' explains", template, a.Subject, a.Namespace))
		}
		if unknown := e.unknownRoom(ctx, mapping, stored); unknown != "" {
			a.Summary = "it is unknown whether " + a.where() + " would be allowed"
			a.add(labelState, unknown)
			return a, nil
		}
		a.Allowed = new(true)
		a.Summary = a.where() + " would be allowed"
		return a, e.tryPods(ctx, &a, object)
	case !isDecided(err):
		return a, fmt.Errorf("it is unknown whether it would be allowed: %w", err)
	}
	a.Allowed = new(false)
	a.Summary = a.where() + " would be denied"
	if apierrors.IsTooManyRequests(err) {
		a.Summary = a.where() + " would have to wait"
	}
	e.addDenial(ctx, &a, err.Error())
	return a, nil
}

// isDecided reports whether the error of a dry run says what the API server would answer to the request: also that the
// request would have to wait, or that a webhook would not answer.
func isDecided(err error) bool {
	return cluster.IsDenial(err) || apierrors.IsTooManyRequests(err) || len(codes.Find(err.Error())) > 0 ||
		failedWebhook.MatchString(err.Error())
}

// addDenial adds a message that denies what an answer is about, its codes, and the explanation of each denial in it.
func (e *explainer) addDenial(ctx context.Context, a *answer, message string) {
	a.Codes = codes.Find(message)
	denials, err := e.messages(ctx, message, e.message)
	if err != nil {
		a.add(labelMessage, reasonIn(message))
		return
	}
	summaries := make([]string, 0, len(denials))
	for _, denial := range denials {
		summaries = append(summaries, denial.Summary)
		for _, f := range denial.Facts {
			a.add(f.Label, f.Text)
		}
	}
	a.Summary += ": " + strings.Join(summaries, "; ")
}

// beforeReason matches what ends the name of the webhook or policy in a message of nstpl.
var beforeReason = regexp.MustCompile(` denied (?:the )?request: `)

// reasonIn returns a message without its code. A message of nstpl also loses the name of the webhook or policy: the API
// server names the webhook that it called first, which may not be the one that decided.
func reasonIn(message string) string {
	if len(codes.Find(message)) == 0 {
		return message
	}
	if decider := beforeReason.FindStringIndex(message); decider != nil { // a reason may quote another denial
		message = message[decider[1]:]
	}
	return codes.Trim(message)
}

// addAdmitted adds which constraint admitted a pod.
func addAdmitted(a *answer, stored *unstructured.Unstructured) {
	if stored.GetKind() == "Pod" && stored.GroupVersionKind().Group == corev1.GroupName {
		annotations := stored.GetAnnotations()
		if constraint := annotations[v1alpha1.SCCAnnotation]; constraint != "" {
			subject := "user"
			if annotations[v1alpha1.SCCSubjectAnnotation] == scc.ServiceAccountSubject {
				subject = "service account"
			}
			a.add(labelDecidedBy,
				fmt.Sprintf("SecurityContextConstraints %s admit it, which the %s may use", constraint, subject))
		}
	}
}
