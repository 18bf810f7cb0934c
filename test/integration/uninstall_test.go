package integration_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/marks"
)

// objectUIDs returns the UIDs of the objects in a namespace whose kinds the test populates.
func objectUIDs(s *testScope, namespace string) map[string]types.UID {
	s.t.Helper()
	found := map[string]types.UID{}
	for _, list := range []client.ObjectList{&corev1.ConfigMapList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}} {
		require.NoError(s.t, s.client.List(s.t.Context(), list, client.InNamespace(namespace)))
		switch list := list.(type) {
		case *corev1.ConfigMapList:
			for _, object := range list.Items {
				found["ConfigMap "+object.Name] = object.UID
			}
		case *rbacv1.RoleList:
			for _, object := range list.Items {
				found["Role "+object.Name] = object.UID
			}
		case *rbacv1.RoleBindingList:
			for _, object := range list.Items {
				found["RoleBinding "+object.Name] = object.UID
			}
		}
	}
	return found
}

// The test uninstalls as docs/operations.md describes: first the CustomResourceDefinitions, while the operator removes
// its finalizers, and then everything else. Populated objects stay, whatever the deletionPolicy of their templates.
func TestUninstallKeepsPopulatedObjects(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, newTestCluster(t))
	folder, _, err := controlplane.Manifests(controlplane.Version())
	require.NoError(t, err)
	manifests := filepath.Join("../..", folder)

	s.createSpace("a", "", "pods", "50")
	inSpace := s.selectsSpace("a") // with deletionPolicy Delete
	s.createTemplate("z-authoritative", documents(readerRole("root", "configmaps"), viewerBinding("root")), inSpace,
		authoritative(v1alpha1.AuthoritativeDelete))
	s.createTemplate("deleted",
		documents(readerRole("of-another", "configmaps"), viewerBinding("of-another"), configMap("deleted", "v")),
		inSpace)
	s.createTemplate("orphaned", configMap("orphaned", "v"))
	ns := s.createNamespace("n", s.inSpace("a"))
	s.waitInitialized(ns)
	s.waitPresent(ns,
		documents(readerRole("root", "configmaps"), viewerBinding("root"), readerRole("of-another", "configmaps"),
			viewerBinding("of-another"),
			configMap("deleted", "v"), configMap("orphaned", "v")))
	s.waitUsage("a", "pods: 0/50")
	s.waitPresent(ns, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kube-root-ca.crt\n")
	before := objectUIDs(s, ns.Name)

	// Kubernetes sometimes stops a deletion with "storage is (re)initializing", and begins again five minutes later.
	_, err = s.kubectl(t.Context(), "", "delete", "crd", "--selector", "app.kubernetes.io/part-of=nstpl",
		"--timeout=6m")
	require.NoError(t, err)
	s.waitDeleted(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: v1alpha1.QuotaName}})
	_, err = s.kubectl(t.Context(), "", "delete", "--kustomize", manifests, "--ignore-not-found", "--timeout=1m")
	require.NoError(t, err)
	left, err := s.kubectl(t.Context(), "", "get", "--kustomize", manifests, "--ignore-not-found", "--output=name")
	if err == nil { // kubectl fails for kinds that are no longer defined
		require.Empty(t, left)
	}
	require.Equal(t, before, objectUIDs(s, ns.Name))

	// Users can change and delete everything afterwards.
	require.NoError(t, s.client.Create(t.Context(), newPod(ns.Name, "p")))
	require.NoError(t,
		s.client.Delete(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "root"}}))
	require.NoError(t, s.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}))
	s.waitDeleted(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}})
}
