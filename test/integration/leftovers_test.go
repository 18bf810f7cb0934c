package integration_test

import (
	"context"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// clusterKinds are the cluster-scoped kinds that tests create, those that may deny requests first.
var clusterKinds = []schema.GroupVersionKind{
	admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"),
	admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"),
	admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"),
	admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"),
	v1alpha1.GroupVersion.WithKind("ClusterProtectedAttribute"),
	v1alpha1.GroupVersion.WithKind("NamespaceInitializationConfiguration"),
	v1alpha1.GroupVersion.WithKind("SecurityContextConstraints"),
	v1alpha1.GroupVersion.WithKind("NamespaceTemplate"),
	rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"),
	rbacv1.SchemeGroupVersion.WithKind("ClusterRole"),
}

// deleteClusterObjects deletes the scope's cluster-scoped objects, also those that other users created, and fails the test if one of
// them stays. Namespaces stay: the deletion of one takes 0.2 s of CPU time, because a controller deletes the objects of
// each kind in it, which is about a twentieth of the time of all tests. PolicySpaces stay with their namespaces.
func deleteClusterObjects(s *scope) {
	s.t.Helper()
	var left []string
	err := wait.PollUntilContextTimeout(context.Background(), 100*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (done bool, err error) {
			left, err = deleteOnce(ctx, s)
			return len(left) == 0, err
		})
	assert.NoError(s.t, err, "objects of the test remain: %s", strings.Join(left, ", "))
}

// deleteOnce tries to delete the scope's cluster-scoped objects, and returns those that it found.
func deleteOnce(ctx context.Context, s *scope) (found []string, _ error) {
	for _, kind := range clusterKinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := s.client.List(ctx, list); err != nil {
			if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
				continue
			}
			return nil, err
		}
		for i := range list.Items {
			object := &list.Items[i]
			if !strings.HasPrefix(object.Name, s.id+"-") {
				continue
			}
			text := kind.Kind + " " + object.Name
			object.SetGroupVersionKind(kind)
			if err := s.client.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
				text += ": " + err.Error()
			}
			found = append(found, text)
		}
	}
	return found, nil
}
