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
		first, err := ask()
		require.NoError(t, err)
		m := &Mapper{RESTMapper: first, ask: ask, latest: first}
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
