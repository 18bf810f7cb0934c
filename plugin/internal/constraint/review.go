package constraint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/source"
)

type sccReview struct {
	cli.Session
	files         []string
	constraints   []string
	namespaceFile string
	account       string
	output        cli.FormatFlag
}

func newSCCReview(s cli.Session) *cobra.Command {
	o := &sccReview{Session: s}
	cmd := &cobra.Command{
		Use:   "review -f FILE [-z SERVICEACCOUNT] [--as USER --as-group GROUP...] [-o table|yaml|json]",
		Short: "Show which SecurityContextConstraints admit a pod and what they set, or why none does",
		Long: templates.LongDesc(`
			Show which SecurityContextConstraints would admit pods, or the pods of workloads, and what they would set on
			them; or, for each of the constraints, what it does not allow. It runs what the operator runs.

			With --constraints it needs no cluster: the constraints and the namespace come from files, users and groups
			from --as and --as-group, and nobody has the verb use.

			Exit status: 0 if all are admitted, and 1 if not or if it can't be told.`),
		Example: templates.Examples(`
			# What becomes of a pod that I create in team-a
			kubectl nstpl scc review -f pod.yaml -n team-a

			# And of one with another service account, created by somebody else
			kubectl nstpl scc review -f pod.yaml -n team-a -z builder --as jane

			# Without a cluster
			kubectl nstpl scc review -f pod.yaml --constraints constraints/ --namespace-file namespace.yaml --as jane -o json`),
		DisableFlagsInUseLine: true,
		Args:                  cli.ExactArgs(0, "nothing but flags"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			formatErr := o.output.Check(cmd)
			switch {
			case len(o.files) == 0:
				return cli.UsageError(cmd, errors.New("name a file with -f"))
			case formatErr != nil:
				return formatErr
			case o.namespaceFile != "" && len(o.constraints) == 0:
				return cli.UsageError(cmd, errors.New("--namespace-file goes with --constraints: in a cluster, the namespace is there"))
			}
			return o.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&o.files, "filename", "f", nil, "A file or folder with pods and workloads, a URL, or - for standard input. Symbolic links are not followed.")
	flags.StringVarP(&o.account, "serviceaccount", "z", "", "The service account of the pods, in place of the one that they name.")
	flags.StringArrayVar(&o.constraints, "constraints", nil, "A file or folder with SecurityContextConstraints, in place of the cluster's.")
	flags.StringVar(&o.namespaceFile, "namespace-file", "", "A file with the Namespace of the pods, in place of the cluster's.")
	o.output.AddTo(cmd, cli.FormatTable, "Output format", cli.FormatTable, cli.FormatYAML, cli.FormatJSON)
	return cmd
}

// sccAnswer is what review -o json prints.
type sccAnswer struct {
	Allowed    bool         `json:"allowed"`
	Constraint *string      `json:"constraint"`
	Subject    *string      `json:"subject"`
	Pod        *corev1.Pod  `json:"pod"`
	Reasons    []scc.Reason `json:"reasons"`
	object     string
	given      *corev1.Pod
	// before are the reasons of the constraints that were tried before the one that admits the pod.
	before []scc.Reason
}

func (o *sccReview) run(ctx context.Context) error {
	objects, err := source.Objects(o.files...)
	if err != nil {
		return err
	}
	setting, err := o.setting(ctx)
	if err != nil {
		return err
	}
	var answers []sccAnswer
	for _, object := range objects {
		template := podTemplateIn(object)
		if template == nil {
			o.Note("%s %s has no pods", object.GetKind(), object.GetName())
			continue
		}
		one, err := o.review(ctx, setting, object, template)
		if err != nil {
			return err
		}
		one.object = output.Object(object.GroupVersionKind().GroupKind(), object.GetName())
		if one.Subject != nil && *one.Subject == scc.UserSubject && object.GetKind() != "Pod" {
			o.Note("%s: its pods are made by a controller, which has not the right of the user: give the service account a right to use %s", one.object, *one.Constraint)
		}
		answers = append(answers, one)
	}
	if len(answers) == 0 {
		return fmt.Errorf("there are no pods in %q", o.files)
	}
	if err := o.write(answers); err != nil {
		return err
	}
	if slices.ContainsFunc(answers, func(a sccAnswer) bool { return !a.Allowed }) {
		return &cli.Exit{Code: 1}
	}
	return nil
}

// review judges an object by the template of its pods.
func (o *sccReview) review(ctx context.Context, s *sccSetting, object *unstructured.Unstructured, template map[string]any) (sccAnswer, error) {
	pod, err := o.podOf(object, template)
	if err != nil {
		return sccAnswer{}, err
	}
	pod.Namespace = s.namespace
	if said := object.GetNamespace(); said != "" && said != s.namespace {
		if s.chosen {
			return sccAnswer{}, fmt.Errorf("%s %s is in namespace %s, and %s was asked about: leave one out", object.GetKind(), object.GetName(), said, s.namespace)
		}
		pod.Namespace = said
	}
	if o.account != "" {
		pod.Spec.ServiceAccountName = o.account
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = "default" // as admission does
	}
	if slices.Contains(scc.ExemptNamespaces, pod.Namespace) {
		return sccAnswer{Allowed: true, Pod: pod, Reasons: []scc.Reason{}, given: pod}, nil
	}
	annotations, err := s.annotations(ctx, pod.Namespace)
	if err != nil {
		return sccAnswer{}, err
	}
	var failure error
	verdict := scc.Review(scc.Request{Pod: pod, UnknownVolumes: scc.UnknownVolumes(template), NamespaceAnnotations: annotations, Constraints: s.constraints,
		Usable: func(constraint *v1alpha1.SecurityContextConstraints) string {
			subject, err := s.usable(ctx, constraint, pod.Namespace, pod.Spec.ServiceAccountName)
			failure = errors.Join(failure, err)
			return subject
		}})
	if failure != nil {
		return sccAnswer{}, failure
	}
	one := sccAnswer{Allowed: verdict.Allowed(), Reasons: []scc.Reason{}, given: pod}
	if !one.Allowed {
		one.Reasons = append(one.Reasons, verdict.Reasons...)
		return one, nil
	}
	one.Constraint, one.Subject, one.Pod, one.before = &verdict.Constraint, &verdict.Subject, verdict.Pod, verdict.Reasons
	written := maps.Clone(verdict.Pod.Annotations)
	if written == nil {
		written = map[string]string{}
	}
	written[v1alpha1.SCCAnnotation], written[v1alpha1.SCCSubjectAnnotation] = verdict.Constraint, verdict.Subject
	one.Pod.Annotations = written
	return one, nil
}
