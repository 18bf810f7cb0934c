package why

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	kubetesting "k8s.io/client-go/testing"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// An object is not said to be refused because the RoleBindings that decide it cannot be read.
func TestOnlyKnownRefusalsOfRestoreAreExplained(t *testing.T) {
	t.Parallel()
	kind := rbacv1.SchemeGroupVersion.WithKind("Role")
	role := &unstructured.Unstructured{}
	role.SetGroupVersionKind(kind)
	role.SetName("deployer")
	change := populate.Change{
		Action: populate.LeaveAlone, Drifted: true, Kind: kind, Name: "deployer",
		Declared: &populate.Object{Unstructured: role, Template: &v1alpha1.NamespaceTemplate{}},
	}
	plan := populate.Plan{
		Declared: populate.Declared{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}},
		Changes:  []populate.Change{change},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "alice", Namespace: "a"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "deployer"},
	}
	for name, test := range map[string]struct {
		err           error
		refusal, note string
	}{
		"bound": {nil, "rolebinding.rbac.authorization.k8s.io/alice, which no template declares", ""},
		"no right": {
			apierrors.NewForbidden(schema.GroupResource{Resource: "rolebindings"}, "", errors.New("no right")), "",
			"you may not read roles and rolebindings in namespace a, so it is unknown whether " +
				"role.rbac.authorization.k8s.io/deployer can be restored",
		},
		"timeout": {apierrors.NewTimeoutError("too slow", 1), "", "list the RoleBindings that may bind its Roles"},
	} {
		objects := dynamicfake.NewSimpleDynamicClient(scheme.Scheme, binding)
		objects.PrependReactor("list", "rolebindings", func(kubetesting.Action) (bool, runtime.Object, error) {
			return test.err != nil, nil, test.err
		})
		streams, _, _, errOut := genericiooptions.NewTestIOStreams()
		e := &explainer{
			Session: cli.NewSession(streams), cluster: &cluster.Cluster{Dynamic: objects}, noted: map[string]bool{},
		}
		refusal := e.refusal(t.Context(), plan, change)
		if test.refusal == "" {
			require.Empty(t, refusal, name)
		}
		require.Contains(t, refusal, test.refusal, name)
		require.Contains(t, errOut.String(), test.note, name)
	}
}
