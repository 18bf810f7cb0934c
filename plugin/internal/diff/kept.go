package diff

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/rollout"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/fields"
)

// noteKept prints which templates of the files stay disabled or paused if kubectl applies the files, because another
// client disabled or paused the stored template.
func (d *diff) noteKept(ctx context.Context, c *cluster.Cluster, stored []*v1alpha1.NamespaceTemplate) {
	byName := map[string]*v1alpha1.NamespaceTemplate{}
	for _, template := range stored {
		byName[template.Name] = template
	}
	for _, file := range d.templates {
		if former := byName[file.Name]; former != nil {
			d.noteDisabled(ctx, c, file, former)
			d.notePaused(ctx, c, file, former)
		}
	}
}

// noteDisabled prints that a template stays disabled, if so.
func (d *diff) noteDisabled(ctx context.Context, c *cluster.Cluster, file, stored *v1alpha1.NamespaceTemplate) {
	const annotation = v1alpha1.TemplateApplyAnnotation
	_, isInFile := file.Annotations[annotation]
	if isInFile || stored.Annotations[annotation] != v1alpha1.TemplateApplyDisable ||
		!keeps(ctx, c, file.Name, false, "metadata", "annotations", annotation) {
		return
	}
	d.Note("template %s is disabled in the cluster, and stays so if the file is applied by kubectl apply: compared as if it "+
		"were enabled", file.Name)
}

// notePaused prints that the rollout of a template stays paused, if so. Whether the file resumes it is unknown if the
// file has other fields of the rollout.
func (d *diff) notePaused(ctx context.Context, c *cluster.Cluster, file, stored *v1alpha1.NamespaceTemplate) {
	if isPaused(file) || !isPaused(stored) ||
		!keeps(ctx, c, file.Name, file.Spec.Rollout == nil, "spec", "rollout", "paused") {
		return
	}
	d.Note("%s", pausedNote(file, stored))
}

// pausedNote says which namespaces get the change of a template although its rollout stays paused. A change that
// restores the complete revision is not rolled out.
func pausedNote(file, stored *v1alpha1.NamespaceTemplate) string {
	var cases []string
	if file.Spec.Rollout != nil {
		cases = append(cases, "the file sets spec.rollout.paused to false")
	}
	revisions := stored.Status.Revisions
	if slices.ContainsFunc(revisions, rollout.IsComplete) && !rollout.IsComplete(revisions[0]) {
		cases = append(cases, "the change restores the revision that is rolled out completely")
	}
	note := fmt.Sprintf("the rollout of template %s is paused: existing namespaces get the change after 'kubectl nstpl "+
		"rollout resume %[1]s'", file.Name)
	if len(cases) > 0 {
		note += ", unless " + strings.Join(cases, " or ")
	}
	note += "; new ones get it at once"
	if !file.Spec.Rollout.KeepsRevoked() {
		note += ", and grants that it removes end at once"
	}
	return note
}

// isPaused reports whether changes of a template wait until its rollout is resumed.
func isPaused(template *v1alpha1.NamespaceTemplate) bool {
	return template.Spec.Rollout != nil && template.Spec.Rollout.Paused
}

// keeps reports whether kubectl apply keeps a field of a stored template that the file lacks: it removes only what it
// applied before, and a map with everything in it if the file lacks the map. It reports true if the template cannot be
// read.
func keeps(ctx context.Context, c *cluster.Cluster, template string, lacksMap bool, names ...string) bool {
	live, err := c.Dynamic.Resource(v1alpha1.NamespaceTemplates).Get(ctx, template, metav1.GetOptions{})
	if err != nil {
		return true
	}
	lastApplied := map[string]any{} // empty if kubectl apply did not write the template, or only with --server-side
	_ = utiljson.Unmarshal([]byte(live.GetAnnotations()[corev1.LastAppliedConfigAnnotation]), &lastApplied)
	removed := names
	if lacksMap {
		removed = names[:len(names)-1]
	}
	if _, isApplied, _ := unstructured.NestedFieldNoCopy(lastApplied, removed...); isApplied {
		return false
	}
	var path fields.Path
	for _, name := range names {
		path = append(path, fields.Step{Field: &name})
	}
	const serverSide = "kubectl" // the field manager of kubectl apply --server-side
	return !slices.Equal(fields.Managers(live, path), []string{serverSide})
}
