package population

import (
	"context"
	"errors"
	"sync"
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
	// during is called by each list before it reads, if it is not nil.
	during func() error
}

func (s *storedTemplates) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	s.lists++
	if s.during != nil {
		if err := s.during(); err != nil {
			return err
		}
	}
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
		r := &Acceptance{Live: api, Index: match.NewIndex()}
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

// The namespaces of a policy space that moves need a list at the same time. One lists for all, and all fail with it.
func TestNamespacesThatMoveTogetherShareAList(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"which succeeds": nil, "which fails": errors.New("no answer")} {
		for _, asOf := range []string{"9", ""} {
			t.Run(name+" as of "+asOf, func(t *testing.T) {
				t.Parallel()
				const moved = 16
				var called sync.WaitGroup
				called.Add(moved)
				api := &storedTemplates{names: []string{"a"}}
				r := &Acceptance{Live: api, Index: match.NewIndex()}
				api.during = func() error {
					if api.lists == 1 {
						called.Wait() // so that the others need a list that begins later, unless they have a version
					}
					return failure
				}
				var done sync.WaitGroup
				for range moved {
					done.Go(func() {
						called.Done()
						is, err := r.Current(t.Context(), asOf)
						if !errors.Is(err, failure) || is {
							t.Errorf("%v, %v", is, err)
						}
					})
				}
				done.Wait()
				require.Less(t, api.lists, moved)
			})
		}
	}
}
