package controlplane

import (
	"encoding/json"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FillManagers has a user who may patch a namespace remove a label from it, and fill what etcd stores by one entry of
// managedFields, which may name fields that do not exist. Then the namespace has no room for a further byte.
func FillManagers(t testing.TB, user client.Client, name, label string) {
	t.Helper()
	// fits reports whether the API server stores an entry of a size. Otherwise it drops it.
	fits := func(size int) bool {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"labels": map[string]any{label: nil},
			"managedFields": []any{map[string]any{
				"manager": "filler", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
				"fieldsV1": map[string]any{"f:" + strings.Repeat("x", size): map[string]any{}},
			}},
		}})
		require.NoError(t, err)
		filled := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		require.NoError(t, user.Patch(t.Context(), filled, client.RawPatch(types.MergePatchType, body)))
		return len(filled.ManagedFields) > 0
	}
	const least, most = 1 << 20, 3 << 19
	size := least + sort.Search(most-least, func(n int) bool { return !fits(least + n + 1) })
	require.Less(t, size, most)
	require.True(t, fits(size))
}
