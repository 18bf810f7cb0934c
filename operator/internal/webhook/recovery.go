package webhook

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
)

// recoveryNamespaces are the namespaces whose pods can be deleted and evicted without a decision of a plugin.
// Otherwise, while the operator is down, its own pods and those that it depends on could not be replaced. Users who may
// delete pods there can stop the cluster anyway.
var recoveryNamespaces = []string{metav1.NamespaceSystem, v1alpha1.OperatorNamespace}

// kubeletAttributes matches the labels and annotations that kubelets set on their nodes, and without which they do not
// register. It does not match those that the admission plugin NodeRestriction denies to kubelets, such as
// node-restriction.kubernetes.io/ and node-role.kubernetes.io/.
var kubeletAttributes = regexp.MustCompile(
	`^((node|kubelet|topology|beta|failure-domain[.]beta|volumes|csi[.]volume|alpha)[.])?kubernetes[.]io/`)

// NotNeededToRecover returns an expression that excludes the requests without which the cluster cannot recover
// while the operator is down: deletions and evictions of pods in recoveryNamespaces, and the registration of nodes. A
// kubelet may create its node with any attributes, as its flag --node-labels sets them, and may change
// kubeletAttributes later.
func NotNeededToRecover() string {
	quoted := make([]string, 0, len(recoveryNamespaces))
	for _, name := range recoveryNamespaces {
		quoted = append(quoted, "'"+name+"'")
	}
	return fmt.Sprintf("!(request.resource.group == '' && (request.resource.resource == 'pods' && "+
		"request.?namespace.orValue('') in [%s] && (request.operation == 'DELETE' || request.?subResource.orValue('') == 'eviction') || "+
		"request.resource.resource == 'nodes' && '%s' in request.userInfo.?groups.orValue([]) && (request.operation == 'CREATE' || "+
		"request.operation == 'UPDATE' && ['labels', 'annotations'].all(f, [[object, oldObject], [oldObject, object]].all(o, "+
		"o[0].metadata[?f].orValue({}).all(k, o[1].metadata[?f][?k] == o[0].metadata[?f][?k] || dyn(k).matches(r'%s')))))))",
		strings.Join(quoted, ", "), kubelets, kubeletAttributes)
}

// IsNeededToRecover reports whether NotNeededToRecover excludes a request.
func IsNeededToRecover(request *Request) bool {
	if request.Resource.Group != corev1.GroupName {
		return false
	}
	switch request.Resource.Resource {
	case "pods":
		return slices.Contains(recoveryNamespaces, request.Namespace) &&
			(request.Operation == admissionv1.Delete || request.SubResource == "eviction")
	case "nodes":
		who := attributes.Requester{Groups: request.UserInfo.Groups}
		return who.Is(attributes.Subject{Group: true, Name: kubelets}) && (request.Operation == admissionv1.Create ||
			request.Operation == admissionv1.Update && changesOnlyKubeletAttributes(request.OldObject, request.Object))
	}
	return false
}

func changesOnlyKubeletAttributes(before, after *unstructured.Unstructured) bool {
	return before != nil && after != nil &&
		differOnlyInKubeletAttributes(before.GetLabels(), after.GetLabels()) &&
		differOnlyInKubeletAttributes(before.GetAnnotations(), after.GetAnnotations())
}

func differOnlyInKubeletAttributes(a, b map[string]string) bool {
	for _, sides := range [][2]map[string]string{{a, b}, {b, a}} {
		for key, value := range sides[0] {
			if other, ok := sides[1][key]; (!ok || other != value) && !kubeletAttributes.MatchString(key) {
				return false
			}
		}
	}
	return true
}
