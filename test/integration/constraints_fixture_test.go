package integration_test

import (
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// constraintFixture creates SecurityContextConstraints' permissions and reads pods.
type constraintFixture struct{ userFixture }

// listPods returns the pods of a Deployment.
func (s constraintFixture) listPods(namespace, app string) []corev1.Pod {
	pods := &corev1.PodList{}
	require.NoError(s.t,
		s.client.List(s.t.Context(), pods, client.InNamespace(namespace), client.MatchingLabels{"app": app}))
	return pods.Items
}

// createPrivilegedRole creates a ClusterRole with the verb use on the constraint privileged.
func (s constraintFixture) createPrivilegedRole() string {
	s.t.Helper()
	require.NoError(s.t, s.client.Create(s.t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: s.name("privileged")},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"securitycontextconstraints"},
			ResourceNames: []string{"privileged"}, Verbs: []string{"use"},
		}},
	}))
	return s.name("privileged")
}
