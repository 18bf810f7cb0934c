package namespace

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/selfservice"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

type status struct {
	cli.Session
	namespaces cli.Selection
	output     cli.ListFlags
	watch      bool
	failing    bool
	exitCode   bool

	// noted has the notes that were printed, so that no step of a rollout repeats them.
	noted map[string]bool
}

// NewStatus returns the command `kubectl nstpl status`.
func NewStatus(s cli.Session) *cobra.Command {
	o := &status{Session: s}
	cmd := &cobra.Command{
		Use: "status [NAMESPACE... | -A | -l SELECTOR] [--failing] [--exit-code] [-w] " +
			"[-o wide|name|json|yaml|...]",
		Short: "Show which namespaces are populated, and why others are not",
		Long: templates.LongDesc(`
			Show which templates select namespaces, and whether the operator has populated these namespaces. Without
			arguments, the command shows the namespaces that a template selects, or that of --namespace.

			Namespaces that need attention come first, with the causes under the table: failing ones, which are not
			populated until a person acts; held ones, in which writes wait for initializers; drifted ones, in which
			other clients changed objects that the operator does not correct, or corrects less and less often; unknown
			ones, whose conditions have so many failures that they have no room for drift; and pending ones, which are
			not populated yet. With --failing, the command shows only these.

			With --watch, the command then prints each namespace again whenever its status, its exemptions or the
			templates that select it change. It reads templates and exemptions every five seconds.

			The output with -o wide shows when namespaces expire, as the self-service of policy spaces decides it.

			Exit status: 0, or 1 if the command failed. With --exit-code, also 1 if a shown namespace needs attention,
			or if no operator is running, so that the statuses may be old.`),
		Example: templates.Examples(`
			# Show the namespaces that templates select
			kubectl nstpl status

			# Show why a namespace is not populated, and when it expires
			kubectl nstpl status team-a -o wide

			# Show the namespaces that need attention, and exit with 1 if there are any
			kubectl nstpl status --failing --exit-code

			# Watch how namespaces are populated, until you interrupt the command
			kubectl nstpl status -w`),
		ValidArgsFunction: s.CompleteNamespaces(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.watch && o.exitCode {
				return cli.UsageError(cmd, errors.New("--exit-code cannot be combined with --watch"))
			}
			return o.run(cmd.Context())
		},
	}
	o.namespaces.AddFlags(cmd)
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "After listing the namespaces, watch for changes.")
	cmd.Flags().BoolVar(&o.failing, "failing", false, "Show only the namespaces that need attention.")
	cmd.Flags().BoolVar(&o.exitCode, "exit-code", false, "Exit with 1 if a shown namespace needs attention.")
	s.AddChunkSizeFlag(cmd)
	o.output.AddTo(cmd, cli.ListOptions{Wide: true, Names: true, Watch: &o.watch})
	return cmd
}

