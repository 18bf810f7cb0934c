package survey

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/engine/match"
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

// Delays returns a note for each template that selects one of the namespaces and copies changes of its sources later,
// or only for the named one. Until then, the copies differ from their sources. A template from a file has the status of
// the stored one, but may have no sources.
func Delays(index *match.Index, namespaces []*corev1.Namespace, only string) (notes []string) {
	copiesTo := func(template *v1alpha1.NamespaceTemplate) bool {
		return slices.ContainsFunc(namespaces, func(ns *corev1.Namespace) bool {
			layer := index.Layers(template.Name).For(ns)
			return layer != nil && len(layer.Template.Spec.Sources) > 0 && Explain(index, template, ns).Matches
		})
	}
	for _, template := range index.All() {
		delay := populate.ReportedDelay(template)
		if delay != "" && (only == "" || only == template.Name) && copiesTo(template) {
			notes = append(notes, fmt.Sprintf("template %s: %s", template.Name, delay))
		}
	}
	return notes
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
