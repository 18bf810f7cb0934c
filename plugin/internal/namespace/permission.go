package namespace

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// creationNote returns a note about the error of a dry run that creates or changes a namespace, or "" if it needs none:
// other notes name the templates that the caller may not use if namesForbidden is true. Admission does not judge the
// request of a caller who may not create or change namespaces.
func creationNote(err error, namesForbidden bool) string {
	switch {
	case err == nil, namesForbidden && slices.Contains(codes.Find(err.Error()), codes.TemplateUse):
		return ""
	case !cluster.IsDenial(err), cluster.MayNotWrite(err):
		return fmt.Sprintf("it is unknown whether the API server would accept this namespace: %v", err)
	}
	return fmt.Sprintf("the API server would deny this namespace: %v", err)
}

// forbiddenTemplates returns the templates that require permission, that would select ns but do not select live, and
// that the caller may not use. The API server denies a request after which such a template would select the namespace.
// Live is the namespace in the cluster, or nil.
func forbiddenTemplates(
	ctx context.Context, caller *cluster.Cluster, index *match.Index, ns, live *corev1.Namespace,
) ([]string, error) {
	selectsLive := map[string]bool{}
	if live != nil {
		before, _ := survey.Matching(index, live)
		for _, template := range before {
			selectsLive[template.Name] = true
		}
	}
	var forbidden []string
	after, _ := survey.Matching(index, ns)
	for _, template := range after {
		if !match.RequiresPermission(template) || selectsLive[template.Name] {
			continue
		}
		allowed, err := caller.May(ctx, v1alpha1.VerbUse, v1alpha1.NamespaceTemplates, template.Name, "")
		if err != nil {
			return nil, err
		}
		if !allowed {
			forbidden = append(forbidden, template.Name)
		}
	}
	return forbidden, nil
}