// namespaceStatus is what the command prints for a namespace.
type namespaceStatus struct {
	Namespace string `json:"namespace"`
	Populated string `json:"populated"`
	State     state  `json:"state"`
	// Templates is null if the user may not list templates.
	Templates []string `json:"templates"`
	// OptedOut are the templates that the namespace is opted out of, if it is not opted out of all.
	OptedOut []string `json:"optedOut,omitempty"`
	// Exemptions are those in force.
	Exemptions []exemption `json:"exemptions,omitempty"`
	// Expiry is when the namespace expires, or nil if it does not.
	Expiry  *time.Time `json:"expiry,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	Message string     `json:"message,omitempty"`
	// Since is when the namespace was populated or failed, or since when it is held, or nil if that is unknown.
	Since   *time.Time `json:"since,omitempty"`
	created time.Time
	// expires is the cell with the time at which the namespace expires, and expired the message of the operator about
	// it, which exists only shortly before that time and afterwards.
	expires, expired string
}

// exemption is a TemplateExemption in force. Objects are empty for a whole template.
type exemption struct {
	Name     string     `json:"name"`
	Template string     `json:"template"`
	Objects  []string   `json:"objects,omitempty"`
	Reason   string     `json:"reason"`
	Expires  *time.Time `json:"expires,omitempty"`
}

func newExemption(from *v1alpha1.TemplateExemption) exemption {
	shown := exemption{Name: from.Name, Template: from.Spec.Template, Reason: from.Spec.Reason}
	if len(from.Spec.Objects) > 0 {
		shown.Objects = strings.Split(match.ObjectList(&from.Spec), ",")
	}
	if from.Spec.Expires != nil {
		shown.Expires = output.UTC(*from.Spec.Expires)
	}
	return shown
}

// Values of namespaceStatus.Populated in addition to True and False, the values of the condition.
const (
	// notReported is for a namespace that a template selects and that has no condition yet.
	notReported = string(corev1.ConditionUnknown)
	// notPopulated is for a namespace that no template populates.
	notPopulated = "<none>"
)

func (o *status) run(ctx context.Context) error {
	if err := o.namespaces.SelectExplicit(o.Session); err != nil {
		return err
	}
	c, err := o.Connect()
	if err != nil {
		return err
	}
	watched, forbidden, err := o.read(ctx, c)
	if watched == nil {
		return err
	}
	watched.onlyFailing = o.failing
	shown := watched.changes()
	if err := o.write(shown, time.Now()); err != nil {
		return err
	}
	isOld := o.NoteMissingOperator(ctx, c, "statuses may be old")
	if err := errors.Join(err, errors.Join(forbidden...)); err != nil {
		return err
	}
	if o.watch {
		return o.follow(ctx, c, watched, indexOf(c))
	}
	needsAttention := func(s namespaceStatus) bool { return s.needsAttention() }
	if o.exitCode && (isOld || slices.ContainsFunc(shown, needsAttention)) {
		return &cli.Exit{Code: 1}
	}
	return nil
}

// read returns the selected namespaces and the templates. With an error, the board is nil or has the namespaces that
// could be read.
func (o *status) read(ctx context.Context, c *cluster.Cluster) (shown *board, forbidden []error, err error) {
	defer o.Progress("reading namespaces and templates")()
	var templates []*v1alpha1.NamespaceTemplate
	var unlisted error
	var listing sync.WaitGroup
	listing.Go(func() { templates, unlisted = c.Templates(ctx) })
	isEmpty := o.namespaces.IsEmpty()
	namespaces, forbidden, err := o.namespaces.ReadOrCurrent(ctx, o.Session, c)
	listing.Wait()
	if unlisted != nil && !apierrors.IsForbidden(unlisted) {
		return nil, nil, unlisted
	}
	if isEmpty && o.namespaces.HasNames() {
		o.Note("you may not list namespaces, so only the current one is shown: name others, or select one with -n")
	}
	if err != nil && len(namespaces) == 0 {
		return nil, nil, err
	}
	if unlisted != nil && len(namespaces) == 0 && len(forbidden) > 0 {
		return nil, nil, cli.NoAccess(strings.Join(o.namespaces.Names, ", "))
	}
	if unlisted != nil {
		o.Note("%s", cli.Unlisted("namespacetemplates", "the templates are not shown"))
		return &board{namespaces: namespaces, showsAll: !o.namespaces.IsEmpty()}, forbidden, err
	}
	index, unread := c.Index(ctx, templates, namespaces)
	if ctx.Err() == nil {
		o.noteUnread(unread)
	}
	return &board{index: index, namespaces: namespaces, showsAll: !o.namespaces.IsEmpty()}, forbidden, err
}

// noteUnread prints once what could not be read for an index.
func (o *status) noteUnread(unread []error) {
	for _, err := range unread {
		o.noteOnce(err.Error())
	}
}

func (o *status) noteOnce(note string) {
	if o.noted[note] {
		return
	}
	if o.noted == nil {
		o.noted = map[string]bool{}
	}
	o.noted[note] = true
	o.Note("%s", note)
}

func newNamespaceStatus(index *match.Index, ns *corev1.Namespace) namespaceStatus {
	shown := namespaceStatus{
		Namespace: ns.Name, Populated: notPopulated, State: settled, Templates: []string{},
		OptedOut: match.OptedOutTemplates(ns), created: ns.CreationTimestamp.Time,
	}
	condition := populate.PopulatedCondition(ns)
	skipped := survey.UnpopulatedReason(ns)
	if index == nil {
		shown.Templates = nil
	} else if skipped == "" {
		for _, template := range index.Match(ns) {
			shown.Templates = append(shown.Templates, template.Name)
		}
	}
	if index != nil {
		for _, exemption := range index.Exemptions(ns.Name) {
			shown.Exemptions = append(shown.Exemptions, newExemption(exemption))
		}
	}
	shown.setExpiry(ns)
	switch {
	case match.OptedOut(ns):
		shown.Reason, shown.Message = "OptedOut", skipped
	case skipped != "" && ns.DeletionTimestamp != nil:
		shown.Reason, shown.Message = "Terminating", skipped
	case skipped != "":
		shown.Reason, shown.Message = "Excluded", skipped
	case condition != nil:
		shown.setReported(ns, condition)
	case len(shown.Templates) > 0 || initialize.Initializing(ns):
		shown.State, shown.Populated, shown.Reason = pending, notReported, "NotReported"
		shown.Message = "the operator has not reported on the namespace yet"
		if initialize.Initializing(ns) {
			shown.Message += "; " + waitsFor(ns)
		}
	case index == nil:
		shown.Reason, shown.Message = "NotReported", "the operator has not reported on the namespace"
	case len(survey.Awaited(index, ns)) > 0:
		shown.Reason = "NotReached"
		shown.Message = "not populated yet: waits for the rollout of " + output.FirstFew(survey.Awaited(index, ns))
	default:
		shown.Reason, shown.Message = "NoTemplate", "no template matches"
	}
	if shown.State == settled && initialize.Initializing(ns) && ns.DeletionTimestamp == nil {
		shown.State, shown.Reason, shown.Message = held, "Waiting", waitsFor(ns)
		shown.Since = output.UTC(ns.CreationTimestamp)
	}
	return shown
}

// setExpiry sets when a namespace expires.
func (s *namespaceStatus) setExpiry(ns *corev1.Namespace) {
	s.expires = ns.Annotations[v1alpha1.ExpiresAnnotation]
	// The state of the life, which depends on the time, is not shown: the operator reports it in the condition.
	life := selfservice.LifeOf(s.expires, ns.CreationTimestamp.Time, ns.CreationTimestamp.Time)
	if life.State == selfservice.Invalid {
		s.expires = "<invalid>"
	} else if !life.End.IsZero() {
		end := life.End.UTC()
		s.Expiry, s.expires = &end, end.Format(time.RFC3339)
	}
	for _, condition := range ns.Status.Conditions {
		if condition.Type == v1alpha1.NamespaceExpired {
			s.expired = condition.Message
		}
	}
}

// write prints statuses. Further calls continue the output of the first.
func (o *status) write(statuses []namespaceStatus, now time.Time) error {
	slices.SortStableFunc(statuses, byUrgency)
	empty := "No resources found"
	if o.failing {
		empty = "No namespace needs attention"
	}
	err := cli.PrintList(o.Session, &o.output, cli.Printed[namespaceStatus]{
		Kind: "NamespaceStatusList", Items: statuses, Empty: empty,
		Name:  func(s namespaceStatus) string { return "namespace/" + s.Namespace },
		Table: func(statuses []namespaceStatus) output.Table { return statusTable(statuses, now) },
	})
	o.noteCauses(statuses)
	o.noteMore(statuses)
	return err
}

// mostNotes is the most causes, exemptions and times of expiry that are printed one by one.
const mostNotes = 20

// noteFirst prints the first of some notes, each once, and the number of the others.
func (o *status) noteFirst(notes []string, others string) {
	for _, note := range output.FirstNotes(notes, mostNotes, others) {
		o.noteOnce(note)
	}
}

// noteMore prints the exemptions of namespaces, and which namespaces expire soon or have expired.
func (o *status) noteMore(statuses []namespaceStatus) {
	var exempt, expired []string
	for _, shown := range statuses {
		for _, exemption := range shown.Exemptions {
			exempt = append(exempt, "namespace/"+shown.Namespace+" "+exemption.String())
		}
		if shown.expired != "" {
			expired = append(expired, "namespace/"+shown.Namespace+" "+shown.expired)
		}
	}
	o.noteFirst(exempt, "%d more exemptions: 'kubectl get templateexemptions -A' lists them")
	o.noteFirst(expired, "%d more namespaces expire soon or have expired: -o wide shows when")
}

// String describes an exemption after the name of its namespace.
func (e exemption) String() string {
	what := "template " + e.Template
	if len(e.Objects) > 0 {
		what = strings.Join(e.Objects, ", ") + " of " + what
	}
	until := ""
	if e.Expires != nil {
		until = " until " + e.Expires.UTC().Format(time.RFC3339)
	}
	return "is exempt from " + what + until + ": " + e.Reason
}

func statusTable(statuses []namespaceStatus, now time.Time) output.Table {
	table := output.Table{
		Columns:     []string{"Namespace", "Populated", "Templates", "Reason", "Age"},
		WideColumns: []string{"Expires", "Message"},
	}
	for _, s := range statuses {
		table.Rows = append(table.Rows, []string{
			s.Namespace, s.Populated, s.templates(), s.Reason, duration.HumanDuration(now.Sub(s.created)),
			cmp.Or(s.expires, "<none>"), s.Message,
		})
	}
	return table
}

// templates returns the cell with the names of the templates.
func (s namespaceStatus) templates() string {
	if s.Templates == nil {
		return "<unknown>"
	}
	return strings.Join(s.Templates, ",")
}
