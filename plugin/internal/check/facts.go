package check

import (
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// common are the facts that both kinds of checks need.
type common struct {
	server cluster.Server
	// manifests are the objects that the plugin's version installs, and definitions are its CustomResourceDefinitions.
	manifests   []*unstructured.Unstructured
	definitions []*apiextensionsv1.CustomResourceDefinition
	// stored has what the cluster has of both. Of a Secret, it has the metadata only.
	stored map[ref]fact[*unstructured.Unstructured]
	hooks  fact[[]hook]
	// services has whether each Service that hooks call exists.
	services map[ref]fact[bool]
}

// now returns the time on the clock of the API server.
func (c *common) now() time.Time { return c.server.Now }

// before are the facts for the checks before an installation.
type before struct {
	common
	// isInstalled reports whether nstpl is installed, so that the manifests upgrade it.
	isInstalled bool
	// served has the kinds that the API server serves, by the versions of the manifests' objects.
	served map[schema.GroupVersion]fact[map[string]bool]
	// rights has what the caller may do.
	rights map[authorizationv1.ResourceAttributes]fact[bool]
	// denied has the errors of the cluster-scoped objects that were created by dry runs.
	denied map[ref]error
}

// after are the facts for the checks of an installation.
type after struct {
	common
	plugin    string
	lease     fact[*coordinationv1.Lease]
	endpoints fact[[]*discoveryv1.EndpointSlice]
	// template is the error of a dry run that creates a NamespaceTemplate, and namespace the result of one that creates
	// a Namespace.
	template   error
	namespace  fact[*unstructured.Unstructured]
	namespaces fact[[]*corev1.Namespace]
	// own has the objects of nstpl's kinds, by the resource.
	own map[string]fact[[]*ownObject]
	// sync is the Deployment of nstpl-sync, and syncLease its Lease.
	sync      fact[*unstructured.Unstructured]
	syncLease fact[*coordinationv1.Lease]
}

// ownObject has the fields of an object of nstpl's kinds that the checks need.
type ownObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            struct {
		Conditions []metav1.Condition `json:"conditions"`
		Failures   []ownFailure       `json:"failures"`
	} `json:"status"`

	// edited is when a client last wrote fields of the object besides its status, or zero if that is unknown. An update
	// that only removes fields leaves no time.
	edited time.Time
}

// reduce keeps only the time of the last edit from the managedFields.
func (o *ownObject) reduce() {
	for _, entry := range o.ManagedFields {
		if entry.Subresource == "" && entry.Time != nil && entry.Time.After(o.edited) {
			o.edited = entry.Time.Time
		}
	}
	o.ManagedFields = nil
}

// ownFailure is an object that could not be applied.
type ownFailure struct {
	Object  string `json:"object"`
	Message string `json:"message"`
}

// hook is a webhook of a ValidatingWebhookConfiguration or a MutatingWebhookConfiguration.
type hook struct {
	configuration, name string
	mutates             bool
	client              admissionregistrationv1.WebhookClientConfig
	rules               []admissionregistrationv1.RuleWithOperations
	namespaces, objects *metav1.LabelSelector
	conditions          []admissionregistrationv1.MatchCondition
	failurePolicy       admissionregistrationv1.FailurePolicyType
	sideEffects         admissionregistrationv1.SideEffectClass
}

// hookConfiguration has the fields that a ValidatingWebhookConfiguration and a MutatingWebhookConfiguration share.
type hookConfiguration struct {
	metav1.ObjectMeta `json:"metadata"`
	Webhooks          []admissionregistrationv1.ValidatingWebhook `json:"webhooks"`
}

func refOf(object *unstructured.Unstructured) ref {
	return ref{object.GroupVersionKind(), object.GetNamespace(), object.GetName()}
}

// resourceOf returns the resource of a kind of Kubernetes or nstpl. All of them have regular plurals.
func resourceOf(kind schema.GroupVersionKind) schema.GroupVersionResource {
	resource, _ := apimeta.UnsafeGuessKindToResource(kind)
	return resource
}

var definitionKind = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
