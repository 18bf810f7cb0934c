package namespace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// checkList checks the command line with --list, and sets the namespace whose exemptions to list.
func (o *exempt) checkList(cmd *cobra.Command, args []string) error {
	if o.template != "" || len(o.objects) > 0 || o.reason != "" || o.length != "" || o.expires != "" || o.force {
		return cli.UsageError(cmd, errors.New("--list can only be combined with a namespace"))
	}
	scope := "-A"
	if name, isExplicit, err := o.Namespace(); err != nil {
		return err
	} else if isExplicit {
		o.listed = name
	}
	if len(args) > 0 {
		name, err := cli.NamespaceResource().Name(args[0])
		if err != nil {
			return cli.UsageError(cmd, err)
		}
		o.listed = name
	}
	if o.listed != corev1.NamespaceAll {
		scope = "-n " + o.listed
	}
	if o.written.HasFormat() {
		return cli.UsageError(cmd, fmt.Errorf("--list prints a table: for other formats, run 'kubectl get "+
			"templateexemptions %s'", scope))
	}
	return nil
}

func (o *exempt) runList(ctx context.Context) error {
	c, err := o.Connect()
	if err != nil {
		return err
	}
	all, err := c.ExemptionsIn(ctx, o.listed)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		o.Note("No resources found")
		return nil
	}
	return exemptionsTable(all, time.Now()).Print(o.Out, false)
}

// exemptionsTable returns the table of exemptions, in the order of their namespaces, templates and names.
func exemptionsTable(all []*v1alpha1.TemplateExemption, now time.Time) output.Table {
	slices.SortFunc(all, func(a, b *v1alpha1.TemplateExemption) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Spec.Template, b.Spec.Template),
			strings.Compare(a.Name, b.Name))
	})
	table := output.Table{Columns: []string{"Namespace", "Name", "Template", "Objects", "Expires", "Reason"}}
	for _, exemption := range all {
		expires := "<none>"
		if end := exemption.Spec.Expires; end != nil {
			expires = end.UTC().Format(time.RFC3339)
			if !end.After(now) {
				expires += " (expired)"
			}
		}
		table.Rows = append(table.Rows, []string{
			exemption.Namespace, exemption.Name, exemption.Spec.Template, match.ObjectList(&exemption.Spec), expires,
			exemption.Spec.Reason,
		})
	}
	return table
}
