// Package attribute holds the commands about protected labels and annotations: attributes, which lists the rules, and
// attributes can-set, which answers whether a user may set one.
//
// Both read the rules and the bindings and decide as the operator's admission does, by its package attributes. A user
// who may not read the bindings learns that the subjects are unknown. Can-set then asks the API server by a dry run.
package attribute

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

type list struct {
	cli.Session
	all    bool
	output cli.FormatFlag
}

// New returns the command `kubectl nstpl attributes`.
func New(s cli.Session) *cobra.Command {
	o := &list{Session: s}
	cmd := &cobra.Command{
		Use:   "attributes [-n NAMESPACE | -A] [-o wide|json|yaml]",
		Short: "Show which labels and annotations are protected, and who may set them",
		Long: templates.LongDesc(`
			Show which labels and annotations are protected in a namespace, by which rules, and who may set, change
			and remove them: the rules of the whole cluster, and those of the namespace. A value that no rule has is
			closed to everybody.`),
		Example: templates.Examples(`
			# The rules that apply in the namespace team-a
			kubectl nstpl attributes -n team-a

			# All rules, with all of their subjects
			kubectl nstpl attributes -A -o wide

			# Ask whether somebody may set a label
			kubectl nstpl attributes can-set env=prod -n team-a --as jane`),
		DisableFlagsInUseLine: true,
		Args:                  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.output.Check(cmd); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "The rules of all namespaces.")
	o.output.AddTo(cmd, "", "Output format", cli.FormatWide, cli.FormatJSON, cli.FormatYAML)
	cmd.AddCommand(newCanSet(s))
	return cmd
}

// shownRule is a rule as the command prints it.
type shownRule struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	v1alpha1.AttributeRule
	Enforced string `json:"enforced"`
	// Subjects are those that may set the attribute, each by a binding. It is nil if they are unknown.
	Subjects []shownSubject `json:"subjects"`
	created  time.Time
}

type shownSubject struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Binding   string `json:"binding"`
	// only is the namespace of the binding if the rule applies in others too.
	only string
}

func (o *list) run(ctx context.Context) error {
	c, err := o.Connect()
	if err != nil {
		return err
	}
	namespace := metav1.NamespaceAll
	if !o.all {
		if namespace, _, err = o.Namespace(); err != nil {
			return err
		}
	}
	inCluster, inNamespaces, err := c.AttributeRules(ctx, namespace)
	if err != nil {
		return err
	}
	holdings, holdingsErr := c.Holdings(ctx, namespace, false)
	rules := make([]shownRule, 0, len(inCluster)+len(inNamespaces))
	for i := range inCluster {
		rule := &inCluster[i]
		rules = append(rules,
			newShownRule("ClusterProtectedAttribute", &rule.ObjectMeta, rule.AttributeRule, rule.Status))
	}
	for i := range inNamespaces {
		rule := &inNamespaces[i]
		rules = append(rules, newShownRule("ProtectedAttribute", &rule.ObjectMeta, rule.AttributeRule, rule.Status))
	}
	for i := range rules {
		rules[i].Subjects = subjectsOf(rules[i].RoleRef, rules[i].Namespace, holdings)
	}
	if err := o.write(rules, time.Now()); err != nil || holdingsErr == nil {
		return err
	}
	return fmt.Errorf("who may set the attributes is not known: %w", holdingsErr)
}

// newShownRule returns a rule without its subjects. A report on an older generation of the rule does not say whether it
// is enforced.
func newShownRule(
	kind string, meta *metav1.ObjectMeta, rule v1alpha1.AttributeRule, status v1alpha1.ProtectedAttributeStatus,
) shownRule {
	shown := shownRule{
		Kind: kind, Namespace: meta.Namespace, Name: meta.Name, AttributeRule: rule,
		Enforced: string(metav1.ConditionUnknown),
		created:  meta.CreationTimestamp.Time,
	}
	if enforced := apimeta.FindStatusCondition(status.Conditions, v1alpha1.AttributeEnforced); enforced != nil &&
		enforced.ObservedGeneration == meta.Generation {
		shown.Enforced = string(enforced.Status)
	}
	return shown
}

// subjectsOf returns the subjects that hold a role where a rule applies: in its namespace or, if that is empty,
// anywhere. It returns nil if the holdings are unknown.
func subjectsOf(role v1alpha1.RoleReference, namespace string, holdings cluster.Holdings) []shownSubject {
	if holdings == nil {
		return nil
	}
	subjects := []shownSubject{}
	for _, held := range holdings[role] {
		if namespace != "" && held.Namespace != "" && held.Namespace != namespace {
			continue
		}
		subject := shownSubject{
			Kind: held.Subject.Kind, Namespace: held.Subject.Namespace, Name: held.Subject.Name, Binding: held.String(),
		}
		if namespace == "" {
			subject.only = held.Namespace
		}
		subjects = append(subjects, subject)
	}
	return subjects
}

// write prints the rules in the format that the user asked for.
func (o *list) write(rules []shownRule, now time.Time) error {
	all := map[string]any{"rules": rules}
	switch o.output.Format {
	case cli.FormatJSON:
		return output.JSON(o.Out, all)
	case cli.FormatYAML:
		return output.YAMLStream(o.Out, []any{all})
	}
	if len(rules) == 0 {
		o.Note("No resources found")
		return nil
	}
	wide := o.output.Format == cli.FormatWide
	table := output.Table{
		Columns:     []string{"Namespace", "Name", "Attribute", "Values", "Role", "Subjects", "Enforced", "Age"},
		WideColumns: []string{"Guards Deletion"},
	}
	for _, r := range rules {
		table.Rows = append(table.Rows, []string{
			cmp.Or(r.Namespace, "*"), r.Name, strings.ToLower(string(r.AttributeKind)) + " " + r.AttributeName,
			cmp.Or(strings.Join(r.ProtectedValues, ","), "*"), r.RoleRef.Kind + "/" + r.RoleRef.Name, r.subjects(wide),
			r.Enforced, duration.HumanDuration(now.Sub(r.created)), fmt.Sprint(r.GuardDeletion),
		})
	}
	return table.Print(o.Out, wide)
}

// subjects returns the names of the first three subjects, or of all.
func (r shownRule) subjects(all bool) string {
	if r.Subjects == nil {
		return "<unknown>"
	}
	const few = 3
	var names []string
	for i, subject := range r.Subjects {
		if i == few && !all && len(r.Subjects) > few+1 {
			names = append(names, fmt.Sprintf("%d more", len(r.Subjects)-few))
			break
		}
		name := output.Subject(rbacv1.Subject{Kind: subject.Kind, Namespace: subject.Namespace, Name: subject.Name})
		if subject.only != "" {
			name += " in " + subject.only
		}
		names = append(names, name)
	}
	return cmp.Or(strings.Join(names, ", "), "<none>")
}
