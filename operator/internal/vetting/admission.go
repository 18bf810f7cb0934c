package vetting

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/internal/attribute"
	"nstpl.dev/nstpl/operator/internal/selection"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// maxConcurrentVettings limits how many templates a replica compiles at a time, and how many it tries, since all
// combinations of overlays take memory and time. Other requests wait.
const maxConcurrentVettings = 2

// The API server waits vettingTimeoutSeconds for an answer. Vetting ends a little earlier, so that the client learns
// that it may try again, and does so by itself if it honors Retry-After.
const (
	vettingTimeoutSeconds = 10
	maxVettingTime        = vettingTimeoutSeconds*time.Second - 1500*time.Millisecond
)

// Admission is the validator of NamespaceTemplates. It denies a template that cannot be populated, and one whose author
// does not hold the rights that the operator uses for it in all namespaces.
type Admission struct {
	Options
	compiling *slots
	trying    *slots
	// rights has the resources whose objects the operator may populate.
	rights *utilcache.Expiring
}

// Options are the arguments of NewAdmission.
type Options struct {
	Mapper meta.RESTMapper
	// Clients act as the operator.
	Clients kubernetes.Interface
	// Metadata applies objects of all kinds by dry runs, as the operator.
	Metadata metadata.Interface
	// Objects reads the sources of templates, as the operator.
	Objects dynamic.Interface
	// Outlines are those of all templates.
	Outlines *Outlines
	// Live reads from the API server.
	Live client.Reader
	// Attributes provides the rules about protected attributes.
	Attributes *attribute.Admission
	// Selectors records the selectors of templates before they are stored.
	Selectors *selection.Admission
}

// NewAdmission returns the validator.
func NewAdmission(o Options) *Admission {
	return &Admission{
		Options: o, compiling: newSlots(maxConcurrentVettings), trying: newSlots(maxConcurrentVettings),
		rights: utilcache.NewExpiring(),
	}
}

// Plugin returns the row of the chain.
func (a *Admission) Plugin() webhook.Plugin {
	return webhook.Plugin{
		Name: "template", Validator: a,
		Rules: []admissionregistrationv1.RuleWithOperations{
			webhook.Rule(v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version,
				admissionregistrationv1.ClusterScope,
				[]string{v1alpha1.NamespaceTemplates.Resource},
				admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete),
		},
		MatchConditions: templateConditions(),
		FailurePolicy:   admissionregistrationv1.Fail, // a template can grant rights
		TimeoutSeconds:  vettingTimeoutSeconds,
	}
}

// templateConditions returns match conditions that exclude requests which neither populate nor prune objects, so that
// templates can be disabled and deleted while the operator is down. A template that deletes its objects can then be
// deleted, and its finalizer removed, by users who may do everything.
func templateConditions() []admissionregistrationv1.MatchCondition {
	const (
		applies  = ".metadata.?annotations[?'" + v1alpha1.TemplateApplyAnnotation + "'].orValue('')"
		requires = ".metadata.?annotations[?'" + v1alpha1.RequirePermissionAnnotation + "']" // "" differs from none
		deletes  = ".spec.?deletionPolicy.orValue('') == '" + string(v1alpha1.DeletionDelete) + "'"
		tree     = ".metadata.?labels[?'" + v1alpha1.TreeLabel + "']"
		disabled = "'" + v1alpha1.TemplateApplyDisable + "'"
		waits    = "'" + v1alpha1.DeletionFinalizer + "' in %s.metadata.?finalizers.orValue([])"
		admin    = "authorizer.group('*').resource('*').check('*').allowed()"
	)
	abandons := fmt.Sprintf(waits, "oldObject") + " && !(" + fmt.Sprintf(waits, "object") + ") && " +
		"request.userInfo.username != '" + v1alpha1.OperatorUser + "' && !" + admin
	return []admissionregistrationv1.MatchCondition{
		{
			Name: "changes-what-is-populated",
			Expression: "object == null ? oldObject" + deletes + " && oldObject" + applies + " != " + disabled + " : " +
				"oldObject == null || object.spec != oldObject.spec || " +
				"object.metadata.?ownerReferences != oldObject.metadata.?ownerReferences || " +
				"object" + requires + " != oldObject" + requires + " || " + abandons + " || " +
				"object" + tree + " != oldObject" + tree + " || " +
				"object" + applies + " != oldObject" + applies + " && (object" + applies + " != " + disabled +
				" || object" + deletes + ")",
		},
		{
			Name:       "not-deleted-by-an-administrator",
			Expression: "object != null || !" + admin,
		},
	}
}

// Validate decides about the creation, update or deletion of a NamespaceTemplate.
func (a *Admission) Validate(ctx context.Context, request *webhook.Request) error {
	if request.SubResource != "" || request.Object == nil && request.OldObject == nil {
		return nil
	}
	e, err := editOf(request)
	if err != nil {
		return webhook.Deny(codes.InvalidObject, err.Error())
	}
	if invalid := e.invalidAnnotations(); len(invalid) > 0 {
		return webhook.Deny(codes.TemplateInvalid, fmt.Sprintf("template %s: %s", e.name(), invalid[0]))
	}
	if e.widens() || e.prunesAll() || e.changesWaves() || e.changesTree() {
		if err := a.vet(ctx, request, e); err != nil {
			return err
		}
	}
	warnings, err := a.pauseWarnings(ctx, e)
	if err != nil {
		return err
	}
	request.Warnings = append(request.Warnings, warnings...)
	return a.Selectors.AddTemplate(ctx, request)
}

// vet returns why an edit is denied, or why nothing can be decided.
func (a *Admission) vet(ctx context.Context, request *webhook.Request, e edit) error {
	v := &review{
		Admission: a, edit: e, request: request, author: a.author(request.UserInfo), began: time.Now(),
	}
	limited, cancel := context.WithTimeout(ctx, maxVettingTime)
	defer cancel()
	problems, err := v.judge(limited)
	if err == nil && len(problems) == 0 {
		problems, err = v.judgeRevisions(limited)
	}
	if err != nil && limited.Err() != nil {
		return webhook.Defer(codes.Busy,
			fmt.Sprintf("template %s: the operator is too busy to check it: try again", e.name()), webhook.RetryAfter)
	}
	if err != nil {
		return fmt.Errorf("template %s: %w", e.name(), err)
	}
	if len(problems) > 0 {
		return webhook.Deny(codeOf(problems), denial(e.name(), problems))
	}
	return nil
}

func templateOf(object *unstructured.Unstructured) (*v1alpha1.NamespaceTemplate, error) {
	template := &v1alpha1.NamespaceTemplate{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, template); err != nil {
		return nil, fmt.Errorf("template %s: %w", object.GetName(), err)
	}
	return template, nil
}

// codeOf returns the code of a denial because of problems.
func codeOf(problems []error) codes.Code {
	for _, problem := range problems {
		if _, isAboutRights := errors.AsType[rightsProblem](problem); !isAboutRights {
			return codes.TemplateInvalid
		}
	}
	return codes.TemplateAuthor
}

// denial returns the message with which a template is denied.
func denial(template string, problems []error) string {
	if len(problems) == 1 {
		return fmt.Sprintf("template %s: %v", template, problems[0])
	}
	lines := []string{fmt.Sprintf("template %s has %d problems:", template, len(problems))}
	for _, problem := range problems {
		lines = append(lines, "- "+problem.Error())
	}
	return strings.Join(lines, "\n")
}
