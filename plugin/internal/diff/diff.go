// Package diff holds the command diff, which shows how the cluster differs from what is declared for it.
//
// The command has two modes. Without --tree, it compares namespaces with templates: package survey computes what the
// operator would do. Then dry runs (trial) return the fields that would change, and a report shows them as a table,
// JSON or a unified diff, in which a group is the same change in several namespaces. With --tree, it compares the
// objects of a compiled tree of policies with those in the cluster (treeChange). Then it uses package survey to compute
// which objects the operator would delete in the tree's namespaces after the tree was applied (appliedTree).
//
// For the unified diff, the command writes the objects to two directories and runs the program that "kubectl diff"
// would run. It masks the values of Secrets before it writes them.
package diff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/source"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// exitDifferent is the exit code if there are differences. If the command failed, the exit code is cli.ExitFailed. Both
// are those of diff(1).
const exitDifferent = 1

// notCorrected is what a missing operator means for differences.
const notCorrected = "no difference is recorded or corrected meanwhile"

var errIncomplete = errors.New("no differences found, but not everything could be compared: see the notes above")

type diff struct {
	cli.Session
	namespaces cli.Selection
	template   string
	files      source.Filenames
	deleted    []string
	disabled   []string
	tree       string
	output     cli.ListFlags
	verify     bool
	full       bool
	contexts   cli.Contexts
	// templates are those in the files.
	templates []*v1alpha1.NamespaceTemplate
}

