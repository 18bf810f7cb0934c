package served

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestMapperAsksAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wheel := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Wheel"}
		var serves []schema.GroupVersionKind
		asked := 0
		ask := func() (meta.RESTMapper, error) {
			asked++
			mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{wheel.GroupVersion()})
			for _, kind := range serves {
				mapper.Add(kind, meta.RESTScopeNamespace)
			}
			return mapper, nil
		}
		m, err := newMapper(ask)
		require.NoError(t, err)
		for range 3 {
			_, err = m.RESTMapping(wheel.GroupKind())
			require.True(t, meta.IsNoMatchError(err), "%v", err)
		}
		require.Equal(t, 2, asked)
		serves = append(serves, wheel)
		time.Sleep(askAgain) // of the clock of synctest, which needs no time
		for range 3 {
			mapping, err := m.RESTMapping(wheel.GroupKind())
			require.NoError(t, err)
			require.Equal(t, wheel, mapping.GroupVersionKind)
			time.Sleep(askAgain)
		}
		require.Equal(t, 3, asked)
	})
}

// While the API server does not answer for one kind, another that is known is found.
func TestMapperFindsKnownKindsWhileItAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wheel := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Wheel"}
		isFirst, answers := true, make(chan struct{})
		m, err := newMapper(func() (meta.RESTMapper, error) {
			if !isFirst {
				<-answers
			}
			isFirst = false
			mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{wheel.GroupVersion()})
			mapper.Add(wheel, meta.RESTScopeNamespace)
			return mapper, nil
		})
		require.NoError(t, err)
		missing := make(chan error, 1)
		go func() {
			_, err := m.RESTMapping(schema.GroupKind{Group: "example.org", Kind: "Cog"})
			missing <- err
		}()
		synctest.Wait() // the goroutine waits for the answer
		_, err = m.RESTMapping(wheel.GroupKind())
		require.NoError(t, err)
		close(answers)
		require.True(t, meta.IsNoMatchError(<-missing))
	})
}
