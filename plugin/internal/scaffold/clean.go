package scaffold

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// made are the objects that a program creates in each namespace, with the name of the program.
var made = map[string]string{
	"configmap/kube-root-ca.crt":            "Kubernetes",
	"serviceaccount/default":                "Kubernetes",
	"configmap/istio-ca-root-cert":          "Istio",
	"configmap/openshift-service-ca.crt":    "OpenShift",
	"resourcequota/" + v1alpha1.QuotaName:   "nstpl",
	rbacObject("system:image-pullers"):      "OpenShift",
	rbacObject("system:image-builders"):     "OpenShift",
	rbacObject("system:deployers"):          "OpenShift",
	rbacObject("capsule-namespace-deleter"): "Capsule",
}

func rbacObject(name string) string { return "rolebinding.rbac.authorization.k8s.io/" + name }

// openShiftAccounts are the ServiceAccounts that OpenShift creates in each project. Elsewhere, these are names like any
// other.
var openShiftAccounts = []string{"serviceaccount/builder", "serviceaccount/deployer"}

// foreignKeys begin the keys of labels and annotations by which other tools know their objects. A tool could delete an
// object with them in a namespace that it does not know.
var foreignKeys = []string{
	"argocd.argoproj.io/", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/", "meta.helm.sh/", "hnc.x-k8s.io/",
	"accurate.cybozu.com/", "generate.kyverno.io/", "capsule.clastix.io/", "propagate.hnc.x-k8s.io/",
	"projectcapsule.dev/", "objectset.rio.cattle.io/", "kubectl.kubernetes.io/", "openshift.io/",
}

// errSecret is the reason why a Secret is not copied into a template.
var errSecret = remedy{errors.New("the values of Secrets must not get into files: copy it by spec.sources of a template")}

// omission returns why an object is not copied into a template, or "". Project reports whether the namespace is a
// project of OpenShift.
func omission(object *unstructured.Unstructured, project bool) string {
	name := nameOf(object.Object)
	owners := object.GetOwnerReferences()
	switch {
	case object.GetKind() == "Secret":
		return errSecret.Error()
	case made[name] != "" && !isChanged(object):
		return made[name] + " creates it in each namespace"
	case project && slices.Contains(openShiftAccounts, name):
		return "OpenShift creates it in each project"
	case object.GetLabels()[v1alpha1.TemplateNameLabel] != "":
		return "template " + object.GetLabels()[v1alpha1.TemplateNameLabel] + " declares it"
	case object.GetDeletionTimestamp() != nil:
		return "it is being deleted"
	case len(owners) > 0:
		return fmt.Sprintf("it belongs to %s %s", owners[0].Kind, owners[0].Name)
	}
	return ""
}

// isChanged reports whether a user changed the ServiceAccount default.
func isChanged(object *unstructured.Unstructured) bool {
	return object.GetKind() == "ServiceAccount" &&
		(object.Object["automountServiceAccountToken"] != nil || object.Object["imagePullSecrets"] != nil)
}

// clean returns an object without what the API server and other tools added to it, and comments about what a reader
// would miss. Tokens are not escaped yet.
func clean(object *unstructured.Unstructured) declared {
	object = object.DeepCopy()
	cleaned := declared{object: object.Object, comments: output.Comments{}}
	delete(object.Object, "status")
	metadata := map[string]any{"name": object.GetName()}
	for _, field := range metadataFields {
		check := render.CheckLabels
		if field == "annotations" {
			check = render.CheckAnnotations
		}
		values, _, _ := unstructured.NestedStringMap(object.Object, "metadata", field)
		kept := map[string]any{}
		var foreign []string
		for key, value := range values {
			switch {
			case isForeign(key) && key != corev1.LastAppliedConfigAnnotation:
				foreign = append(foreign, key)
			case !isForeign(key) && len(check(map[string]string{key: value})) == 0:
				kept[key] = value
			}
		}
		if len(foreign) > 0 {
			slices.Sort(foreign)
			cleaned.comments.Add("", leftOut+"the %s of other tools: %s", field, strings.Join(foreign, ", "))
		}
		if len(kept) > 0 {
			metadata[field] = kept
		}
	}
	if finalizers := object.GetFinalizers(); len(finalizers) > 0 {
		cleaned.comments.Add("", leftOut+"the finalizers %s", strings.Join(finalizers, ", "))
	}
	object.Object["metadata"] = metadata
	if object.GetKind() == "ServiceAccount" {
		delete(object.Object, "secrets") // names of generated tokens
		if object.Object["imagePullSecrets"] != nil {
			cleaned.comments.Add(".imagePullSecrets", "The template does not contain these Secrets.")
		}
	}
	return cleaned
}

func isForeign(key string) bool {
	return key == corev1.LastAppliedConfigAnnotation ||
		slices.ContainsFunc(foreignKeys, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) ||
		strings.Contains(key, ".hnc.x-k8s.io/")
}