// New returns the command `kubectl nstpl diff`.
func New(s cli.Session) *cobra.Command {
	d := &diff{Session: s}
	cmd := &cobra.Command{
		Use: "diff [NAMESPACE... | -A | -l SELECTOR | --tree DIR] [--template TEMPLATE] [-f FILE]... [-R] [-k DIR] " +
			"[--delete TEMPLATE]... [--disable TEMPLATE]... [--verify] [--full] " +
			"[-o table|name|json|yaml|...] [--contexts=CONTEXT,...]",
		Short: "Show the differences between objects and their templates",
		Long: templates.LongDesc(`
			Show how the objects in namespaces differ from what templates declare. The differences are the objects
			that the operator would create, configure or prune, and the drift that driftPolicy Report keeps. Without
			arguments, the command compares the namespace of -n or the current one; with -f, --delete or --disable, the
			namespace of -n or all namespaces.

			If several namespaces have the same change, the command prints it once, with the number and the names of
			the namespaces, and shows one of them in full as an example. With --full, it shows every namespace in
			full. Dry runs are sent for one of the objects with the same content; with --full, for every object.

			Namespaces that are not populated are not compared. Neither they nor the objects that the operator leaves
			alone are differences. The command lists them for the namespaces that you name, and their number for all
			others, unless you use --full.

			With -f, a template in a file replaces the template of the same name in the cluster. The command then
			shows what would change if you applied the files. If another client disabled the template in the cluster or
			paused its rollout, a note on standard error says that it stays so. If the API server rejects the dry run of
			an object, so that the operator could not apply it, a note has the reason.

			With --delete or --disable, the command shows only what would change if you deleted or disabled a
			template: the objects that would be pruned, the objects that would stay, and the objects that another
			template would then declare.

			With --tree, the command compares the tree of policies in a directory with the cluster: it shows what
			would change if you applied the output of "kubectl nstpl hydrate" and pruned the objects that are no
			longer in the tree. Namespaces that would be deleted come first. The command also lists every object
			that the operator would delete in the tree's namespaces. The tree does not change a namespace that
			existed before it. An object that "kubectl nstpl hydrate --adopt" would delete in such a namespace has
			the action "delete if adopted". If all namespaces of another tree move to this tree, as when you rename
			the root, the command also lists the remaining objects of the other tree. If a PolicyRepository follows
			the tree, the command shows what nstpl-sync would do with its namespaces: nstpl-sync adopts existing ones if
			the PolicyRepository says so, and leaves labels that templates set. The command does not know which objects
			nstpl-sync created, since it deletes no others, and whether deletions would wait for a confirmation.

			The command detects drift by managedFields, in which the API server records who changed a field. With
			--verify, it also compares the contents of objects without such drift, in case their managedFields were
			manipulated. It reads every populated object and sends a dry run for it. If you may not patch an
			object, it compares the contents as far as possible without a dry run.

			With --contexts, the command compares several clusters at once, and prints one table of their differences
			instead of a unified diff. A cluster that does not answer within ten seconds, or within
			--request-timeout, is a note.

			Fields that no template declares are ignored. The values of Secrets are masked. The command runs the
			program diff, or the program in KUBECTL_EXTERNAL_DIFF, as "kubectl diff" does. Standard error has the
			reasons for the differences.

			Objects that you may not read are shown as unknown, and not as absent. If you may not send a dry run, the
			difference is an estimate, and a note on standard error names the object.

			If you may not read templates, as the owner of a namespace, the command shows the differences that the
			operator recorded: those in the Populated condition of the namespace, and those that the managedFields of
			populated objects show.

			With -o json or -o yaml, the output is a DiffReport with an item for each object that is not as declared.
			Its action is Create, Adopt (the object exists and is not managed by nstpl yet), Configure, Replace (the
			object cannot be updated in place), Prune (it is no longer declared), Delete (no template declares it, and a
			template is authoritative for its kind), Empty (it is being deleted and must not grant rights), Keep
			(it is no longer declared, and is protected from deletion), LeaveAlone or Unknown. With --tree, the output
			is a TreeDiffReport, and the action of an object can also be DeleteIfAdopted.

			Exit status:
			 0
			No differences were found.
			 1
			Differences were found.
			 2
			The command failed, for example because no namespace matches -l, or it found no differences but could not
			compare everything, such as a namespace that you named and that is not populated. With --contexts, also if
			a cluster could not be read. A cluster in which no namespace matches -l is a note, as long as one matches
			in another cluster.`),
		Example: templates.Examples(`
			# Show the differences in the current namespace
			kubectl nstpl diff

			# Report the drift in all namespaces
			kubectl nstpl diff -A -o table

			# Report the drift in all namespaces without relying on managedFields
			kubectl nstpl diff -A --verify -o table

			# Report the drift in two clusters
			kubectl nstpl diff -A --contexts=test,production

			# Show what applying a changed template would do in all namespaces
			kubectl nstpl diff -f template.yaml

			# Show what deleting a template would do in all namespaces
			kubectl nstpl diff --delete team-defaults

			# Show what applying a tree of policies would do
			kubectl nstpl diff --tree foo-corp`),
		ValidArgsFunction: s.CompleteNamespaces(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
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
	flags.StringVar(&d.template, "template", "", "Compare only the objects of this template.")
	d.files.AddFlags(cmd, "templates")
	flags.StringVar(&d.tree, "tree", "", "A directory with a tree of policies, to compare with the cluster.")
	flags.BoolVar(&d.verify, "verify", false,
		"Compare the contents of all populated objects, without relying on their managedFields.")
	flags.StringArrayVar(&d.deleted, "delete", nil, "Show what would change if you deleted this template.")
	flags.StringArrayVar(&d.disabled, "disable", nil, "Show what would change if you disabled this template.")
	flags.BoolVar(&d.full, "full", false,
		"Show every namespace in full, also if several namespaces have the same change, and all that is not compared.")
	d.contexts.AddTo(cmd, s)
	s.AddChunkSizeFlag(cmd)
	d.output.AddTo(cmd, cli.ListOptions{Names: true, Formats: []string{cli.FormatTable}})
	cmd.Flag("output").Usage = "Output format, instead of a unified diff." +
		strings.TrimPrefix(cmd.Flag("output").Usage, "Output format.")
	for _, flag := range []string{"template", "delete", "disable"} {
		s.CompleteObjectFlag(cmd, flag, v1alpha1.NamespaceTemplates)
	}
	return cmd
}

func (d *diff) check(cmd *cobra.Command) error {
	if err := d.files.Check(); err != nil {
		return cli.UsageError(cmd, err)
	}
	switch {
	case d.tree != "" && (!d.namespaces.IsEmpty() || d.template != "" || !d.files.IsEmpty() || d.verify || d.full ||
		d.removes() || len(d.contexts) > 0):
		return cli.UsageError(cmd, errors.New("--tree cannot be combined with namespaces, -A, -l, --template, "+
			"--delete, --disable, --verify, --full, --contexts, -f or -k"))
	case d.removes() && (d.template != "" || d.verify):
		return cli.UsageError(cmd,
			errors.New("--delete and --disable cannot be combined with --template or --verify"))
	}
	if len(d.contexts) > 0 && d.output.Format == "" {
		d.output.Format = cli.FormatTable
	}
	return nil
}

// run compares namespaces with templates. It returns an error if there are no differences, but not everything could be
// compared.
func (d *diff) run(ctx context.Context) (different bool, err error) {
	selected := d.namespaces
	if err := d.setDefaultScope(); err != nil {
		return false, err
	}
	// Standard input can be read only once.
	if d.templates, err = d.TemplateFiles(d.files); err != nil {
		return false, err
	}
	replies := cli.Ask(ctx, d.Session, d.contexts, func(ctx context.Context, in cli.Source) (*report, error) {
		one := *d
		one.Session, one.namespaces = in.Session, selected // each context has a namespace of its own
		if err := one.setDefaultScope(); err != nil {
			return nil, err
		}
		return one.report(ctx, in.Cluster)
	})
	noteUnmatched(replies)
	read, failed := cli.Split(d.Session, replies)
	all := merge(replies)
	if all == nil {
		return false, failed
	}
	noteUnknown(replies)
	if err := d.write(ctx, replies[0].Cluster, all); err != nil {
		failed = errors.Join(failed, err)
	}
	if failed != nil {
		return false, failed
	}
	isOld := false
	for _, r := range read {
		isMissing := r.NoteMissingOperator(ctx, r.Cluster, notCorrected)
		isOld = isOld || isMissing && r.Value != nil && r.Value.isRecorded
	}
	different = all.Summary.DifferentObjects > 0
	if !different && (isOld || !all.isComplete() || d.namespaces.HasNames() && len(all.NotPopulated) > 0) {
		return false, errIncomplete
	}
	return different, nil
}

// report returns the report on a cluster. With an error, it is nil or has what could be compared.
func (d *diff) report(ctx context.Context, c *cluster.Cluster) (*report, error) {
	compared, report, err := d.compare(ctx, c)
	if isForbiddenTemplates(err) {
		return d.readRecorded(ctx, c, err)
	}
	if err != nil {
		return nil, err
	}
	return report, d.resolve(ctx, c, compared, report)
}

// compare returns the observed objects, and a report without the contents of objects.
func (d *diff) compare(ctx context.Context, c *cluster.Cluster) (*survey.Survey, *report, error) {
	defer d.Progress("comparing namespaces with templates")()
	templates, namespaces, readErrs, err := d.read(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	before, unread := c.Index(ctx, templates, namespaces)
	for _, err := range unread {
		if _, isAboutExemptions := errors.AsType[cluster.UnreadExemptionsError](err); isAboutExemptions {
			d.Note("%v", err) // all objects are compared
			continue
		}
		readErrs = append(readErrs, err)
	}
	for _, name := range slices.Concat(d.deleted, d.disabled, []string{d.template}) {
		if name != "" && before.Get(name) == nil {
			return nil, nil, fmt.Errorf(
				"namespacetemplates %q not found: run 'kubectl get namespacetemplates' to list them", name)
		}
	}
	after := before
	var gone []*v1alpha1.NamespaceTemplate
	if d.removes() {
		var remaining []*v1alpha1.NamespaceTemplate
		remaining, gone = d.withoutRemoved(templates)
		after, _ = c.IndexWithoutExemptions(ctx, remaining, namespaces)
		after.CopyExemptions(before)
	}
	d.noteRollouts(after, namespaces)
	if !d.removes() {
		for _, note := range slices.Concat(
			survey.Idle(after, namespaces), survey.Delays(after, namespaces, d.template),
		) {
			d.Note("%s", note)
		}
	}
	d.noteExemptions(after, namespaces)
	compared, err := survey.Compare(ctx, c, after, namespaces,
		survey.Scope{
			AllNamespaces: !d.namespaces.HasNames(), Template: d.template, OmitUnchanged: !d.verify && !d.removes(),
			Gone: gone,
		})
	if err != nil {
		return nil, nil, err
	}
	for _, unreadable := range compared.Unreadable {
		readErrs = append(readErrs, unreadable)
	}
	isOfSpace := d.template == "" || populate.SelectsByDepth(before.Get(d.template).Spec.Namespaces.LabelSelector)
	if isOfSpace && !d.removes() { // what is removed is known in each namespace
		readErrs = append(readErrs, misplaced(namespaces)...)
	}
	planned, verifier := compared.Namespaces(ctx), survey.Verifier{Cluster: c}
	switch {
	case d.removes():
		planned = compared.Effects(ctx, before)
	case d.verify:
		planned = verifier.Namespaces(ctx, planned)
	}
	report := newReport(planned, readErrs)
	report.nameOrphaned(gone)
	for _, err := range verifier.Unverified {
		report.Unknown = append(report.Unknown, err.Error())
	}
	return compared, report, ctx.Err()
}

// read reads the templates and the namespaces at once. The errors are those of namespaces that the user may not read.
func (d *diff) read(
	ctx context.Context, c *cluster.Cluster,
) (templates []*v1alpha1.NamespaceTemplate, namespaces []*corev1.Namespace, forbidden []error, err error) {
	var reading sync.WaitGroup
	var ofTemplates, ofNamespaces error
	var stored []*v1alpha1.NamespaceTemplate
	reading.Go(func() { templates, stored, ofTemplates = cli.WithFiles(ctx, c, d.templates) })
	reading.Go(func() { namespaces, forbidden, ofNamespaces = d.namespaces.ReadSome(ctx, c) })
	reading.Wait()
	d.noteKept(stored)
	if apierrors.IsForbidden(ofTemplates) {
		ofTemplates = forbiddenTemplates{ofTemplates}
	}
	return templates, namespaces, forbidden, cmp.Or(ofTemplates, ofNamespaces)
}

// misplaced returns an error for each namespace without the labels of its policy space. The templates of the policy
// space do not select it, and what they would change or delete in it is unknown.
func misplaced(namespaces []*corev1.Namespace) (errs []error) {
	for _, ns := range namespaces {
		if reported := populate.PopulatedCondition(ns); reported != nil && populate.IsMisplacement(reported.Reason) {
			errs = append(errs,
				fmt.Errorf("namespace/%s with the templates of its policy space: %s", ns.Name, reported.Message))
		}
	}
	return errs
}

// noteRollouts prints how many namespaces are compared with an earlier revision of a template, and with which templates
// they are compared as they were before their last change.
func (d *diff) noteRollouts(index *match.Index, namespaces []*corev1.Namespace) {
	for _, name := range survey.NotAccepted(index, namespaces) {
		d.Note("template %s was changed, and the operator has not accepted the change: compared with revision %d, which "+
			"stays in force meanwhile ('kubectl nstpl why namespacetemplate/%[1]s' says why)", name,
			index.Layers(name)[0].Revision)
	}
	ahead := map[string]int{}
	for _, ns := range namespaces {
		for _, template := range index.Ahead(ns) {
			ahead[template.Name]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ahead)) {
		d.Note("revision %d of template %s has not reached %s yet: compared with what the rollout has left there",
			index.Layers(name)[0].Revision, name, output.Count(ahead[name], "namespace"))
	}
}

// noteExemptions prints which namespaces are exempt from whole templates. If they are many, it prints how many. Exempt
// objects are among those that are left alone.
func (d *diff) noteExemptions(index *match.Index, namespaces []*corev1.Namespace) {
	var notes []string
	for _, ns := range namespaces {
		for _, exemption := range index.Exemptions(ns.Name) {
			if len(exemption.Spec.Objects) == 0 {
				notes = append(notes, fmt.Sprintf("namespace/%s is not compared with template %s: it %s", ns.Name,
					exemption.Spec.Template, match.ExemptionReason(exemption)))
			}
		}
	}
	const more = "%d more exemptions: 'kubectl get templateexemptions -A' lists them"
	for _, note := range output.FirstNotes(notes, 10, more) {
		d.Note("%s", note)
	}
}

// removes reports whether the command shows what deleting or disabling templates would do.
func (d *diff) removes() bool { return len(d.deleted) > 0 || len(d.disabled) > 0 }

// withoutRemoved returns the templates as they are after the deletion of the templates of --delete, and with the
// annotation that disables the templates of --disable. A deleted template remains while the operator prunes its objects
// or while it has a finalizer. The other deleted templates are gone.
func (d *diff) withoutRemoved(
	templates []*v1alpha1.NamespaceTemplate,
) (remaining, gone []*v1alpha1.NamespaceTemplate) {
	for _, template := range templates {
		isDeleted, isDisabled := slices.Contains(d.deleted, template.Name), slices.Contains(d.disabled, template.Name)
		changed := template
		switch {
		case isDeleted && template.Spec.DeletionPolicy != v1alpha1.DeletionDelete && len(template.Finalizers) == 0:
			gone = append(gone, template)
			continue
		case isDeleted:
			now := metav1.Now()
			changed = template.DeepCopy()
			changed.DeletionTimestamp = &now
		case isDisabled:
			changed = template.DeepCopy()
			metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1alpha1.TemplateApplyAnnotation,
				v1alpha1.TemplateApplyDisable)
		}
		remaining = append(remaining, changed)
	}
	return remaining, gone
}

func (d *diff) write(ctx context.Context, c *cluster.Cluster, report *report) error {
	var err error
	if report.Items, err = cli.Sorted(&d.output, report.Items); err != nil {
		return err
	}
	groups := report.groups(d.full)
	d.noteOthers(report)
	defer report.noteSummary(d.Session)
	if d.output.Format == cli.FormatName {
		report.names(d.Out)
		return nil
	}
	if printed, err := d.output.PrintReport(d.Out, report); printed {
		return err
	}
	noteEstimates(d.Session, groups)
	// There is no unified diff of what the operator recorded, since the declarations are unknown.
	if d.output.Format == cli.FormatTable || report.isRecorded {
		table := report.table(d.Session, d.full,
			!report.isRecorded && d.removes() && (d.full || d.namespaces.HasNames()))
		if len(table.Rows) == 0 {
			return nil
		}
		return d.output.PrintTable(d.Out, table)
	}
	report.noteReasons(d.Session)
	noteFailures(d.Session, groups)
	return d.showUnified(ctx, c, groups)
}

// noteOthers prints what is neither compared nor a difference: namespaces that are not populated, and objects that the
// operator leaves alone. If the command line names no namespaces, it prints their numbers only, unless it has --full.
func (d *diff) noteOthers(report *report) {
	if d.namespaces.HasNames() || d.full {
		report.noteNotPopulated(d.Session)
		report.noteLeftAlone(d.Session, d.removes())
		return
	}
	var parts []string
	if n := report.notPopulated(); n > 0 {
		parts = append(parts, output.Count(n, "namespace")+" not populated")
	}
	switch n := len(report.leftAlone()); {
	case d.removes():
		report.noteLeftAlone(d.Session, true)
	case n > 0:
		parts = append(parts, output.Count(n, "object")+" left alone")
	}
	if len(parts) > 0 {
		d.Note("%s: --full shows them", strings.Join(parts, ", "))
	}
}

// setDefaultScope selects the namespace of the flag --namespace, unless the command line selects others. Without that
// flag, it selects the current namespace if there are neither files nor templates to remove, and otherwise all.
func (d *diff) setDefaultScope() error {
	if err := d.namespaces.SelectExplicit(d.Session); err != nil {
		return err
	}
	if !d.namespaces.IsEmpty() || !d.files.IsEmpty() || d.removes() {
		return nil
	}
	current, _, err := d.Namespace()
	d.namespaces.Names = []string{current}
	return err
}
