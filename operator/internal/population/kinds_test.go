package population

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/internal/objects"
)

// noKinds is a mapper of an API server that serves no kinds. It counts the requests.
type noKinds struct {
	meta.RESTMapper
	requests int
}

func (m *noKinds) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	m.requests++
	return nil, &meta.NoKindMatchError{GroupKind: kind}
}

// An event of a CustomResourceDefinition has the templates of its group ask for their kinds, which they otherwise do
// not within some seconds.
func TestADefinitionHasTheTemplatesOfItsGroupAskForTheirKinds(t *testing.T) {
	t.Parallel()
	template := func(name, group string) *v1alpha1.NamespaceTemplate {
		return &v1alpha1.NamespaceTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: v1alpha1.NamespaceTemplateStatus{
				Kinds: []v1alpha1.GroupKind{{Group: group, Kind: "Wheel"}, {Group: group, Kind: "Cog"}},
			},
		}
	}
	mapper := &noKinds{}
	r := &Templates{
		Acceptance: &Acceptance{Index: match.NewIndex(template("a", "example.org"), template("b", "another.org"))},
		Objects:    objects.New(t.Context(), objects.Options{Mapper: mapper}),
	}
	watch := func() int {
		require.True(t, meta.IsNoMatchError(r.Objects.Watch(t.Context(),
			schema.GroupKind{Group: "example.org", Kind: "Wheel"})))
		return mapper.requests
	}
	require.Equal(t, 1, watch())
	require.Equal(t, 1, watch())
	require.Equal(t, []reconcile.Request{{NamespacedName: client.ObjectKey{Name: "b"}}},
		r.withKindsOf(t.Context(), definitionOf("wheels.another.org")))
	require.Equal(t, 1, watch())
	require.Equal(t, []reconcile.Request{{NamespacedName: client.ObjectKey{Name: "a"}}},
		r.withKindsOf(t.Context(), definitionOf("wheels.example.org")))
	require.Equal(t, 2, watch())
}
