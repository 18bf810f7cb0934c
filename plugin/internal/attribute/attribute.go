// Package attribute holds the commands about protected labels and annotations: attributes, which lists the rules, and
// attributes can-set, which prints whether a user may set a label or annotation.
//
// Both commands read the rules and the role bindings, and decide with the package attributes of the operator's
// admission. If the user may not read the bindings, attributes shows the subjects as unknown, and can-set sends a dry
// run to the API server instead.
package attribute

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	output cli.ListFlags
}

// New returns the command `kubectl nstpl attributes`.
func New(s cli.Session) *cobra.Command {
	o := &list{Session: s}
	cmd := &cobra.Command{
		Use:   "attributes [-n NAMESPACE | -A] [-o wide|json|yaml|...]",
		Short: "Show which labels and annotations are protected, and who may set them",
		Long: templates.LongDesc(`
			Show which rules protect labels and annotations in a namespace, and who may set, change and remove these
			labels and annotations. The command shows the rules of the cluster and those of the namespace. No user may
			set a protected label or annotation to a value that no rule lists.`),
		Example: templates.Examples(`
			# Show the rules that apply in the namespace team-a
			kubectl nstpl attributes -n team-a

			# Show all rules, with all of their subjects
			kubectl nstpl attributes -A -o wide

			# Check whether a user may set a label
			kubectl nstpl attributes can-set env=prod -n team-a --as jane`),
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "Show the rules of all namespaces.")
	s.AddChunkSizeFlag(cmd)
	o.output.AddTo(cmd, cli.ListOptions{Wide: true})
	cmd.AddCommand(newCanSet(s))
	return cmd
}

// shownRule is a rule in the output of the command.
type shownRule struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	v1alpha1.AttributeRule
	Enforced string `json:"enforced"`
	// Subjects are the subjects that may set the attribute, with their bindings. It is nil if they are unknown.
	Subjects []shownSubject `json:"subjects"`
	created  time.Time
}

type shownSubject struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Binding   string `json:"binding"`
	// onlyIn is the namespace of the binding, if the rule also applies in other namespaces.
	onlyIn string
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
	switch {
	case apierrors.IsForbidden(err) && inNamespaces != nil:
		o.Note("%s", cli.Unlisted("clusterprotectedattributes", "the rules of the cluster are not shown"))
	case err != nil:
		return err
	}
	bound, subjectsErr := c.BoundSubjects(ctx, namespace, false)
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
		rules[i].Subjects = subjectsOf(rules[i].RoleRef, rules[i].Namespace, bound)
	}
	switch err := o.write(rules, time.Now()); {
	case err != nil || subjectsErr == nil || len(rules) == 0:
		return err
	case apierrors.IsForbidden(subjectsErr):
		o.Note("you may not list the bindings of roles, so the subjects of the rules are not shown")
		return nil
	}
	return fmt.Errorf("the subjects of the rules are unknown: %w", subjectsErr)
}

// newShownRule returns a rule without its subjects. Enforced is Unknown if the condition is about an older generation
// of the rule.
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

// subjectsOf returns the subjects that are bound to a role in a namespace or, if namespace is empty, in any namespace.
// It returns nil if bound is nil, so that the subjects are unknown.
func subjectsOf(role v1alpha1.RoleReference, namespace string, bound cluster.BoundSubjects) []shownSubject {
	if bound == nil {
		return nil
	}
	subjects := []shownSubject{}
	for _, boundSubject := range bound[role] {
		if namespace != "" && boundSubject.Namespace != "" && boundSubject.Namespace != namespace {
			continue
		}
		subject := shownSubject{
			Kind: boundSubject.Subject.Kind, Namespace: boundSubject.Subject.Namespace, Name: boundSubject.Subject.Name,
			Binding: boundSubject.String(),
		}
		if namespace == "" {
			subject.onlyIn = boundSubject.Namespace
		}
		subjects = append(subjects, subject)
	}
	return subjects
}

// write prints the rules in the requested format.
func (o *list) write(rules []shownRule, now time.Time) error {
	return cli.PrintList(o.Session, &o.output, cli.Printed[shownRule]{
		Kind: "AttributeRuleList", Items: rules, Empty: "No resources found",
		Table: func(rules []shownRule) output.Table { return ruleTable(rules, o.output.Format == cli.FormatWide, now) },
	})
}

func ruleTable(rules []shownRule, wide bool, now time.Time) output.Table {
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
	return table
}

// subjects returns the names of all subjects, or of the first three and the number of the others.
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
		if subject.onlyIn != "" {
			name += " in " + subject.onlyIn
		}
		names = append(names, name)
	}
	return cmp.Or(strings.Join(names, ", "), "<none>")
}
