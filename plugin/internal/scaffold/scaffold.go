// Package scaffold holds the command init, which writes first templates: from the objects of a namespace, or from the
// policies of another tool.
//
// Each conversion is a function from objects to a draft: objects with comments, and a list of what could not be
// converted. A draft never selects or grants more than its source: a template whose conditions could not be converted
// is disabled. Objects are untrusted: their text is escaped in comments, and text that looks like a token in values.
package scaffold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/source"
)

type scaffold struct {
	cli.Session
	files source.Filenames
	// namespace is the value of --from, and tools are the flags for other tools.
	namespace string
	tools     []*tool
	// name, objects and selects are the values of --name, --selector and --namespace-selector.
	name, objects, selects string
}

// New returns the command `kubectl nstpl init`.
func New(s cli.Session) *cobra.Command {
	x := &scaffold{Session: s, tools: newTools()}
	cmd := &cobra.Command{
		Use: "init --from NAMESPACE [KINDS] [--name NAME] [-l LABELS] [--namespace-selector LABELS] | " +
			"--from-TOOL [-f FILE...] [-R] | -k DIR",
		Short: "Write a template from a namespace, or from the policies of other tools",
		Long: templates.LongDesc(`
			Write NamespaceTemplates and PolicySpaces as YAML, with a comment for each decision. Nothing in the cluster
			is changed. Read the comments, correct the result, and check it with "kubectl nstpl vet" and
			"kubectl nstpl diff" before you apply it.

			With --from, the template declares the objects of a namespace: Roles, RoleBindings, NetworkPolicies,
			ResourceQuotas, LimitRanges, ServiceAccounts, ConfigMaps and PodDisruptionBudgets, or the KINDS that you
			name. Fields that the API server sets, objects that Kubernetes or another program creates, and objects that
			templates declare are left out. Secrets are never copied. The name of the namespace becomes $(NAMESPACE)
			where it is clear that the namespace is meant, and the name of its creator becomes $(CREATOR). The template
			selects this namespace alone, unless you specify --namespace-selector.

			With --from-hnc, --from-accurate, --from-openshift-project-template, --from-kyverno-generate or
			--from-capsule, the command converts the objects of that tool, from files or from the cluster. Standard
			error has a table with what each object or rule became. What you have to decide or to do, and what cannot
			be converted, is listed above it, and in comments that begin with "needs you:" or "lost:". A template is
			disabled if a condition by which the tool selects namespaces could not be converted.`),
		Example: templates.Examples(`
			# Write a template from what a namespace has
			kubectl nstpl init --from team-a >template.yaml

			# Only from some of its objects, for the namespaces with a label
			kubectl nstpl init --from team-a networkpolicies,limitranges --namespace-selector tier=production

			# Compare the template with the namespace
			kubectl nstpl diff team-a -f template.yaml

			# Convert Kyverno's generate rules in the cluster
			kubectl nstpl init --from-kyverno-generate

			# Convert exported Tenants of Capsule
			kubectl nstpl init --from-capsule -f tenants.yaml`),
		Args: func(cmd *cobra.Command, args []string) error {
			if err := x.check(args); err != nil {
				return cli.UsageError(cmd, err)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := x.convert(cmd.Context(), args)
			if err != nil {
				return err
			}
			return d.print(x.Out, x.ErrOut)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&x.namespace, "from", "", "A namespace whose objects the template declares.")
	for _, tool := range x.tools {
		flags.BoolVar(&tool.isChosen, tool.flag, false, tool.usage)
	}
	x.files.AddFlags(cmd, "the objects of the other tool")
	flags.StringVar(&x.name, "name", "", "The name of the template. By default, the name of the namespace of --from.")
	flags.StringVarP(&x.objects, "selector", "l", "", "With --from, copy only the objects whose labels match.")
	flags.StringVar(&x.selects, "namespace-selector", "",
		"With --from or --from-openshift-project-template, select the namespaces whose labels match (e.g. tier=production).")
	_ = cmd.RegisterFlagCompletionFunc("from", s.CompleteNamespaces(0)) // fails only if the flag does not exist
	return cmd
}

// tool returns the tool whose flag is set, or nil.
func (x *scaffold) tool() *tool {
	if i := slices.IndexFunc(x.tools, func(t *tool) bool { return t.isChosen }); i >= 0 {
		return x.tools[i]
	}
	return nil
}

// check returns an error if the command line is invalid.
func (x *scaffold) check(args []string) error {
	var chosen []string
	if x.namespace != "" {
		chosen = append(chosen, "--from")
	}
	var all []string
	for _, tool := range x.tools {
		all = append(all, "--"+tool.flag)
		if tool.isChosen {
			chosen = append(chosen, "--"+tool.flag)
		}
	}
	if _, err := labels.Parse(x.objects); err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	if _, err := x.namespaceSelector(); err != nil {
		return err
	}
	switch {
	case len(chosen) == 0:
		return fmt.Errorf("specify --from NAMESPACE, or one of %s", strings.Join(all, ", "))
	case len(chosen) > 1:
		return fmt.Errorf("specify only one of %s", strings.Join(chosen, ", "))
	case x.namespace != "" && !x.files.IsEmpty():
		return errors.New("--from reads the cluster: remove -f and -k")
	case x.namespace == "" && (len(args) > 0 || x.name != "" || x.objects != ""):
		return errors.New("KINDS, --name and --selector require --from")
	case x.namespace == "" && x.selects != "" && !x.tool().usesSelector:
		return fmt.Errorf("%s converts the selectors of %s: remove --namespace-selector", chosen[0], x.tool().name)
	case len(args) > 1:
		return errors.New("separate KINDS by commas, as in roles,rolebindings")
	}
	return x.files.Check()
}

// namespaceSelector returns the value of --namespace-selector, or nil.
func (x *scaffold) namespaceSelector() (*metav1.LabelSelector, error) {
	if x.selects == "" {
		return nil, nil
	}
	selector, err := metav1.ParseToLabelSelector(x.selects)
	if err != nil {
		return nil, fmt.Errorf("--namespace-selector: %w", err)
	}
	return selector, nil
}

// convert reads the objects, from files or from the cluster, and converts them.
func (x *scaffold) convert(ctx context.Context, args []string) (*draft, error) {
	tool := x.tool()
	if tool == nil {
		return x.fromCluster(ctx, args)
	}
	var objects []*unstructured.Unstructured
	var unread []string
	if x.files.IsEmpty() {
		c, err := x.Connect()
		if err != nil {
			return nil, err
		}
		defer x.Progress("reading the objects of " + tool.name)()
		if objects, unread, err = (reader{c}).all(ctx, tool); err == nil && tool.more != nil {
			objects, err = tool.more(ctx, reader{c}, objects)
		}
		if err != nil {
			return nil, err
		}
	} else {
		var skipped []string
		var err error
		objects, skipped, err = source.Objects(x.files, x.In)
		for _, note := range skipped {
			x.Note("skipped %s", note)
		}
		if err != nil {
			return nil, err
		}
	}
	selects, err := x.namespaceSelector()
	if err != nil {
		return nil, err
	}
	d := tool.convert(ctx, objects, selects)
	if d == nil {
		return nil, fmt.Errorf("no objects of %s found: expected %s", tool.name, tool.kinds)
	}
	for _, resource := range unread {
		d.item("%s", resource).need(nil, "you may not list them, and they are not converted: decide what replaces the objects")
	}
	return d, nil
}
