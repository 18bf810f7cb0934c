package selection

import (
	"context"
	"fmt"
	"slices"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/selectors"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// SetBy returns the first of some labels of namespaces that a template sets, and the template. It returns "" if no
// template sets any.
type SetBy func(ctx context.Context, labels []string) (label, template string, err error)

// Admission adds the rules of templates and initializers to the ConfigMap before they are stored.
type Admission struct {
	configMaps corev1client.ConfigMapInterface
	setBy      SetBy
	// writing is held during a write, since concurrent ones of a replica would only conflict.
	writing sync.Mutex

	mu sync.Mutex
	// next has the additions that the next write will have: those of all requests that came since the last one began.
	next *batch
}

// NewAdmission returns an Admission that writes the ConfigMap with a client for the operator's namespace.
func NewAdmission(configMaps corev1client.ConfigMapInterface, setBy SetBy) *Admission {
	return &Admission{configMaps: configMaps, setBy: setBy}
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
	labels, labelsBefore, err := rulesOf(request, labelsOf)
	if err != nil {
		return err
	}
	labels = slices.DeleteFunc(labels, func(label string) bool { return slices.Contains(labelsBefore, label) })
	switch label, template, err := a.setBy(ctx, labels); {
	case err != nil:
		return err
	case label != "":
		return webhook.Deny(codes.InvalidObject, fmt.Sprintf("NamespaceInitializationConfiguration %s: an initializer "+
			"selects namespaces by the label %s, which template %s sets (namespaceMetadata): a new namespace does not "+
			"have the label yet: select by another label", webhook.GivenName(request), label, template))
	}
	rules, before, err := rulesOf(request, selectors.OfConfiguration)
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

// AddTemplate adds the rules of the template in a request that is about to be allowed.
func (a *Admission) AddTemplate(ctx context.Context, request *webhook.Request) error {
	if request.SubResource != "" || request.Object == nil {
		return nil
	}
	rules, before, err := rulesOf(request, selectors.OfTemplate)
	if err != nil {
		return err
	}
	return a.add(ctx, request, v1alpha1.NamespaceTemplates.Resource, rules, before)
}

// rulesOf returns the rules, or other parts, of the object that a request stores, and those of the object that is
// stored.
func rulesOf[T, R any](request *webhook.Request, of func(*T) []R) (rules, before []R, err error) {
	decode := func(object *unstructured.Unstructured) ([]R, error) {
		typed := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
			return nil, webhook.Deny(codes.InvalidObject, err.Error())
		}
		return of(typed), nil
	}
	if rules, err = decode(request.Object); err != nil || request.OldObject == nil {
		return rules, nil, err
	}
	before, err = decode(request.OldObject)
	return rules, before, err
}

// add adds the rules of a request's object unless the stored object has the same ones.
func (a *Admission) add(
	ctx context.Context, request *webhook.Request, kind string, rules, before []selectors.Rule,
) error {
	isDryRun := request.DryRun != nil && *request.DryRun
	if isDryRun || len(rules) == 0 || request.Operation == admissionv1.Update && slices.Equal(rules, before) {
		return nil
	}
	added := addition{
		Kind: kind, Name: webhook.GivenName(request), UID: string(request.Object.GetUID()), Rules: rules,
		Time: metav1.Now(),
	}
	if request.OldObject != nil {
		added.After = request.OldObject.GetResourceVersion()
	}
	err := a.writeWithOthers(ctx, added)
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
