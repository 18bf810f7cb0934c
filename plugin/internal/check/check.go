// Package check is the command `kubectl nstpl check`.
//
// It reads facts from the cluster, each with one request, and judges them: every check is a function from facts to
// results. A fact that the user may not read makes the result of its checks unknown, and does not end the command.
package check

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/version"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// Values of Report.Checked.
const (
	beforeInstallation = "before"
	afterInstallation  = "after"
)

// exitFailures is the exit code if a check failed.
const exitFailures = 2

type check struct {
	cli.Session
	pre      bool
	output   cli.FormatFlag
	contexts cli.Contexts
}

// New returns the command `kubectl nstpl check`.
func New(s cli.Session) *cobra.Command {
	o := &check{Session: s}
	cmd := &cobra.Command{
		Use:   "check [--pre] [-o json|yaml] [--contexts=CONTEXT,...]",
		Short: "Check the installation, or whether nstpl can be installed",
		Long: templates.LongDesc(`
			Check the installation: its objects, versions, webhooks and certificates, and the namespaces, templates and
			other objects that need attention. In a cluster without nstpl, or with --pre, check whether nstpl can be
			installed: the version and the APIs of the cluster, your permissions, and what is in its way. Each
			problem has a remedy.

			The command changes nothing. It creates some objects by server dry runs, to see what admission answers.
			What you may not read is reported as unknown.

			With --contexts, the command checks several clusters at once. A cluster that does not answer within ten
			seconds, or within --request-timeout, is a note.

			Include the output of -o yaml in reports of bugs. It contains the names of some namespaces and objects, and
			messages of their conditions, but no contents of Secrets: read it before you publish it.

			Exit status:
			 0
			No check failed. There may be warnings, and checks whose result is unknown.
			 1
			The command failed, for example because a cluster cannot be reached, and no check failed.
			 2
			At least one check failed.`),
		Example: templates.Examples(`
			# Check the installation, or whether nstpl can be installed
			kubectl nstpl check

			# Check whether the cluster is ready for the manifests of this plugin's release
			kubectl nstpl check --pre

			# Check two clusters
			kubectl nstpl check --contexts=test,production

			# Print everything for the report of a bug
			kubectl nstpl check -o yaml`),
		Args:              cli.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&o.pre, "pre", false, "Check whether nstpl can be installed, also where it is installed.")
	o.contexts.AddTo(cmd, s)
	o.output.AddTo(cmd, "", "Output format", cli.FormatJSON, cli.FormatYAML)
	return cmd
}

func (o *check) run(ctx context.Context) error {
	read, failed := cli.Split(o.Session, cli.Ask(ctx, o.Session, o.contexts, o.check))
	var reports []Report
	isFailure := false
	for _, r := range read {
		if r.Value.Checked == beforeInstallation && !o.pre {
			r.Note("nstpl is not installed in this cluster: these are the checks before an installation")
		}
		reports, isFailure = append(reports, r.Value), isFailure || r.Value.Summary.Failures > 0
	}
	if len(reports) == 0 {
		return failed
	}
	if err := o.print(reports); err != nil {
		return err
	}
	if isFailure {
		return &cli.Exit{Code: exitFailures}
	}
	return failed
}

// check reads the facts and judges them.
func (o *check) check(ctx context.Context, in cli.Source) (Report, error) {
	defer in.Progress("checking the cluster")()
	c := in.Cluster
	server, err := c.Server(ctx)
	if err != nil {
		return Report{}, err
	}
	versions := Versions{
		Plugin: version.String(), GitCommit: version.Commit(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Server: server.Version,
	}
	var report Report
	isInstalled := !errors.Is(c.CheckInstalled(ctx), cluster.NotInstalledError{})
	if o.pre || !isInstalled {
		facts, err := readBefore(ctx, c, server)
		if err != nil {
			return Report{}, err
		}
		facts.isInstalled = isInstalled
		report = newReport(judgeBefore(&facts))
		report.Checked = beforeInstallation
	} else {
		facts, err := readAfter(ctx, c, server)
		if err != nil {
			return Report{}, err
		}
		report = newReport(judgeAfter(&facts))
		report.Checked = afterInstallation
		versions.Operator, versions.OperatorImage = facts.operatorVersion(), facts.image()
	}
	report.Context, report.Versions, report.Time = in.Context, versions, metav1.NewTime(server.Now.UTC())
	return report, ctx.Err()
}

// judgeBefore returns the results of the checks before an installation.
func judgeBefore(b *before) []Result {
	return slices.Concat(
		[]Result{checkServer(&b.common)}, checkAPIs(b), checkRights(b), checkDryRuns(b), checkLeftovers(b),
		checkOtherWebhooks(&b.common),
	)
}

// judgeAfter returns the results of the checks of an installation.
func judgeAfter(a *after) []Result {
	return slices.Concat(
		[]Result{checkServer(&a.common)}, checkDefinitions(a), checkObjects(a),
		[]Result{checkVersions(a), checkDeployment(a), checkLeader(a), checkConfigurations(a)},
		checkCertificates(a), checkEndpoints(a), checkCalls(a), []Result{checkNamespaceAdmission(a)},
		checkNamespaces(a), checkOwn(a), checkSync(a), checkOtherWebhooks(&a.common),
	)
}

// print writes reports in the format of the flag.
func (o *check) print(reports []Report) error {
	var list any = reports[0]
	if len(o.contexts) > 0 {
		list = output.NewList("CheckReportList", reports)
	}
	switch o.output.Format {
	case cli.FormatJSON:
		return output.JSON(o.Out, list)
	case cli.FormatYAML:
		return output.YAMLStream(o.Out, []any{list})
	}
	width := 0
	for i := range reports {
		width = max(width, len(reports[i].Context))
	}
	for i := range reports {
		reports[i].printText(o.ForContext(reports[i].Context), width)
	}
	for i := range reports {
		r := &reports[i]
		output.Line(o.Out, "%s%s: %s", cli.Prefix(r.Context), r.conclusion(), r.Summary)
	}
	return nil
}

// printText writes a line for each result, and one for each remedy. With --contexts, each line of a result begins with
// the context, in a column of the given width.
func (r *Report) printText(s cli.Session, width int) {
	words, column := wordsFor(s.Out), ""
	if width > 0 {
		column = fmt.Sprintf("%-*s  ", width, r.Context)
	}
	for i := range r.Results {
		result := &r.Results[i]
		mark := words[result.Status]
		output.Line(s.Out, "%s%s  %s", column, mark, s.Commands(result.Message))
		if result.Remedy != "" && isLastOf(r.Results, i) {
			output.Line(s.Out, "%*s  %s", len([]rune(column+mark)), "", s.Commands(result.Remedy))
		}
	}
}

// isLastOf reports whether the next result has another remedy. Several results with one cause have the same remedy.
func isLastOf(results []Result, i int) bool {
	return i+1 == len(results) || results[i+1].Remedy != results[i].Remedy
}

// conclusion returns what the results mean as a whole.
func (r *Report) conclusion() string {
	conclusions := map[string][3]string{
		beforeInstallation: {"nstpl cannot be installed yet", "not everything could be checked", "nstpl can be installed"},
		afterInstallation: {
			"the installation has problems", "not everything could be checked", "the installation is in order",
		},
	}[r.Checked]
	switch {
	case r.Summary.Failures > 0:
		return conclusions[0]
	case r.Summary.Unknown > 0:
		return conclusions[1]
	default:
		return conclusions[2]
	}
}
