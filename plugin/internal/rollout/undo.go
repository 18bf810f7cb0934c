package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/retry"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

type undo struct {
	cli.Session
	written    cli.Written
	toRevision int64
}

func newUndo(s cli.Session) *cobra.Command {
	o := &undo{Session: s}
	cmd := &cobra.Command{
		Use:   "undo TEMPLATE [--to-revision=N] [--dry-run=none|client|server] [-o FORMAT]",
		Short: "Roll a template back to an earlier revision",
		Long: templates.LongDesc(`
			Roll a template back to an earlier revision. The template gets the spec of that revision, except for the
			fields rollout and revisionHistoryLimit, and the API server vets it with your permissions.

			Without --to-revision, the template gets the newest other revision that is rolled out completely. If its
			status names none, it gets the revision before the current one.

			A rollback to the revision that is rolled out completely has no waves, and does not wait if the rollout is
			paused: namespaces that have a later revision get the spec immediately. Any other rollback is rolled out
			like a change. If the rollout is paused, existing namespaces get it after "kubectl nstpl rollout resume".`),
		Example: templates.Examples(`
			# Roll back to the previous revision
			kubectl nstpl rollout undo budget

			# Roll back to revision 3
			kubectl nstpl rollout undo budget --to-revision=3

			# Check whether the API server would accept the rollback from you
			kubectl nstpl rollout undo budget --dry-run=server`),
		Args:              cli.OneArg("TEMPLATE"),
		ValidArgsFunction: s.CompleteTemplate(),
		RunE: oneTemplate(func(cmd *cobra.Command, name string) error {
			if o.toRevision < 0 {
				return cli.UsageError(cmd, fmt.Errorf("revision must be a positive integer: %d", o.toRevision))
			}
			return o.run(cmd.Context(), name)
		}),
	}
	cmd.Flags().Int64Var(&o.toRevision, "to-revision", 0,
		"The revision to roll back to. Zero means the newest other revision that is rolled out completely.")
	o.written.AddFlags(cmd)
	return cmd
}

func (o *undo) run(ctx context.Context, name string) error {
	c, err := o.Connect()
	if err != nil {
		return err
	}
	template, err := c.Template(ctx, name)
	if err != nil {
		return err
	}
	decoded, err := cluster.Decode[v1alpha1.NamespaceTemplate](template)
	if err != nil {
		return err
	}
	revisions, err := c.Revisions(ctx, template)
	if err != nil {
		return err
	}
	target, err := o.target(decoded, specOf(template), revisions)
	if err != nil {
		return err
	}
	if sameSpec(target.Spec, specOf(template)) {
		return o.written.Print(o.Out, template,
			fmt.Sprintf("skipped rollback (current spec already matches revision %d)", target.Revision))
	}
	o.Note("template %q gets the spec of revision %d", name, target.Revision)
	o.warn(template, isComplete(decoded, target.Spec, revisions))
	rolledBack := rollBack(template, target)
	if !o.written.IsLocal() {
		if rolledBack, err = o.write(ctx, c, template, target); err != nil {
			return err
		}
	}
	return o.written.Print(o.Out, rolledBack, "rolled back")
}

// target returns the revision to roll the template back to.
func (o *undo) target(
	template *v1alpha1.NamespaceTemplate, spec map[string]any, revisions []cluster.Revision,
) (cluster.Revision, error) {
	if o.toRevision > 0 {
		return find(revisions, template.Name, o.toRevision)
	}
	return previous(template, spec, revisions)
}

func specOf(template *unstructured.Unstructured) map[string]any {
	spec, _ := template.Object["spec"].(map[string]any)
	return spec
}

// rollBack returns the template with the spec and the change cause of a revision.
func rollBack(template *unstructured.Unstructured, to cluster.Revision) *unstructured.Unstructured {
	template = template.DeepCopy()
	template.Object["spec"] = withSettings(to.Spec, specOf(template))
	annotations := template.GetAnnotations()
	delete(annotations, v1alpha1.ChangeCauseAnnotation)
	if cause := to.Annotations[v1alpha1.ChangeCauseAnnotation]; cause != "" {
		annotations = labels.Merge(annotations, map[string]string{v1alpha1.ChangeCauseAnnotation: cause})
	}
	template.SetAnnotations(annotations)
	return template
}

// write rolls the stored template back. If only its status or its metadata changed since it was read, write tries
// again. If another user changed its spec, write returns the conflict.
func (o *undo) write(
	ctx context.Context, c *cluster.Cluster, read *unstructured.Unstructured, target cluster.Revision,
) (*unstructured.Unstructured, error) {
	options := metav1.UpdateOptions{FieldManager: cli.FieldManager, DryRun: o.written.DryRun()}
	latest := read
	isFirst := true
	var written *unstructured.Unstructured
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
		if !isFirst {
			if latest, err = c.Template(ctx, read.GetName()); err != nil {
				return err
			}
		}
		isFirst = false
		if latest.GetUID() != read.GetUID() || latest.GetGeneration() != read.GetGeneration() {
			return fmt.Errorf("template %q was changed at the same time: "+
				"run 'kubectl nstpl rollout history %[1]s', and then try again", read.GetName())
		}
		written, err = c.Dynamic.Resource(v1alpha1.NamespaceTemplates).Update(ctx, rollBack(latest, target), options)
		return err
	})
	return written, err
}

// warn prints what may keep the rollback from lasting or from reaching namespaces, and that a pause does not delay it.
// IsComplete reports whether the spec of the rollback is rolled out completely.
func (o *undo) warn(template *unstructured.Unstructured, isComplete bool) {
	name := template.GetName()
	switch {
	case isPaused(template) && isComplete:
		o.Note("Warning: namespaces that have a later revision of template %q get the rollback immediately, although the "+
			"rollout is paused", name)
	case isPaused(template):
		o.Note("Warning: the rollout of template %q is paused: existing namespaces get the rollback after "+
			"'kubectl nstpl rollout resume %[1]s'", name)
	}
	managers := appliers(template)
	if _, ok := template.GetAnnotations()[corev1.LastAppliedConfigAnnotation]; ok {
		managers = append(managers, "kubectl apply")
	}
	for _, manager := range managers {
		o.Note("Warning: template %q is managed by %q: revert the change in its source too, or the next apply "+
			"rolls it out again", name, manager)
	}
}

// appliers returns the field managers that applied fields of the spec with server-side apply.
func appliers(template *unstructured.Unstructured) []string {
	var managers []string
	for _, entry := range template.GetManagedFields() {
		if entry.Operation == metav1.ManagedFieldsOperationApply && entry.FieldsV1 != nil &&
			strings.Contains(entry.FieldsV1.GetRawString(), `"f:spec"`) {
			managers = append(managers, entry.Manager)
		}
	}
	slices.Sort(managers)
	return slices.Compact(managers)
}
