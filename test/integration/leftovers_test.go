package integration_test

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
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

// templateTimeout is how long a test waits for the deletion of its templates before it deletes their namespaces.
const templateTimeout = 3 * time.Second

// deleteClusterObjects deletes the scope's cluster-scoped objects, also those that other users created, and fails the
// test if one of them stays. Namespaces stay: the deletion of one takes 0.2 s of CPU time, because a controller deletes
// the objects of each kind in it, which is about a twentieth of the time of all tests. PolicySpaces stay with their
// namespaces. A template that is not deleted soon waits for a namespace that the operator leaves alone, for example
// because its policyspace is missing: then the namespaces are deleted, too.
func deleteClusterObjects(s *scope) {
	s.t.Helper()
	began := time.Now()
	var left []string
	err := wait.PollUntilContextTimeout(context.Background(), 100*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (done bool, err error) {
			found, err := deleteOnce(ctx, s)
			if err == nil {
				left = found
			}
			if len(found) > 0 && time.Since(began) > templateTimeout {
				err = errors.Join(err, deleteNamespaces(ctx, s))
			}
			return err == nil && len(found) == 0, err
		})
	assert.NoError(s.t, err, "objects of the test remain: %s", strings.Join(left, ", "))
}

// deleteOnce tries to delete the scope's cluster-scoped objects, and returns those that it found.
func deleteOnce(ctx context.Context, s *scope) (found []string, _ error) {
	for _, kind := range clusterKinds {
		if kind.Group == rbacv1.GroupName && len(found) > 0 {
			break // the operator may need the permissions to delete what a template declares
		}
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

// deleteNamespaces deletes the scope's namespaces. Those that are protected from deletion stay.
func deleteNamespaces(ctx context.Context, s *scope) error {
	namespaces := &corev1.NamespaceList{}
	if err := s.client.List(ctx, namespaces); err != nil {
		return err
	}
	for i := range namespaces.Items {
		ns := &namespaces.Items[i]
		if !strings.HasPrefix(ns.Name, s.id+"-") || ns.DeletionTimestamp != nil {
			continue
		}
		if err := s.client.Delete(ctx, ns); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return err
		}
	}
	return nil
}
