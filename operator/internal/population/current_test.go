package population

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/engine/match"
)

// storedTemplates are the templates of an API server, whose resourceVersion is 10.
type storedTemplates struct {
	client.Reader

	names []string
	lists int
}

func (s *storedTemplates) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	s.lists++
	list.SetResourceVersion("10")
	for _, name := range s.names {
		items := list.(*metav1.PartialObjectMetadataList)
		items.Items = append(items.Items, metav1.PartialObjectMetadata{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Generation: 2},
		})
	}
	return nil
}

// A template that is deleted before it was accepted is never accepted. Nothing waits for it any more.
func TestDeletedTemplatesDelayNoMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &storedTemplates{names: []string{"a"}}
		r := &Templates{Live: api, Index: match.NewIndex()}
		current := func() bool {
			is, err := r.Current(t.Context(), "9")
			require.NoError(t, err)
			return is
		}
		require.False(t, current())
		require.False(t, current())
		require.Equal(t, 1, api.lists, "many namespaces that wait cause one list")
		api.names = nil
		time.Sleep(requeueSoon)
		require.True(t, current())
		time.Sleep(time.Hour)
		require.True(t, current())
		require.Equal(t, 2, api.lists, "nothing is listed while all are accepted")
	})
}
