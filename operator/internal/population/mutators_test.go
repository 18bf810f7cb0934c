package population

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// A namespace waits for the operator if it is unknown what selects it, and not if it is known that nothing does.
func TestANamespaceWaitsIfWhatSelectsItIsUnknown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		namespace string
		fails     bool
		want      string
	}{
		"unknown":                        {"team-a", true, v1alpha1.TemplateInitializer},
		"unknown, of a system namespace": {"kube-system", true, ""},
		"nothing":                        {"team-a", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clientset := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.SelectorsConfigMap,
			}})
			clientset.PrependReactor("get", "configmaps", func(kubetesting.Action) (bool, runtime.Object, error) {
				return test.fails, nil, apierrors.NewTooManyRequests("busy", 1)
			})
			m := NamespaceMutators{ConfigMaps: clientset.CoreV1().ConfigMaps(v1alpha1.OperatorNamespace)}
			object := &unstructured.Unstructured{Object: map[string]any{}}
			object.SetName(test.namespace)
			request := &webhook.Request{Object: object}
			require.NoError(t, m.Initialization(t.Context(), request))
			require.Equal(t, test.want, request.Object.GetAnnotations()[v1alpha1.PendingAnnotation])
		})
	}
}
