package integration_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// An API server that loads the guards from files enforces them even if an administrator deletes the objects.
func TestPoliciesOfFilesCannotBeDeleted(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := newClusterWithoutOperator(t, "--feature-gates=ManifestBasedAdmissionControlConfig=true",
		"--admission-control-config-file="+writeAdmissionConfiguration(t))
	for _, name := range []string{"nstpl-namespace-guard", "nstpl-creator"} {
		for _, object := range []client.Object{
			&admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
			&admissionregistrationv1.ValidatingAdmissionPolicy{},
			&admissionregistrationv1.MutatingAdmissionPolicyBinding{},
			&admissionregistrationv1.MutatingAdmissionPolicy{},
		} {
			object.SetName(name)
			require.NoError(t, client.IgnoreNotFound(cluster.client.Delete(t.Context(), object)))
			object.SetName(name + ".static.k8s.io")
			require.True(t, apierrors.IsNotFound(cluster.client.Delete(t.Context(), object)))
		}
	}
	require.NoError(t, cluster.startOperator(t.Context()))
	s := newScope(t, cluster)
	s.createTemplate("defaults", configMap("settings", "v"))
	ns := s.createPopulatedNamespace("a")
	s.waitPresent(ns, configMap("settings", "v"))

	user := s.newUser(s.name("user"))
	for how, write := range user.metadataWrites("annotations", v1alpha1.OptOutAnnotation, new("true")) {
		err := write(ns.Name)
		require.True(t, apierrors.IsForbidden(err), "%s: %v", how, err)
		require.ErrorContains(t, err, "'nstpl-namespace-guard.static.k8s.io'")
	}
	for how, write := range user.metadataWrites("annotations", v1alpha1.CreatorAnnotation, new(user.name)) {
		require.NoError(t, write(ns.Name), how)
		stored, err := user.CoreV1().Namespaces().Get(t.Context(), ns.Name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, ns.Annotations[v1alpha1.CreatorAnnotation], stored.Annotations[v1alpha1.CreatorAnnotation], how)
	}
}

// writeAdmissionConfiguration returns the path of the configuration that nstpl ships, with the folders of this project.
func writeAdmissionConfiguration(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs("../../manifests/static")
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(folder, "admission-configuration.yaml"))
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "admission-configuration.yaml")
	require.NoError(t, os.WriteFile(file,
		[]byte(strings.ReplaceAll(string(content), "/etc/kubernetes/nstpl", folder)), 0o600))
	return file
}
