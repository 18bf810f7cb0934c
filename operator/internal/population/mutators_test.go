package population

import (
	"fmt"
	"strings"
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

// A user lists as many initializers as the policies of Kubernetes 1.36 read. A longer list counts as empty: the API
// server would not wait for the answer, and store a namespace that is not held.
func TestALongListOfInitializersIsReplaced(t *testing.T) {
	t.Parallel()
	names := func(number int) string {
		list := make([]string, number)
		for i := range list {
			list[i] = fmt.Sprintf("n%d", i)
		}
		return strings.Join(list, ",")
	}
	clientset := fake.NewClientset(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.SelectorsConfigMap},
		Data:       map[string]string{"all": "\nt:\n"},
	})
	m := NamespaceMutators{ConfigMaps: clientset.CoreV1().ConfigMaps(v1alpha1.OperatorNamespace)}
	for _, test := range []struct {
		list string
		kept bool
	}{
		{names(512), true},
		{names(513), false},
		{strings.Repeat("é", 8192), true},
		{strings.Repeat("é", 8193), false},
		{names(130_000), false}, // 1 MiB
	} {
		object := &unstructured.Unstructured{Object: map[string]any{}}
		object.SetName("team-a")
		object.SetAnnotations(map[string]string{v1alpha1.PendingAnnotation: test.list})
		require.NoError(t, m.Initialization(t.Context(), &webhook.Request{Object: object}))
		want := v1alpha1.TemplateInitializer
		if test.kept {
			want = test.list + "," + want
		}
		got := object.GetAnnotations()[v1alpha1.PendingAnnotation]
		require.True(t, want == got, "%d bytes became %d", len(test.list), len(got))
	}
}
