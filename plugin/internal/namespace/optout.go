package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

type optOut struct {
	cli.Session
	written cli.Written
	// templates are the templates to opt out of, or none for all templates.
	templates []string
	undo      bool
}

// NewOptOut returns the command `kubectl nstpl opt-out`.
func NewOptOut(s cli.Session) *cobra.Command {
	o := &optOut{Session: s}
	cmd := &cobra.Command{
		Use:   "opt-out NAMESPACE... [--template TEMPLATE]... [--undo] [--dry-run=none|client|server]",
		Short: "Keep templates from populating namespaces",
		Long: templates.LongDesc(`
			Keep templates from populating namespaces: all templates or, with --template, some of them. The objects
			that were populated before stay, but the operator no longer corrects drift in them. With --undo, the
			templates populate the namespaces again.`),
		Example: templates.Examples(`
			# Keep templates from populating the namespace
			kubectl nstpl opt-out scratch

			# Keep only the template budget from populating it
			kubectl nstpl opt-out scratch --template budget

			# Let templates populate the namespace again
			kubectl nstpl opt-out scratch --undo`),
		ValidArgsFunction: s.CompleteNamespaces(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.UsageError(cmd, errors.New("at least one NAMESPACE is required"))
			}
			names, err := cli.NamespaceResource().Names(args)
			if err != nil {
				return cli.UsageError(cmd, err)
			}
			if o.templates, err = cli.TemplateResource("").Names(o.templates); err != nil {
				return cli.UsageError(cmd, fmt.Errorf("--template: %w", err))
			}
			return o.run(cmd.Context(), names)
		},
	}
	o.written.AddFlags(cmd)
	cmd.Flags().StringArrayVar(&o.templates, "template", nil,
		"Opt out of this template only, instead of all. Can be repeated.")
	cmd.Flags().BoolVar(&o.undo, "undo", false, "Let templates populate the namespaces again.")
	s.CompleteObjectFlag(cmd, "template", v1alpha1.NamespaceTemplates)
	return cmd
}

// run opts the namespaces out or in. It continues after an error, since the namespaces do not depend on each other.
func (o *optOut) run(ctx context.Context, names []string) error {
	c, err := o.Connect()
	if err != nil {
		return err
	}
	if err := c.CheckInstalled(ctx); err != nil {
		return err
	}
	if err := o.checkTemplates(ctx, c); err != nil {
		return err
	}
	var errs []error
	count := 0
	for _, name := range names {
		ns, changed, err := o.change(ctx, c, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if changed {
			count++
		}
		errs = append(errs, o.printResult(ns, changed))
	}
	if count > 0 && !o.undo {
		const kept = "objects that were populated before are kept unchanged"
		if len(o.templates) == 0 {
			o.Note(kept)
		} else {
			o.Note(kept + ", unless another template declares them")
		}
	}
	return errors.Join(errs...)
}

// checkTemplates returns an error if a template to opt out of does not exist. The name may be misspelt.
func (o *optOut) checkTemplates(ctx context.Context, c *cluster.Cluster) error {
	if o.undo {
		return nil
	}
	var errs []error
	for _, name := range o.templates {
		if _, err := c.Template(ctx, name); apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// annotation returns the value of the opt-out annotation that a namespace should have, or "" for none.
func (o *optOut) annotation(ns *corev1.Namespace) (string, error) {
	names := match.OptedOutTemplates(ns)
	switch {
	case len(o.templates) == 0 && o.undo:
		return "", nil
	case len(o.templates) == 0, match.OptedOut(ns) && !o.undo:
		return "true", nil
	case match.OptedOut(ns):
		return "", fmt.Errorf("namespace/%s is opted out of all templates: leave out --template to opt it in", ns.Name)
	case o.undo:
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(o.templates, name) })
	default:
		names = append(names, o.templates...)
		slices.Sort(names)
		names = slices.Compact(names)
	}
	value := strings.Join(names, ",")
	if value == "true" || value == "false" {
		value += "," // the name of a template, not a value for all templates
	}
	return value, nil
}

// change sets or removes the opt-out annotation of a namespace. It returns the resulting namespace and whether this
// changed it. With --dry-run, changed reports whether it would change.
func (o *optOut) change(
	ctx context.Context, c *cluster.Cluster, name string,
) (ns *corev1.Namespace, changed bool, err error) {
	ns, err = c.Namespace(ctx, name)
	if err != nil {
		return ns, false, err
	}
	wanted, err := o.annotation(ns)
	if err != nil {
		return ns, false, err
	}
	if now := ns.Annotations[v1alpha1.OptOutAnnotation]; now == wanted || now == "false" && wanted == "" {
		return ns, false, nil
	}
	ns, err = annotate(ctx, c, &o.written, ns, v1alpha1.OptOutAnnotation, wanted)
	return ns, true, err
}

func (o *optOut) printResult(ns *corev1.Namespace, changed bool) error {
	operation := "opted out"
	if o.undo {
		operation = "opted in"
	}
	if len(o.templates) > 0 {
		operation += map[bool]string{false: " of ", true: " to "}[o.undo] + strings.Join(o.templates, ", ")
	}
	if !changed {
		operation = "already " + operation
	}
	return o.written.Print(o.Out, ns, operation)
}
