package namespace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
)

type create struct {
	cli.Session
	written     cli.Written
	labels      []string
	annotations []string
	space       spaceFlag
	optOut      bool
	wait        bool
	timeout     time.Duration
}

// NewCreate returns the command `kubectl nstpl create`.
func NewCreate(s cli.Session) *cobra.Command {
	o := &create{Session: s}
	cmd := &cobra.Command{
		Use: "create NAME [--space SPACE] [--label KEY=VALUE]... [--annotation KEY=VALUE]... [--opt-out] " +
			"[--dry-run=none|client|server]",
		Short: "Create a namespace and wait until it is populated",
		Long: templates.LongDesc(`
			Create a namespace and wait until the operator has populated it with all objects that templates declare
			for it. The command prints each object when it is populated, and in the end the objects that are
			missing and why.

			The command does not wait if no template matches the namespace. If you may not read the namespace until
			the timeout, the command prints a note and succeeds.

			With --output, standard output has only the namespace, as it was right after its creation.`),
		Example: templates.Examples(`
			# Create a namespace and wait until it is populated
			kubectl nstpl create team-a --label tier=production

			# Create a namespace in a policyspace, and wait until it has what it inherits
			kubectl nstpl create team-a --space payments

			# Check whether you may create a namespace, without creating it
			kubectl nstpl create team-a --dry-run=server -o yaml

			# Create a namespace that no template populates
			kubectl nstpl create scratch --opt-out`),
		Args:              cli.OneArg("NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: cli.NamespaceResource().Named(func(cmd *cobra.Command, name string) error {
			return o.run(cmd.Context(), name)
		}),
	}
	o.written.AddFlags(cmd)
	flags := cmd.Flags()
	flags.StringArrayVarP(&o.labels, "label", "l", nil, "A label of the namespace, as KEY=VALUE. Can be repeated.")
	flags.StringArrayVar(&o.annotations, "annotation", nil,
		"An annotation of the namespace, as KEY=VALUE. Can be repeated.")
	o.space.addTo(cmd, s)
	flags.BoolVar(&o.optOut, "opt-out", false, "Keep templates from populating the namespace.")
	flags.BoolVar(&o.wait, "wait", true, "Wait until the namespace is populated.")
	flags.DurationVar(&o.timeout, "timeout", time.Minute,
		"The length of time to wait before giving up. Zero means to wait forever.")
	return cmd
}

func (o *create) run(ctx context.Context, name string) error {
	ns, err := o.namespace(name)
	if err != nil {
		return err
	}
	if o.written.IsLocal() {
		return o.written.Print(o.Out, ns, "created")
	}
	c, err := o.Connect()
	if err != nil {
		return err
	}
	if err := c.CheckInstalled(ctx); err != nil {
		return fmt.Errorf("%w; 'kubectl create namespace %s' creates a namespace without policy objects", err, name)
	}
	if space := ns.Labels[v1alpha1.PolicySpaceLabel]; space != "" {
		if err := c.CheckPolicySpace(ctx, space); err != nil {
			return err
		}
	}
	options := metav1.CreateOptions{
		FieldManager: cli.FieldManager, FieldValidation: metav1.FieldValidationStrict, DryRun: o.written.DryRun(),
	}
	if ns, err = c.Namespaces.Create(ctx, ns, options); err != nil {
		return err
	}
	if err := o.written.Print(o.Out, ns, "created"); err != nil {
		return err
	}
	if !o.wait || o.written.IsDryRun() {
		return nil
	}
	progress := o.Out
	if o.written.HasFormat() {
		progress = o.ErrOut
	}
	return (&waiter{Session: o.Session, cluster: c, progress: progress, timeout: o.timeout}).run(ctx, ns)
}

// namespace returns the namespace that the command line describes.
func (o *create) namespace(name string) (*corev1.Namespace, error) {
	labels, labelsErr := parseLabels(o.labels)
	annotations, annotationsErr := parseAnnotations(o.annotations)
	if err := errors.Join(checkName(name), labelsErr, annotationsErr); err != nil {
		return nil, err
	}
	if err := o.space.setIn(labels); err != nil {
		return nil, err
	}
	if o.optOut {
		annotations[v1alpha1.OptOutAnnotation] = "true"
	}
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations},
	}, nil
}
