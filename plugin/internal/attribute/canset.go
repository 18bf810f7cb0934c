package attribute

import (
	"context"
	"errors"
	"fmt"
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
	// any is true if no value is given: the question is about every value then.
	any bool
}

func newCanSet(s cli.Session) *cobra.Command {
	o := &canSet{Session: s}
	cmd := &cobra.Command{
		Use:   "can-set KEY[=VALUE] [-n NAMESPACE | --cluster-scoped] [--as USER --as-group GROUP]",
		Short: "Check whether a label or annotation may be set",
		Long: templates.LongDesc(`
			Check whether you, or somebody else, may set a label or an annotation on the objects of a namespace, and
			by which rule and which binding. Without a value it is about every value. Whether the object itself may
			be written is another question: see "kubectl auth can-i". Nor does it know whom the operator's flags
			exempt, such as Kubernetes' own controllers.

			Exit status: 0 for yes, and 1 for no or if it can't be told.`),
		Example: templates.Examples(`
			# May I label what is in team-a as production?
			kubectl nstpl attributes can-set env=prod -n team-a

			# May Jane, who is in the group ops, annotate Namespaces?
			kubectl nstpl attributes can-set example.com/owner --cluster-scoped --as jane --as-group ops`),
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     o.complete,
		Args:                  cli.OneArg("KEY[=VALUE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(args[0]); err != nil {
				return cli.UsageError(cmd, err)
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&o.kind, "kind", "",
		"Whether it is a label or an annotation. By default it must be allowed as both.")
	cmd.Flags().BoolVar(&o.clusterScoped, "cluster-scoped", false,
		"Ask about objects that are in no namespace, such as Namespaces.")
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "Print nothing, and answer by the exit status.")
	cli.CompleteValues(cmd, "kind", "label", "annotation")
	return cmd
}

func (o *canSet) parse(text string) error {
	var named bool
	o.key, o.value, named = strings.Cut(text, "=")
	o.any = !named
	if reasons := validation.IsQualifiedName(strings.ToLower(o.key)); len(reasons) > 0 {
		return fmt.Errorf("%q can't be the name of a label or annotation: %s", o.key, strings.Join(reasons, "; "))
	}
	if _, known := kinds[o.kind]; !known {
		return fmt.Errorf("--kind is %q: it can be label or annotation", o.kind)
	}
	return nil
}

// kinds are the kinds of attributes that each value of --kind asks about.
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

// answer is whether the attribute may be set, with the reason.
type answer struct {
	allowed bool
	reason  string
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
	given, err := o.decide(ctx, reader, caller, namespace)
	if apierrors.IsForbidden(err) && !o.any && !o.clusterScoped {
		// The user may not read the rules or bindings, but the API server goes by them.
		given, err = o.dryRun(ctx, caller, namespace)
	}
	if err != nil {
		return err
	}
	if !o.quiet {
		word := "no"
		if given.allowed {
			word = "yes"
		}
		output.Line(o.Out, "%s - %s", word, given.reason)
	}
	if !given.allowed {
		return &cli.Exit{Code: 1}
	}
	return nil
}

// decide answers by the rules and the bindings that reader may read.
func (o *canSet) decide(ctx context.Context, reader, caller *cluster.Cluster, namespace string) (answer, error) {
	user, err := caller.Caller(ctx)
	if err != nil {
		return answer{}, err
	}
	inCluster, inNamespace, err := reader.AttributeRules(ctx, namespace)
	if err != nil {
		return answer{}, err
	}
	where := "namespace " + namespace
	if o.clusterScoped {
		namespace, where = "", "objects that are in no namespace"
	}
	rules := attributes.NewRules(inCluster, inNamespace)
	var protected []attributes.Attribute
	for _, kind := range kinds[o.kind] {
		if attribute := (attributes.Attribute{Kind: kind, Name: o.key}); len(rules.Of(attribute, namespace)) > 0 {
			protected = append(protected, attribute)
		}
	}
	if len(protected) == 0 {
		return answer{true, fmt.Sprintf("no rule protects %s in %s", o.key, where)}, nil
	}
	holdings, err := reader.Holdings(ctx, namespace, o.clusterScoped)
	if err != nil {
		return answer{}, err
	}
	all := answer{allowed: true}
	var reasons []string
	for _, attribute := range protected {
		one := o.judge(rules, attribute, namespace, holdings, user)
		if all.allowed = all.allowed && one.allowed; one.reason != "" {
			reasons = append(reasons, one.reason)
		}
	}
	all.reason = strings.Join(reasons, "; ")
	return all, nil
}

// judge answers for one attribute, by the rules that the user holds and else by the rules that deny.
func (o *canSet) judge(
	rules *attributes.Rules, attribute attributes.Attribute, namespace string, holdings cluster.Holdings,
	user attributes.Requester,
) answer {
	var values []string
	for _, rule := range rules.Of(attribute, namespace) {
		held := holdings.By(user, rule.RoleRef)
		switch {
		case held == nil:
		case !o.any && rule.Opens(o.value), len(rule.ProtectedValues) == 0:
			return answer{true, fmt.Sprintf("%s opens %s to %s %s, which %s gives to %s",
				rule, attribute, rule.RoleRef.Kind, rule.RoleRef.Name, held, output.Subject(held.Subject))}
		default:
			values = append(values, rule.ProtectedValues...)
		}
	}
	if o.any && len(values) > 0 {
		return answer{
			false, fmt.Sprintf("%q may set %s to these values only: %s", user.Name, attribute, quoted(values)),
		}
	}
	object := &unstructured.Unstructured{Object: map[string]any{}}
	if attribute.Kind == v1alpha1.LabelAttribute {
		object.SetLabels(map[string]string{attribute.Name: o.value})
	} else {
		object.SetAnnotations(map[string]string{attribute.Name: o.value})
	}
	nobody := func(v1alpha1.RoleReference) bool { return false }
	violation := rules.Judge(attributes.Change{Namespace: namespace, New: object.Object}, nobody)[0]
	if o.any { // any rule may open it
		violation.Would = rules.Of(attribute, namespace)
	}
	return answer{false, fmt.Sprintf("%q may not set %s: %s", user.Name, attribute, violation.Remedy())}
}

// quoted returns the values in quotes, sorted, each once.
func quoted(values []string) string {
	var texts []string
	for _, value := range slices.Compact(slices.Sorted(slices.Values(values))) {
		texts = append(texts, strconv.Quote(value))
	}
	return strings.Join(texts, ", ")
}

// dryRun answers by whether the API server would create a ConfigMap with the attribute.
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
		return answer{true, "the API server would let you (the rules and bindings may not be read)"}, nil
	}
	if _, why, refused := strings.Cut(err.Error(),
		"\"attributes."+v1alpha1.GroupVersion.Group+"\" denied the request: "); refused {
		return answer{false, why}, nil
	}
	return answer{},
		errors.Join(errors.New("the rules and bindings may not be read, and a ConfigMap can't be tried"), err)
}
