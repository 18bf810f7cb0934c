package selection

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/selectors"
	"nstpl.dev/nstpl/test/controlplane"
)

// lateLists is a cache that has not seen the last changes of nstpl-auto-opt-out.
type lateLists struct {
	client.Reader
	data map[string]string
}

func (l lateLists) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	object.(*corev1.ConfigMap).Data = l.data
	return nil
}

// A new leader does not restore a list that the previous leader has replaced, although its own cache still has it.
func TestALateCacheRestoresNoOptOuts(t *testing.T) {
	t.Parallel()
	live, err := client.New(controlplane.New(t).RESTConfig(), client.Options{})
	require.NoError(t, err)
	require.NoError(t, live.Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.OperatorNamespace},
	}))
	lists := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.AutoOptOutConfigMap},
		Data:       map[string]string{"users": "builder"},
	}
	require.NoError(t, live.Create(t.Context(), lists))
	late := lateLists{data: map[string]string{"users": "builder\nrobot"}}
	r := &Controller{live: live, lists: late}
	copied := selectors.OptOutsOf(lists.Data)
	optOuts, err := r.optOuts(t.Context(), copied)
	require.NoError(t, err)
	require.Equal(t, copied, optOuts)

	require.NoError(t, live.Delete(t.Context(), lists))
	optOuts, err = r.optOuts(t.Context(), copied)
	require.NoError(t, err)
	require.Empty(t, optOuts, "the ConfigMap was deleted")
	optOuts, err = r.optOuts(t.Context(), selectors.OptOutsOf(late.data))
	require.NoError(t, err)
	require.Equal(t, selectors.OptOutsOf(late.data), optOuts, "a cache that has what is copied is not compared")
}
