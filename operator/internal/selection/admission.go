package selection

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/selectors"
	"nstpl.dev/nstpl/operator/internal/revisions"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// SetBy returns the first of some labels of namespaces that a template sets, and the template. It returns "" if no
// template sets any.
type SetBy func(ctx context.Context, labels []string) (label, template string, err error)

// Options are the arguments of NewAdmission.
type Options struct {
	// ConfigMaps writes the ConfigMap, in the operator's namespace.
	ConfigMaps corev1client.ConfigMapInterface
	// Reviews asks which users may use all templates.
	Reviews authorizationclient.SubjectAccessReviewInterface
	// Revisions reads the revisions of templates that are in force.
	Revisions *revisions.Reader
	SetBy     SetBy
}

// Admission adds the rules of templates and initializers to the ConfigMap before they are stored.
type Admission struct {
	Options
	batches webhook.Batches[addition]
}

// NewAdmission returns an Admission.
func NewAdmission(o Options) *Admission {
	a := &Admission{Options: o}
	a.batches.Timeout, a.batches.Write = writeTimeout, a.write
	return a
}

// Plugin returns the row of the chain for NamespaceInitializationConfigurations. Templates are vetted first, so the
// plugin of package vetting calls AddTemplate.
func (a *Admission) Plugin() webhook.Plugin {
	return webhook.Plugin{
		Name: "initializers", Validator: a,
		Rules: []admissionregistrationv1.RuleWithOperations{
			webhook.Rule(v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version,
				admissionregistrationv1.ClusterScope,
				[]string{v1alpha1.NamespaceInitializationConfigurations.Resource},
				admissionregistrationv1.Create, admissionregistrationv1.Update),
		},
		MatchConditions: []admissionregistrationv1.MatchCondition{{
			Name:       "changes-initializers",
			Expression: "oldObject == null || object.?initializers != oldObject.?initializers",
		}},
		FailurePolicy:  admissionregistrationv1.Fail, // otherwise namespaces would not wait for the initializers
		TimeoutSeconds: 10,
	}
}

// Validate adds the rules of a NamespaceInitializationConfiguration. It denies one that begins to select by a label
// that a template sets, as vetting denies such a template: initializers are chosen when a namespace is created, before
// a template sets the label.
func (a *Admission) Validate(ctx context.Context, request *webhook.Request) error {
	if request.SubResource != "" || request.Object == nil {
		return nil
	}
	labels, labelsBefore, err := rulesOf(request, never(labelsOf))
	if err != nil {
		return err
	}
	labels = slices.DeleteFunc(labels, func(label string) bool { return slices.Contains(labelsBefore, label) })
	switch label, template, err := a.SetBy(ctx, labels); {
	case err != nil:
		return err
	case label != "":
		return webhook.Deny(codes.InvalidObject, fmt.Sprintf("NamespaceInitializationConfiguration %s: an initializer "+
			"selects namespaces by the label %s, which template %s sets (namespaceMetadata): a new namespace does not "+
			"have the label yet: select by another label", webhook.GivenName(request), label, template))
	}
	rules, before, err := rulesOf(request, never(selectors.OfConfiguration))
	if err != nil {
		return err
	}
	return a.add(ctx, request, v1alpha1.NamespaceInitializationConfigurations.Resource, rules, before)
}

// labelsOf returns the labels by which the initializers of a configuration select namespaces.
func labelsOf(configuration *v1alpha1.NamespaceInitializationConfiguration) []string {
	var labels []string
	for i := range configuration.Initializers {
		labels = append(labels, match.KeysOf(configuration.Initializers[i].NamespaceSelector)...)
	}
	return labels
}

