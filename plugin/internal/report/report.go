// Package report holds the command report, which prints what an auditor asks about a cluster: which namespaces have
// which policies, what differs, who is opted out, who may what, and what waits to be deleted.
//
// The command lists everything once and computes one Report, a value. A writer prints it: as a page, JSON, CSV or
// JUnit.
package report

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/version"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// Values of --output in addition to JSON.
const (
	formatHTML  = "html"
	formatCSV   = "csv"
	formatJUnit = "junit"
)

type command struct {
	cli.Session
	namespaces cli.Selection
	format     cli.FormatFlag
	contexts   cli.Contexts
	// selection describes the selected namespaces.
	selection string
}

// New returns the command `kubectl nstpl report`.
func New(s cli.Session) *cobra.Command {
	o := &command{Session: s}
	cmd := &cobra.Command{
		Use:   "report [NAMESPACE... | -A | -l SELECTOR] -o html|json|csv|junit [--contexts=CONTEXT,...]",
		Short: "Print a report on namespaces and their policies, for audits",
		Long: templates.LongDesc(`
			Print a report on namespaces and their policies: failures and drift, the templates of each namespace, the
			quotas of policy spaces, opt-outs, who may change or bypass policies, and pending deletions. Without
			arguments, the report is on all namespaces.

			The format html is a page without references to other files, to look at in a browser or to send by mail.
			The format csv has a row for each finding, and one for each namespace without findings. The format junit
			has a test case for each namespace, which fails if the namespace is not populated or has drifted. The
			report says what you may not read. The exit code is 0 whether there are findings or not.

			With --contexts, the report is on several clusters: one page or table whose rows name their clusters, a test
			suite for each cluster, or a list of the reports in JSON. A cluster that does not answer within ten seconds,
			or within --request-timeout, is a note, and the exit code is 1.`),
		Example: templates.Examples(`
			# Write a page on all namespaces
			kubectl nstpl report -o html >report.html

			# Write a table of all findings for a spreadsheet
			kubectl nstpl report -o csv >report.csv

			# Write a page on two clusters
			kubectl nstpl report -o html --contexts=test,production >report.html

			# Write test results on the namespaces with a label, for a pipeline
			kubectl nstpl report -l tier=production -o junit >report.xml`),
		ValidArgsFunction: s.CompleteNamespaces(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.format.Format == "" {
				return cli.UsageError(cmd, errors.New("--output is required: one of html, json, csv, junit"))
			}
			if err := o.choose(cmd); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.namespaces.AddFlags(cmd)
	o.contexts.AddTo(cmd, s)
	s.AddChunkSizeFlag(cmd)
	o.format.AddTo(cmd, "", "Output format", formatHTML, cli.FormatJSON, formatCSV, formatJUnit)
	return cmd
}

// choose sets which namespaces are reported. The flag --namespace selects one, as an argument does.
func (o *command) choose(cmd *cobra.Command) error {
	if err := o.namespaces.SelectExplicit(o.Session); err != nil {
		return err
	}
	if o.namespaces.HasNames() {
		o.selection = "namespaces " + strings.Join(o.namespaces.Names, ", ")
	} else if selector := cmd.Flag("selector").Value.String(); selector != "" {
		o.selection = "namespaces with the labels " + selector
	}
	return nil
}

func (o *command) run(ctx context.Context) error {
	type result struct {
		Report
		forbidden []error
	}
	read, failed := cli.Split(o.Session, cli.Ask(ctx, o.Session, o.contexts,
		func(ctx context.Context, in cli.Source) (result, error) {
			one := *o
			one.Session = in.Session
			contents, forbidden, err := one.read(ctx, in.Cluster)
			if err != nil {
				return result{}, err
			}
			return result{compute(contents), forbidden}, nil
		}))
	var reports []Report
	var forbidden []error
	for _, r := range read {
		if o.format.Format == formatCSV || o.format.Format == formatJUnit {
			for _, note := range r.Value.Notes { // these formats have no place where a reader sees them
				r.Note("%s", note)
			}
		}
		reports = append(reports, r.Value.Report)
		for _, err := range r.Value.forbidden {
			if r.Context != "" {
				cli.NoteFailed(o.Session, r.Context, err)
				failed = &cli.Exit{Code: 1}
				continue
			}
			forbidden = append(forbidden, err)
		}
	}
	if len(reports) == 0 {
		return failed
	}
	return cmp.Or(errors.Join(o.write(reports), errors.Join(forbidden...)), failed)
}

// write writes reports in the format of the flag.
func (o *command) write(reports []Report) error {
	hasContexts := len(o.contexts) > 0
	if o.format.Format == cli.FormatJSON {
		if hasContexts {
			return output.JSON(o.Out, output.NewList(Kind+"List", reports))
		}
		return output.JSON(o.Out, reports[0])
	}
	for i := range reports {
		reports[i].selectCluster(o.Session)
	}
	switch o.format.Format {
	case formatCSV:
		return writeCSV(o.Out, reports, hasContexts)
	case formatJUnit:
		return writeJUnit(o.Out, reports, hasContexts)
	}
	return writeHTML(o.Out, reports)
}

// read reads the selected namespaces and everything else from the cluster. Forbidden holds an error for each namespace
// that the user may not read.
func (o *command) read(ctx context.Context, c *cluster.Cluster) (x contents, forbidden []error, err error) {
	defer o.Progress("reading namespaces and policies")()
	x = contents{versions: Versions{Plugin: version.String()}, selection: o.selection}
	user, err := c.Caller(ctx)
	if err != nil {
		return x, nil, err
	}
	server, err := c.Server(ctx)
	if err != nil {
		return x, nil, err
	}
	config, err := o.Config.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return x, nil, err
	}
	x.user, x.cluster = user.Name, cmp.Or(*o.Config.Context, config.CurrentContext)
	x.time, x.versions.Kubernetes = server.Now.UTC(), server.Version
	isEmpty := o.namespaces.IsEmpty()
	if x.namespaces, forbidden, err = o.namespaces.ReadOrCurrent(ctx, o.Session, c); err != nil {
		return x, nil, err
	}
	if isEmpty && o.namespaces.HasNames() {
		x.notes = append(x.notes, x.user+" may not list namespaces: the report is only on "+o.namespaces.Names[0])
	}
	in := ""
	if len(o.namespaces.Names) == 1 {
		in = o.namespaces.Names[0]
	}
	if err := x.readPolicies(ctx, c, in); err != nil {
		return x, nil, err
	}
	if err := x.readExemptions(ctx, c); err != nil {
		return x, nil, err
	}
	x.readRevisions(ctx, c)
	return x, forbidden, cmp.Or(x.readOperator(ctx, c), x.readSync(ctx, c))
}
