package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

type transfer struct {
	cli.Session
	written cli.Written
	to      string
}

// NewTransfer returns the command `kubectl nstpl transfer`.
func NewTransfer(s cli.Session) *cobra.Command {
	o := &transfer{Session: s}
	cmd := &cobra.Command{
		Use:   "transfer NAMESPACE --to USER [--dry-run=none|client|server]",
		Short: "Make another user the creator of a namespace",
		Long: templates.LongDesc(`
			Make another user the creator of a namespace, and show which objects change: those in which templates name
			the creator. The user gets what templates give to creators there, and the former creator loses it. Objects
			that no template declares stay as they are.

			You need the verb set-creator on namespacetemplates. The user is a name as the API server knows it, such as
			jane@example.com or system:serviceaccount:ci:deployer. Whether such a user exists is not checked.`),
		Example: templates.Examples(`
			# Hand a namespace over
			kubectl nstpl transfer team-a --to jane@example.com

			# Show what would change
			kubectl nstpl transfer team-a --to jane@example.com --dry-run=client`),
		Args:              cli.OneArg("NAMESPACE"),
		ValidArgsFunction: s.CompleteNamespaces(1),
		RunE: cli.NamespaceResource().Named(func(cmd *cobra.Command, name string) error {
			if o.to == "" {
				return cli.UsageError(cmd, errors.New("--to is required"))
			}
			return o.run(cmd.Context(), name)
		}),
	}
	o.written.AddFlags(cmd)
	cmd.Flags().StringVar(&o.to, "to", "", "The user who becomes the creator of the namespace.")
	return cmd
}

func (o *transfer) run(ctx context.Context, name string) error {
	c, err := o.Connect()
	if err != nil {
		return err
	}
	if err := c.CheckInstalled(ctx); err != nil {
		return err
	}
	ns, err := c.Namespaces.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	from := ns.Annotations[v1alpha1.CreatorAnnotation]
	if from == o.to {
		return o.written.Print(o.Out, ns, "already transferred")
	}
	o.noteChanges(ctx, ns)
	changed, err := annotate(ctx, c, &o.written, ns, v1alpha1.CreatorAnnotation, o.to)
	if err != nil {
		return err
	}
	// Admission keeps the former creator, without an error, if the user lacks the verb.
	if changed.Annotations[v1alpha1.CreatorAnnotation] != o.to {
		return fmt.Errorf("namespace/%s was not transferred: you need the verb set-creator on namespacetemplates "+
			"in the API group policy.nstpl.dev", ns.Name)
	}
	return o.written.Print(o.Out, changed, "transferred")
}

// noteChanges prints which objects change with the creator. It omits what the operator would change anyway, and drift
// that it only reports.
func (o *transfer) noteChanges(ctx context.Context, ns *corev1.Namespace) {
	changes, skipped, isKnown, err := o.changes(ctx, ns)
	switch {
	case err != nil:
		o.Note("which objects change is unknown: %v", err)
		return
	case skipped != "":
		o.Note("no object changes: namespace/%s is not populated: %s", ns.Name, skipped)
		return
	}
	for _, change := range changes {
		o.Note("%s", output.Change(change))
	}
	switch {
	case len(changes) > 0:
	case isKnown:
		o.Note("no object changes in namespace/%s", ns.Name)
	default:
		o.Note("no known object changes in namespace/%s", ns.Name)
	}
}

// changes returns what the operator would change only because of the new creator, or why it populates nothing.
// isKnown is false if a revision or the exemptions cannot be read, so that the namespace may have other declarations.
func (o *transfer) changes(
	ctx context.Context, ns *corev1.Namespace,
) (changes []populate.Change, skipped string, isKnown bool, err error) {
	_, reader, err := (&preview{Session: o.Session}).connect(ctx)
	if err != nil {
		return nil, "", false, err
	}
	templates, err := reader.Templates(ctx)
	if apierrors.IsForbidden(err) {
		return nil, "", false, errUnlisted
	}
	if err != nil {
		return nil, "", false, err
	}
	if ns, err = withSpaceLabels(ctx, o.Session, reader, ns); err != nil {
		return nil, "", false, err
	}
	index, unread := reader.Index(ctx, templates, []*corev1.Namespace{ns})
	for _, err := range unread {
		o.Note("%v", err)
	}
	transferred := ns.DeepCopy()
	metav1.SetMetaDataAnnotation(&transferred.ObjectMeta, v1alpha1.CreatorAnnotation, o.to)
	compared, err := survey.Compare(ctx, reader, index, []*corev1.Namespace{ns, transferred}, survey.Scope{})
	if err != nil {
		return nil, "", false, err
	}
	for _, unreadable := range compared.Unreadable {
		o.Note("not compared: %v", unreadable)
	}
	planned := slices.Collect(compared.Namespaces(ctx))
	if err := ctx.Err(); err != nil {
		return nil, "", false, err
	}
	changes = slices.DeleteFunc(survey.Except(planned[1].Changes, planned[0].Changes), func(c populate.Change) bool {
		return c.Action == populate.Unchanged
	})
	return changes, planned[1].Skipped, len(unread) == 0, nil
}
