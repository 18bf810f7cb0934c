package vetting

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

// exposes reports whether an edit lets revisions of the template into force in namespaces where no revision was: it
// enables the template, or no longer requires a permission. Both are metadata, which all revisions share. An edit that
// lets namespaces keep grants of earlier revisions counts, too.
func (e edit) exposes() bool {
	return e.old != nil && e.updated != nil && (e.enables() ||
		!e.old.Spec.Rollout.KeepsRevoked() && e.updated.Spec.Rollout.KeepsRevoked() ||
		match.RequiresPermission(e.old) && !match.RequiresPermission(e.updated))
}

// judgeRevisions judges the earlier revisions that namespaces would have after the edit until its rollout reaches them,
// as if the author exposed each of them. Otherwise an author could change and enable a template, and so populate what
// only an earlier author was allowed to populate.
func (v *review) judgeRevisions(ctx context.Context) ([]error, error) {
	if !v.exposes() || v.unlimited {
		return nil, nil
	}
	earlier, err := v.earlierSpecs(ctx)
	if err != nil {
		return nil, err
	}
	var all []error
	for _, spec := range earlier {
		request := *v.request // its warnings remain those about the updated template
		exposed := &review{Admission: v.Admission, request: &request, author: v.author, began: v.began}
		exposed.old, exposed.updated = v.old.DeepCopy(), v.updated.DeepCopy()
		exposed.old.Spec, exposed.updated.Spec = spec, spec
		exposed.old.Spec.Rollout, exposed.updated.Spec.Rollout = v.old.Spec.Rollout, v.updated.Spec.Rollout
		problems, err := exposed.judge(ctx)
		if err != nil {
			return nil, err
		}
		for _, problem := range problems {
			all = append(all, rightsProblem{fmt.Errorf("namespaces would have an earlier revision until the rollout reaches "+
				"them: %w", problem)})
		}
	}
	return all, nil
}

// earlierSpecs returns the specs of the revisions in the status of the stored template, and its own, except those that
// populate the same as the updated template.
func (v *review) earlierSpecs(ctx context.Context) ([]v1alpha1.NamespaceTemplateSpec, error) {
	var earlier []v1alpha1.NamespaceTemplateSpec
	add := func(spec v1alpha1.NamespaceTemplateSpec) {
		isKnown := slices.ContainsFunc(append(slices.Clone(earlier), v.updated.Spec),
			func(known v1alpha1.NamespaceTemplateSpec) bool { return populatesSame(known, spec) })
		if !isKnown {
			earlier = append(earlier, spec)
		}
	}
	add(v.old.Spec)
	revisions := v.clients.AppsV1().ControllerRevisions(v1alpha1.OperatorNamespace)
	for _, revision := range v.old.Status.Revisions {
		stored, err := revisions.Get(ctx, revision.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(stored, v.old) {
			continue // namespaces do not get it any more
		}
		var data struct {
			Spec v1alpha1.NamespaceTemplateSpec `json:"spec"`
		}
		if err == nil {
			err = json.Unmarshal(stored.Data.Raw, &data)
		}
		if err != nil {
			return nil, fmt.Errorf("read revision %s: %w", revision.Name, err)
		}
		add(data.Spec)
	}
	return earlier, nil
}

// populatesSame reports whether two specs populate the same. The keys of objects in a stored revision are sorted.
func populatesSame(a, b v1alpha1.NamespaceTemplateSpec) bool {
	var contents [2]any
	for i, spec := range []v1alpha1.NamespaceTemplateSpec{a, b} {
		data, err := json.Marshal(populatedBy(spec))
		if err != nil || json.Unmarshal(data, &contents[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(contents[0], contents[1])
}
