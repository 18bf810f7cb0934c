package rollout

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

func find(revisions []cluster.Revision, template string, number int64) (cluster.Revision, error) {
	for _, revision := range revisions {
		if revision.Revision == number {
			return revision, nil
		}
	}
	return cluster.Revision{}, fmt.Errorf("unable to find revision %d of template %q: "+
		"run 'kubectl nstpl rollout history %[2]s' to list the revisions", number, template)
}

// previous returns the revision to roll a template back to: the newest that was rolled out completely or, if the status
// names none, the newest. Either has another spec than the template. The revisions are ordered, the newest first.
func previous(
	template *v1alpha1.NamespaceTemplate, spec map[string]any, revisions []cluster.Revision,
) (cluster.Revision, error) {
	var others []cluster.Revision
	for _, revision := range revisions {
		if !sameSpec(revision.Spec, spec) {
			others = append(others, revision)
		}
	}
	for _, revision := range others {
		if stateOf(template, revision.Name) == string(v1alpha1.RolloutComplete) {
			return revision, nil
		}
	}
	if len(others) == 0 {
		return cluster.Revision{}, fmt.Errorf("template %q has no earlier revision to roll back to: "+
			"correct its spec, or switch it off with the annotation %s: %s", template.Name,
			v1alpha1.TemplateApplyAnnotation, v1alpha1.TemplateApplyDisable)
	}
	return others[0], nil
}

// isComplete reports whether a revision with the same spec is rolled out completely. The operator then begins no
// rollout of the spec: all namespaces get it immediately.
func isComplete(template *v1alpha1.NamespaceTemplate, spec map[string]any, revisions []cluster.Revision) bool {
	return slices.ContainsFunc(revisions, func(r cluster.Revision) bool {
		return stateOf(template, r.Name) == string(v1alpha1.RolloutComplete) && sameSpec(r.Spec, spec)
	})
}

// settings are the fields of a spec that belong to no revision.
var settings = []string{"rollout", "revisionHistoryLimit"}

// withSettings returns the spec of a revision with the settings of the current spec.
func withSettings(revision, current map[string]any) map[string]any {
	spec := runtime.DeepCopyJSON(revision)
	for _, field := range settings {
		delete(spec, field)
		if value, ok := current[field]; ok {
			spec[field] = runtime.DeepCopyJSONValue(value)
		}
	}
	return spec
}

// sameSpec reports whether two specs are equal apart from their settings. Empty fields and absent ones are equal, since
// the operator does not distinguish them.
func sameSpec(a, b map[string]any) bool {
	x, errX := canonical(a)
	y, errY := canonical(b)
	return errX == nil && errY == nil && equality.Semantic.DeepEqual(x, y)
}

// canonical returns a spec without settings and empty fields.
func canonical(spec map[string]any) (map[string]any, error) {
	var typed v1alpha1.NamespaceTemplateSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &typed); err != nil {
		return nil, err
	}
	typed.Rollout, typed.RevisionHistoryLimit = nil, nil
	return runtime.DefaultUnstructuredConverter.ToUnstructured(&typed)
}
