package survey

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// Sources returns a function that reads the sources of templates with the permissions of the user, each once and when
// it is needed.
func Sources(ctx context.Context, c *cluster.Cluster) populate.Sources {
	var mu sync.Mutex
	known := map[render.SourceRef]func() populate.Source{}
	return func(ref render.SourceRef) populate.Source {
		mu.Lock()
		read := known[ref]
		if read == nil {
			read = sync.OnceValue(func() populate.Source { return readSource(ctx, c, ref) })
			known[ref] = read
		}
		mu.Unlock()
		return read()
	}
}

func readSource(ctx context.Context, c *cluster.Cluster, ref render.SourceRef) populate.Source {
	objects, err := c.Objects(ctx, ref.GroupVersionKind, ref.Namespace)
	if err != nil {
		return populate.SourceUnread(ref, err)
	}
	object, err := objects.Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return populate.SourceNotFound(ref)
	case err != nil:
		return populate.SourceUnread(ref, err)
	}
	return populate.NewSource(ref, object).Guarded(ref, func() (*attributes.Rules, error) {
		rules, err := c.ClusterAttributeRules(ctx)
		return attributes.NewRules(rules, nil), err
	})
}
