// Package diff holds the command diff, which shows how the cluster differs from what is declared for it.
//
// It has two halves. Without --tree it compares namespaces with templates: package survey computes what the operator
// would do, a report sorts that, and a table, JSON or a unified diff shows it. With --tree it compares the objects that
// a tree of policies is compiled to with those in the cluster (treeChange), and then asks the same survey what the
// operator would delete in the tree's namespaces once the tree was applied (appliedTree).
//
// The unified diff is made by the program that kubectl diff would run, on two folders of files. Values of Secrets are
// masked before they are written there.
package diff

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// exitDifferent is the exit code of diff where it found differences. Where it failed, that is cli.ExitFailed: as with
// diff(1).
const exitDifferent = 1

type diff struct {
	cli.Session
	namespaces cli.Selection
	template   string
	files      []string
	tree       string
	output     cli.FormatFlag
	verify     bool
}

// New returns the command `kubectl nstpl diff`.
func New(s cli.Session) *cobra.Command {
	d := &diff{Session: s}
	cmd := &cobra.Command{
		Use:   "diff [NAMESPACE... | -A | -l SELECTOR | --tree DIR] [--template TEMPLATE] [-f FILE]... [--verify] [-o table|json]",
		Short: "Show what differs from what templates declare",
		Long: templates.LongDesc(`
			Show how objects in namespaces differ from what templates declare for them: what the operator would
			create, configure or prune, and what drifted and is left so by driftPolicy Report. Without arguments it
			is about the current namespace; with -f, about all.

			With -f the templates in the files stand in for the cluster's of the same names: the difference is what
			applying the files would do.

			With --tree it compares the tree of policies in a folder with the cluster: what "kubectl nstpl hydrate"
			prints with what is there, and what is there of the tree and no longer in the folder. Namespaces that
			would be deleted come first. It lists every object that the operator would delete in the tree's
			namespaces. A namespace that existed before the tree is left alone: what would be deleted in it by
			"kubectl nstpl hydrate --adopt" is listed as "delete if adopted". It lists what another tree would leave
			behind if all its namespaces moved to this one, as when the root is renamed.

			Drift is found by managedFields, in which the API server records who changed a field. With --verify it
			also compares the contents of the objects that are unchanged by this record. Use it when managedFields
			may have been manipulated. It reads every populated object and asks the API server, by a dry run, what
			applying the declaration would change. Where you may not patch the object, contents are compared as far
			as possible without that.

			A field that no template declares is no difference. The values of Secrets are masked. The program that
			shows the differences is diff, or what KUBECTL_EXTERNAL_DIFF says, as with kubectl diff. The reasons are
			on standard error.

			What you may not read is said to be unknown and never taken for absent. What the API server refuses to
			try out for you is estimated, and that is said.

			Exit status:
			 0
			No differences were found.
			 1
			Differences were found.
			 2
			The command failed, or there is no difference among what could be read, but not everything could.`),
		Example: templates.Examples(`
			# What differs in the current namespace
			kubectl nstpl diff

			# A drift report on all namespaces
			kubectl nstpl diff -A -o table

			# A drift report that does not rely on managedFields
			kubectl nstpl diff -A --verify -o table

			# What applying a changed template would do to all namespaces
			kubectl nstpl diff -f template.yaml

			# What bringing the cluster to a tree would do
			kubectl nstpl diff --tree foo-corp`),
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     s.CompleteNamespaces(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.namespaces.Names = args
			if err := d.check(cmd); err != nil {
				return cli.Failed(err)
			}
			run := d.run
			if d.tree != "" {
				run = d.runTree
			}
			different, err := run(cmd.Context())
			switch {
			case err != nil:
				return cli.Failed(err)
			case different:
				return &cli.Exit{Code: exitDifferent}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return cli.Failed(cli.UsageError(cmd, err)) })
	d.namespaces.AddFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&d.template, "template", "", "Only the objects of this template.")
	flags.StringArrayVarP(&d.files, "filename", "f", nil,
		"A file or folder with templates, or - for standard input. Symbolic links are not followed.")
	flags.StringVar(&d.tree, "tree", "", "A folder with a tree of policies, to compare with the cluster.")
	flags.BoolVar(&d.verify, "verify", false,
		"Compare the contents of all populated objects, whatever their managedFields say.")
	d.output.AddTo(cmd, "", "Output format, in place of a unified diff", cli.FormatTable, cli.FormatJSON)
	s.CompleteTemplateFlag(cmd, "template")
	return cmd
}

func (d *diff) check(cmd *cobra.Command) error {
	if err := d.output.Check(cmd); err != nil {
		return err
	}
	if d.tree != "" && (!d.namespaces.IsEmpty() || d.template != "" || len(d.files) > 0 || d.verify) {
		return cli.UsageError(cmd,
			errors.New("--tree is about the whole tree: leave out namespaces, -A, -l, --template, --verify and -f"))
	}
	return d.namespaces.Check(cmd)
}

// run compares namespaces with templates. It is an error if nothing differs, but not everything could be compared.
func (d *diff) run(ctx context.Context) (different bool, err error) {
	if err := d.setDefaultScope(); err != nil {
		return false, err
	}
	c, err := d.Connect()
	if err != nil {
		return false, err
	}
	report, err := d.compare(ctx, c)
	if err != nil {
		return false, err
	}
	if err := d.write(ctx, c, report); err != nil {
		return false, err
	}
	if report.Different == 0 && !report.isComplete() {
		return false, errors.New("nothing differs in what could be compared, but not everything could be: see above")
	}
	return report.Different > 0, nil
}

func (d *diff) compare(ctx context.Context, c *cluster.Cluster) (*report, error) {
	defer d.Progress("comparing namespaces with templates")()
	templates, err := d.Templates(ctx, c, d.files)
	if err != nil {
		return nil, err
	}
	index := match.NewIndex(templates...)
	if d.template != "" && index.Get(d.template) == nil {
		return nil, fmt.Errorf("there is no template %s: kubectl get namespacetemplates lists them", d.template)
	}
	namespaces, unread, err := d.namespaces.Read(ctx, c)
	if err != nil {
		return nil, err
	}
	compared, err := survey.Compare(ctx, c, index, namespaces,
		survey.Scope{AllNamespaces: !d.namespaces.HasNames(), Template: d.template})
	if err != nil {
		return nil, err
	}
	for _, unreadable := range compared.Unreadable {
		unread = append(unread, unreadable)
	}
	if !d.verify {
		return newReport(compared.Namespaces(), unread), nil
	}
	verifier := survey.Verifier{Cluster: c}
	report := newReport(verifier.Namespaces(ctx, compared.Namespaces()), unread)
	for _, err := range verifier.Unverified {
		report.Unknown = append(report.Unknown, err.Error())
	}
	return report, nil
}

func (d *diff) write(ctx context.Context, c *cluster.Cluster, report *report) error {
	report.noteSummary(d.Session)
	switch d.output.Format {
	case cli.FormatTable:
		return report.table().Print(d.Out, false)
	case cli.FormatJSON:
		return output.JSON(d.Out, report)
	}
	report.noteDifferences(d.Session)
	return d.showUnified(ctx, c, report)
}

// setDefaultScope selects the current namespace if the command line selects none. With files, all namespaces stay
// selected.
func (d *diff) setDefaultScope() error {
	if !d.namespaces.IsEmpty() || len(d.files) > 0 {
		return nil
	}
	current, _, err := d.Namespace()
	d.namespaces.Names = []string{current}
	return err
}
