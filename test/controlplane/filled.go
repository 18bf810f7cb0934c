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
	// try stores an entry of a size, and returns the size of the namespace. The API server drops an entry that does not
	// fit.
	try := func(size int) (stored int, isStored bool) {
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
		return filled.Size(), len(filled.ManagedFields) > 0
	}
	fits := func(size int) bool {
		_, isStored := try(size)
		return isStored
	}
	// The size is almost known: etcd limits a request, which has the name three times and some bytes more than the
	// namespace. If another client changes the namespace meanwhile, any size is possible.
	const limit, small = 3 << 19, 1 << 10
	stored, isStored := try(small)
	require.True(t, isStored)
	most := limit - stored + small - 3*len(name)
	low, high := small, limit
	for _, size := range []int{most - 160, most - 96} {
		if fits(size) {
			low = size
		} else {
			high = min(high, size)
		}
	}
	size := low + sort.Search(high-low-1, func(n int) bool { return !fits(low + n + 1) })
	require.True(t, fits(size))
}
