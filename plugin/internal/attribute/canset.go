package attribute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

type canSet struct {
	cli.Session
	kind          string
	clusterScoped bool
	quiet         bool

	key, value string
	// anyValue reports whether the command line has no value. The command then checks whether every value is allowed.
	anyValue bool
}

func newCanSet(s cli.Session) *cobra.Command {
	o := &canSet{Session: s}
	cmd := &cobra.Command{
		Use:   "can-set KEY[=VALUE] [-n NAMESPACE | --cluster-scoped] [--as USER --as-group GROUP]",
		Short: "Check whether a label or annotation may be set",
		Long: templates.LongDesc(`
			Check whether you, or the user of --as, may set a label or annotation on objects in a namespace, and by
			which rule and role binding. Without a value, the command checks whether every value is allowed. To
			change a value, one rule must allow the old and the new value: the answer names the old ones.

			The command does not check whether the user may write the object itself: see "kubectl auth can-i". It
			does not know the users and groups that the operator's flags exempt, such as Kubernetes' controllers. For
			labels and annotations of nstpl itself, such as policy.nstpl.dev/policyspace, other permissions decide.
			Unless a rule denies it, the answer is unknown.

			Exit status: 0 if it is allowed, 1 if it is not allowed or unknown, or if the command failed.`),
		Example: templates.Examples(`
			# Check whether you may set the label env=prod on objects in the namespace team-a
			kubectl nstpl attributes can-set env=prod -n team-a

			# Check whether jane, as a member of the group ops, may set an annotation on Namespaces
			kubectl nstpl attributes can-set example.com/owner --cluster-scoped --as jane --as-group ops`),
		ValidArgsFunction: o.complete,
		Args:              cli.OneArg("KEY[=VALUE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(args[0]); err != nil {
				return cli.UsageError(cmd, err)
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&o.kind, "kind", "",
		"One of: (label, annotation). By default, both must be allowed.")
	cmd.Flags().BoolVar(&o.clusterScoped, "cluster-scoped", false,
		"Check for cluster-scoped objects, such as Namespaces.")
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "If true, suppress output and just return the exit code.")
	cli.CompleteValues(cmd, "kind", "label", "annotation")
	return cmd
}

func (o *canSet) parse(text string) error {
	var named bool
	o.key, o.value, named = strings.Cut(text, "=")
	o.anyValue = !named
	if reasons := validation.IsQualifiedName(strings.ToLower(o.key)); len(reasons) > 0 {
		return fmt.Errorf("%q is not a valid label or annotation key: %s", o.key, strings.Join(reasons, "; "))
	}
	if _, known := kinds[o.kind]; !known {
		return fmt.Errorf("invalid --kind %q: must be label or annotation", o.kind)
	}
	return nil
}

// kinds holds the kinds of attributes that the command checks for each value of --kind.
var kinds = map[string][]v1alpha1.AttributeKind{
	"":           {v1alpha1.LabelAttribute, v1alpha1.AnnotationAttribute},
	"label":      {v1alpha1.LabelAttribute},
	"annotation": {v1alpha1.AnnotationAttribute},
}

