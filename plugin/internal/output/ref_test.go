package output_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/plugin/internal/output"
)

func TestParseObjectFindsTheKind(t *testing.T) {
	t.Parallel()
	kinds := []schema.GroupVersionKind{
		{Version: "v1", Kind: "ConfigMap"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
	}
	require.Equal(t, output.ObjectRef{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a", Name: "one"},
		output.ParseObject("configmap/one", "a", kinds))
	require.Equal(t, output.ObjectRef{
		APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding", Namespace: "a", Name: "team:readers",
	}, output.ParseObject("rolebinding.rbac.authorization.k8s.io/team:readers", "a", kinds))
	require.Equal(t, output.ObjectRef{Kind: "gadget.example.com", Namespace: "a", Name: "g"},
		output.ParseObject("gadget.example.com/g", "a", kinds))
}
