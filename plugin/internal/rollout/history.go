package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

type history struct {
	cli.Session
	revision int64
	output   cli.ListFlags
}

func newHistory(s cli.Session) *cobra.Command {
	o := &history{Session: s}
	cmd := &cobra.Command{
		Use:   "history TEMPLATE [--revision=N] [-o json|yaml|...]",
		Short: "View previous revisions of a template",
		Long: templates.LongDesc(`
			View the revisions of a template that the operator keeps, and how far the rollout of each has come. The
			number is spec.revisionHistoryLimit. With --revision, the command prints the template with the spec of
			that revision. The spec does not have the fields rollout and revisionHistoryLimit, which belong to no
			revision.

			The column CHANGE-CAUSE shows the annotation kubernetes.io/change-cause that the template had.`),
		Example: templates.Examples(`
			# View the revisions of a template
			kubectl nstpl rollout history budget

			# View what the template declared in revision 3
			kubectl nstpl rollout history budget --revision=3

			# Show which objects a return to revision 3 would change
			kubectl nstpl rollout history budget --revision=3 | kubectl nstpl diff -A -f -`),
		Args:              cli.OneArg("TEMPLATE"),
		ValidArgsFunction: s.CompleteTemplate(),
		RunE: oneTemplate(func(cmd *cobra.Command, name string) error {
			if o.revision < 0 {
				return cli.UsageError(cmd, fmt.Errorf("revision must be a positive integer: %d", o.revision))
			}
			return o.run(cmd.Context(), name)
		}),
	}
	cmd.Flags().Int64Var(&o.revision, "revision", 0, "Print the template with the spec of this revision.")
	o.output.AddTo(cmd, cli.ListOptions{})
	return cmd
}

func (o *history) run(ctx context.Context, name string) error {
	c, err := o.Connect()
	if err != nil {
		return err
	}
	object, err := c.Template(ctx, name)
	if err != nil {
		return err
	}
	revisions, err := c.Revisions(ctx, object)
	if err != nil {
		return err
	}
	if o.revision > 0 {
		revision, err := find(revisions, name, o.revision)
		if err != nil {
			return err
		}
		return o.output.PrintObject(o.Out, asTemplate(revision, name))
	}
	template, err := cluster.Decode[v1alpha1.NamespaceTemplate](object)
	if err != nil {
		return err
	}
	return o.write(template, revisions, time.Now())
}

// asTemplate returns the template with the spec of a revision.
func asTemplate(revision cluster.Revision, name string) *unstructured.Unstructured {
	template := &unstructured.Unstructured{Object: map[string]any{"spec": revision.Spec}}
	template.SetAPIVersion(v1alpha1.GroupVersion.String())
	template.SetKind("NamespaceTemplate")
	template.SetName(name)
	if cause := revision.Annotations[v1alpha1.ChangeCauseAnnotation]; cause != "" {
		template.SetAnnotations(map[string]string{v1alpha1.ChangeCauseAnnotation: cause})
	}
	return template
}

// shownRevision is what the command prints for a revision.
type shownRevision struct {
	Template    string    `json:"template"`
	Revision    int64     `json:"revision"`
	Name        string    `json:"name"`
	ChangeCause string    `json:"changeCause,omitempty"`
	State       string    `json:"state,omitempty"`
	Created     time.Time `json:"created"`
}

// write prints the revisions, the oldest first.
func (o *history) write(template *v1alpha1.NamespaceTemplate, revisions []cluster.Revision, now time.Time) error {
	shown := make([]shownRevision, 0, len(revisions))
	for _, revision := range slices.Backward(revisions) {
		shown = append(shown, shownRevision{
			Template: template.Name, Revision: revision.Revision, Name: revision.Name,
			ChangeCause: revision.Annotations[v1alpha1.ChangeCauseAnnotation],
			State:       stateOf(template, revision.Name), Created: revision.CreationTimestamp.UTC(),
		})
	}
	return cli.PrintList(o.Session, &o.output, cli.Printed[shownRevision]{
		Kind: "RevisionList", Items: shown, Empty: "No rollout history found",
		Table: func(revisions []shownRevision) output.Table { return revisionTable(revisions, now) },
	})
}

func revisionTable(revisions []shownRevision, now time.Time) output.Table {
	table := output.Table{Columns: []string{"Revision", "Change-Cause", "State", "Age"}}
	for _, r := range revisions {
		table.Rows = append(table.Rows, []string{
			strconv.FormatInt(r.Revision, 10), cmp.Or(r.ChangeCause, "<none>"), cmp.Or(r.State, "<none>"),
			duration.HumanDuration(now.Sub(r.Created)),
		})
	}
	return table
}

// stateOf returns the state of the rollout of a revision, or "" if no namespace has the revision.
func stateOf(template *v1alpha1.NamespaceTemplate, revision string) string {
	for _, current := range template.Status.Revisions {
		if current.Name == revision {
			return string(current.State)
		}
	}
	return ""
}