// complete completes the names of protected attributes.
func (o *canSet) complete(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, err := o.ConnectAsSelf()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	inCluster, inNamespaces, _ := c.AttributeRules(cmd.Context(), metav1.NamespaceAll)
	var names []string
	for i := range inCluster {
		names = append(names, inCluster[i].AttributeName)
	}
	for i := range inNamespaces {
		names = append(names, inNamespaces[i].AttributeName)
	}
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// answer is the result of the check, with its reason.
type answer struct {
	allowed bool
	// unknown is true if it is not known whether it is allowed.
	unknown bool
	// isProtected reports whether a rule protects the attribute, so that the operator decides about each request.
	isProtected bool
	reason      string
}

// String returns the answer as a line.
func (a answer) String() string {
	word := "no"
	switch {
	case a.allowed:
		word = "yes"
	case a.unknown:
		word = "unknown"
	}
	return word + " - " + a.reason
}

func (o *canSet) run(ctx context.Context) error {
	namespace, _, err := o.Namespace()
	if err != nil {
		return err
	}
	reader, err := o.ConnectAsSelf()
	if err != nil {
		return err
	}
	caller, err := o.Connect()
	if err != nil {
		return err
	}
	result, err := o.decide(ctx, reader, caller, namespace)
	if apierrors.IsForbidden(err) && !o.anyValue && !o.clusterScoped {
		// The user may not read the rules or the bindings. A dry run shows whether they allow the attribute.
		result, err = o.dryRun(ctx, caller, namespace)
	}
	if err != nil {
		return err
	}
	result = result.withOwnGuards(o.key)
	if !o.quiet {
		output.Line(o.Out, "%s", result)
		if result.allowed && result.isProtected {
			o.NoteMissingOperator(ctx, reader, "requests that touch protected labels and annotations are denied meanwhile")
		}
	}
	if !result.allowed {
		return &cli.Exit{Code: 1}
	}
	return nil
}

// decide checks the rules and bindings, which it reads with reader, for the user of caller.
func (o *canSet) decide(ctx context.Context, reader, caller *cluster.Cluster, namespace string) (answer, error) {
	user, err := caller.Caller(ctx)
	if err != nil {
		return answer{}, err
	}
	inCluster, inNamespace, err := reader.AttributeRules(ctx, namespace)
	if err != nil {
		return answer{}, err
	}
	where := "in namespace " + namespace
	if o.clusterScoped {
		namespace, where = "", "on cluster-scoped objects"
	}
	rules := attributes.NewRules(inCluster, inNamespace)
	var protected []attributes.Attribute
	for _, kind := range kinds[o.kind] {
		if attribute := (attributes.Attribute{Kind: kind, Name: o.key}); len(rules.Of(attribute, namespace)) > 0 {
			protected = append(protected, attribute)
		}
	}
	if len(protected) == 0 {
		return answer{allowed: true, reason: fmt.Sprintf("no rule protects %s %s", o.key, where)}, nil
	}
	bound, err := reader.BoundSubjects(ctx, namespace, o.clusterScoped)
	if err != nil {
		return answer{}, err
	}
	all := answer{allowed: true, isProtected: true}
	var reasons []string
	for _, attribute := range protected {
		result := o.judge(rules, attribute, namespace, bound, user)
		if all.allowed = all.allowed && result.allowed; result.reason != "" {
			reasons = append(reasons, result.reason)
		}
	}
	all.reason = strings.Join(reasons, "; ")
	return all, nil
}

// judge returns the answer for one attribute: a rule that allows the user to set it, or what the user is missing. To
// change a value, one rule must allow both the old and the new one. So the answer names the old values, if a value may
// not replace every other one.
func (o *canSet) judge(
	rules *attributes.Rules, attribute attributes.Attribute, namespace string, bound cluster.BoundSubjects,
	user attributes.Requester,
) answer {
	// values are those of the rules whose roles the user has, and replaced those that the given value may replace.
	var values, replaced []string
	limited := ""
	for _, rule := range rules.Of(attribute, namespace) {
		subject := bound.Find(user, rule.RoleRef)
		if subject == nil {
			continue
		}
		allows := fmt.Sprintf("%s allows %s %s to set %s, and %s grants this role to %s",
			rule, rule.RoleRef.Kind, rule.RoleRef.Name, attribute, subject, output.Subject(subject.Subject))
		if len(rule.ProtectedValues) == 0 {
			return answer{allowed: true, reason: allows}
		}
		values = append(values, rule.ProtectedValues...)
		if rule.Covers(o.value) {
			limited, replaced = cmp.Or(limited, allows), append(replaced, rule.ProtectedValues...)
		}
	}
	switch {
	case o.anyValue && len(values) > 0:
		return answer{
			reason: fmt.Sprintf("%q may set %s only to these values: %s", user.Name, attribute, quoted(values)),
		}
	case !o.anyValue && limited != "":
		limited += ", on objects without it, or with one of the values " + quoted(replaced)
		return answer{allowed: true, reason: limited}
	}
	return o.refuse(rules, attribute, namespace, user)
}

// refuse returns the answer for an attribute that the user may not set.
func (o *canSet) refuse(
	rules *attributes.Rules, attribute attributes.Attribute, namespace string, user attributes.Requester,
) answer {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	if attribute.Kind == v1alpha1.LabelAttribute {
		object.SetLabels(map[string]string{attribute.Name: o.value})
	} else {
		object.SetAnnotations(map[string]string{attribute.Name: o.value})
	}
	hasNoRole := func(v1alpha1.RoleReference) bool { return false }
	violation := rules.Judge(attributes.Change{Namespace: namespace, New: object.Object}, hasNoRole)[0]
	if o.anyValue { // each of the rules may allow a value
		violation.CoveringRules = rules.Of(attribute, namespace)
	}
	return answer{reason: fmt.Sprintf("%q may not set %s: %s", user.Name, attribute, violation.Remedy())}
}

// quoted returns the values in quotes, sorted and without duplicates.
func quoted(values []string) string {
	var texts []string
	for _, value := range slices.Compact(slices.Sorted(slices.Values(values))) {
		texts = append(texts, strconv.Quote(value))
	}
	return strings.Join(texts, ", ")
}

// protectedDenial matches what a rule on attributes denies, among the other reasons of a denial. Each reason ends in
// its code, at the end of a line. Several webhooks judge attributes.
var protectedDenial = regexp.MustCompile(`(?s)denied the request: (?:.*\(nstpl:[a-z-]+\)\n)?(.*)` +
	regexp.QuoteMeta(codes.AttributeProtected.AddTo("")))

// dryRun checks whether the API server would create a ConfigMap with the attribute.
func (o *canSet) dryRun(ctx context.Context, caller *cluster.Cluster, namespace string) (answer, error) {
	probe := &unstructured.Unstructured{Object: map[string]any{}}
	probe.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	probe.SetGenerateName("can-set-")
	if o.kind != "annotation" {
		probe.SetLabels(map[string]string{o.key: o.value})
	}
	if o.kind != "label" {
		probe.SetAnnotations(map[string]string{o.key: o.value})
	}
	_, err := caller.Dynamic.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace).
		Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil {
		return answer{
			allowed: true,
			reason:  "the API server would allow it on objects without it (you cannot read the rules and bindings)",
		}, nil
	}
	if denial := protectedDenial.FindStringSubmatch(err.Error()); denial != nil {
		return answer{reason: denial[1]}, nil
	}
	return answer{},
		errors.Join(errors.New("cannot read the rules and bindings, and cannot try to create a ConfigMap"), err)
}
