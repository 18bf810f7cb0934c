package namespace

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// refusedTemplates returns the templates that require permission, that ns would newly match and that the caller may not
// use. The API server denies a request that makes a namespace match such a template. Live is the namespace in the
// cluster, or nil.
func refusedTemplates(
	ctx context.Context, caller *cluster.Cluster, index *match.Index, ns, live *corev1.Namespace,
) ([]string, error) {
	matched := map[string]bool{}
	if live != nil {
		before, _ := populate.Matching(index, live)
		for _, template := range before {
			matched[template.Name] = true
		}
	}
	var refused []string
	after, _ := populate.Matching(index, ns)
	for _, template := range after {
		if template.Annotations[v1alpha1.RequirePermissionAnnotation] != "true" || matched[template.Name] {
			continue
		}
		allowed, err := caller.MayUse(ctx, template.Name)
		if err != nil {
			return nil, err
		}
		if !allowed {
			refused = append(refused, template.Name)
		}
	}
	return refused, nil
}
