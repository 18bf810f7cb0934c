package population

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/selectors"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// timeoutSeconds is how long the API server waits for an answer before it admits a namespace as it is. So that the
// answer comes before, what it depends on is read within readTimeout.
const (
	timeoutSeconds = 5
	readTimeout    = 3 * time.Second
)

// NamespaceMutators do what the MutatingAdmissionPolicies of manifests/admission do, for API servers before Kubernetes
// 1.36.
type NamespaceMutators struct {
	// ConfigMaps are those of the operator's namespace.
	ConfigMaps corev1client.ConfigMapInterface
	// Reviews asks who may name another creator.
	Reviews authorizationv1client.SubjectAccessReviewInterface
}

// Creator sets the annotation with the user who creates a namespace, whatever the request contains, and keeps its value
// in later requests. Users with the verb set-creator may name another user.
func (m NamespaceMutators) Creator(ctx context.Context, request *webhook.Request) error {
	creator, known := request.UserInfo.Username, true
	if request.Operation == admissionv1.Update {
		creator, known = request.OldObject.GetAnnotations()[v1alpha1.CreatorAnnotation]
	}
	if now, there := request.Object.GetAnnotations()[v1alpha1.CreatorAnnotation]; now == creator && there == known {
		return nil
	} else if now != "" {
		if maySet, err := m.maySetCreator(ctx, request); err != nil || maySet {
			return err
		}
	}
	if known {
		annotate(request.Object, v1alpha1.CreatorAnnotation, creator)
	} else {
		unstructured.RemoveNestedField(request.Object.Object, "metadata", "annotations", v1alpha1.CreatorAnnotation)
	}
	return nil
}

// maySetCreator reports whether the requester may name any user as the creator of a namespace.
func (m NamespaceMutators) maySetCreator(ctx context.Context, request *webhook.Request) (bool, error) {
	return webhook.IsAllowed(ctx, m.Reviews, request.UserInfo, authorizationv1.ResourceAttributes{
		Verb: v1alpha1.VerbSetCreator, Group: v1alpha1.NamespaceTemplates.Group,
		Version: v1alpha1.NamespaceTemplates.Version, Resource: v1alpha1.NamespaceTemplates.Resource,
	})
}

// data returns the data of the ConfigMap nstpl-selectors, by which the policies decide from Kubernetes 1.36 on, or none
// if it does not exist.
func (m NamespaceMutators) data(ctx context.Context) (map[string]string, error) {
	ctx, stop := context.WithTimeout(ctx, readTimeout)
	defer stop()
	configMap, err := m.ConfigMaps.Get(ctx, v1alpha1.SelectorsConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return configMap.Data, nil
}

// Initialization opts out the namespaces that users and groups of the ConfigMap nstpl-auto-opt-out create, and sets the
// initializers that a new namespace waits for: namespace-template if a template selects it or it is in a policy space,
// and those that select it by a NamespaceInitializationConfiguration. System namespaces wait for none. If it is unknown
// what selects a namespace, the namespace waits for namespace-template: the operator opens those that no template
// selects.
func (m NamespaceMutators) Initialization(ctx context.Context, request *webhook.Request) error {
	data, err := m.data(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot read what selects the namespace, so it waits", "namespace", request.Name)
	}
	if selectors.OptOutsOf(data).Has(request.UserInfo.Username, request.UserInfo.Groups) {
		annotate(request.Object, v1alpha1.OptOutAnnotation, "true")
	}
	ns := namespaceOf(request.Object)
	if match.IsSystemNamespace(ns.Name) {
		return nil
	}
	populates, selecting := selectors.Parse(data).Selecting(ns.Labels)
	populates = (populates || err != nil) && !match.OptedOut(ns)
	if populates || ns.Labels[v1alpha1.PolicySpaceLabel] != "" {
		selecting = slices.Insert(selecting, 0, v1alpha1.TemplateInitializer)
	}
	if len(selecting) == 0 {
		return nil
	}
	pending := initialize.Requested(ns)
	for _, name := range selecting {
		if !slices.Contains(pending, name) {
			pending = append(pending, name)
		}
	}
	annotate(request.Object, v1alpha1.PendingAnnotation, strings.Join(pending, ","))
	labelled := map[string]string{}
	maps.Copy(labelled, request.Object.GetLabels())
	labelled[v1alpha1.InitializingLabel] = "true"
	request.Object.SetLabels(labelled)
	return nil
}

// namespaceOf returns the fields of a namespace that selectors and rules use. The API server appends five random
// characters to a generateName after admission, and sets the label with the name. Any five stand for them here, so that
// the prefix alone is not treated as a name.
func namespaceOf(object *unstructured.Unstructured) *corev1.Namespace {
	name := object.GetName()
	if name == "" {
		name = object.GetGenerateName() + "xxxxx"
	}
	labels := map[string]string{}
	maps.Copy(labels, object.GetLabels())
	labels[corev1.LabelMetadataName] = name
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: labels, Annotations: object.GetAnnotations(),
	}}
}

func annotate(object *unstructured.Unstructured, key, value string) {
	annotations := map[string]string{}
	maps.Copy(annotations, object.GetAnnotations())
	annotations[key] = value
	object.SetAnnotations(annotations)
}

// Plugins returns the rows of the chain. Their failure policy is Ignore: the validating policies deny forged
// annotations, so a namespace without these is safe.
func (m NamespaceMutators) Plugins() []webhook.Plugin {
	plugin := func(
		name string, mutator webhook.Mutator, resources []string, operations ...admissionregistrationv1.OperationType,
	) webhook.Plugin {
		return webhook.Plugin{
			Name: name, Mutator: mutator,
			Rules: []admissionregistrationv1.RuleWithOperations{
				webhook.Rule("", "v1", admissionregistrationv1.ClusterScope, resources, operations...),
			},
			FailurePolicy:  admissionregistrationv1.Ignore,
			TimeoutSeconds: timeoutSeconds,
		}
	}
	everyWrite := []string{"namespaces", "namespaces/status", "namespaces/finalize"}
	create, update := admissionregistrationv1.Create, admissionregistrationv1.Update
	return []webhook.Plugin{
		plugin("initialization", webhook.MutatorFunc(m.Initialization), []string{"namespaces"}, create),
		plugin("creator", webhook.MutatorFunc(m.Creator), everyWrite, create, update),
	}
}