// AddTemplate adds the rules of the template in a request that is about to be allowed. It denies the request of a user
// who may not restrict others by it.
func (a *Admission) AddTemplate(ctx context.Context, request *webhook.Request) error {
	if request.SubResource != "" || request.Object == nil {
		return nil
	}
	// Earlier revisions with a wider selector may be in force still. The edit may not restore that selector.
	stored, storedBefore, err := rulesOf(request, never(selectors.OfTemplate))
	if err != nil {
		return err
	}
	if selectors.Restricts(storedBefore, stored) {
		if allowed, err := a.mayUseAll(ctx, request); err != nil || !allowed {
			return cmp.Or(err, restricts(request))
		}
	}
	rules, before, err := a.templateRules(ctx, request)
	if err != nil {
		return err
	}
	return a.add(ctx, request, v1alpha1.NamespaceTemplates.Resource, rules, before)
}

// templateRules returns the rules of the template that a request stores, and those of the stored one. Both have the
// rules of all revisions that namespaces may have when the request is stored.
func (a *Admission) templateRules(
	ctx context.Context, request *webhook.Request,
) (rules, before []selectors.Rule, err error) {
	isStored, status := request.OldObject != nil, v1alpha1.NamespaceTemplateStatus{}
	return rulesOf(request, func(template *v1alpha1.NamespaceTemplate) ([]selectors.Rule, error) {
		if isStored { // rulesOf reads the stored template first
			isStored, status = false, template.Status
		}
		template.Status = status
		return rulesInForce(ctx, a.Revisions, template)
	})
}

// rulesInForce returns the rules of all revisions of a template that namespaces may have.
func rulesInForce(
	ctx context.Context, reader *revisions.Reader, template *v1alpha1.NamespaceTemplate,
) ([]selectors.Rule, error) {
	inForce, err := reader.InForce(ctx, template)
	if err != nil {
		return nil, err
	}
	var rules []selectors.Rule
	for _, revision := range inForce {
		for _, rule := range selectors.OfTemplate(revision) {
			if !slices.Contains(rules, rule) {
				rules = append(rules, rule)
			}
		}
	}
	return rules, nil
}

// never returns a function that returns the same and never an error.
func never[T, R any](of func(*T) []R) func(*T) ([]R, error) {
	return func(object *T) ([]R, error) { return of(object), nil }
}

// rulesOf returns the rules, or other parts, of the object that a request stores, and those of the object that is
// stored, which it reads first.
func rulesOf[T, R any](request *webhook.Request, of func(*T) ([]R, error)) (rules, before []R, err error) {
	decode := func(object *unstructured.Unstructured) ([]R, error) {
		typed := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
			return nil, webhook.Deny(codes.InvalidObject, err.Error())
		}
		return of(typed)
	}
	if request.OldObject != nil {
		if before, err = decode(request.OldObject); err != nil {
			return nil, nil, err
		}
	}
	rules, err = decode(request.Object)
	return rules, before, err
}

// add adds the rules of a request's object unless the stored object has the same ones.
func (a *Admission) add(
	ctx context.Context, request *webhook.Request, kind string, rules, before []selectors.Rule,
) error {
	isDryRun := request.DryRun != nil && *request.DryRun
	isSame := request.Operation == admissionv1.Update && slices.Equal(rules, before)
	if isDryRun || request.IsDenied || len(rules) == 0 || isSame {
		return nil
	}
	added := addition{
		Kind: kind, Name: webhook.GivenName(request), UID: string(request.Object.GetUID()), Rules: rules,
		Time: metav1.Now(),
	}
	if request.OldObject != nil {
		added.After = request.OldObject.GetResourceVersion()
	}
	if selectors.SizeOf(rules) > selectors.SizeOf(before) {
		mayUseAll, err := a.mayUseAll(ctx, request)
		if err != nil {
			return err
		}
		added.limited = !mayUseAll
	}
	err := a.batches.Do(ctx, added)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("ConfigMap %s/%s does not exist: apply the manifests of nstpl again: %w",
			v1alpha1.OperatorNamespace, v1alpha1.SelectorsConfigMap, err)
	case apierrors.IsConflict(err):
		return webhook.Defer(codes.Busy,
			fmt.Sprintf("the selectors of %s could not be recorded, since others were: try again", request.Name),
			webhook.RetryAfter)
	}
	return err
}
