package constraint

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/source"
)

type review struct {
	cli.Session
	files         []string
	constraints   []string
	namespaceFile string
	account       string
	output        cli.FormatFlag
}

func newReview(s cli.Session) *cobra.Command {
	o := &review{Session: s}
	cmd := &cobra.Command{
		Use:   "review -f FILE [-z SERVICEACCOUNT] [--as USER --as-group GROUP...] [-o table|yaml|json]",
		Short: "Show which SecurityContextConstraints admit a pod and what they set, or why none does",
		Long: templates.LongDesc(`
			Show which SecurityContextConstraints would admit pods, or the pods of workloads, and what they would set
			on them; or, for each of the constraints, what it does not allow. It runs what the operator runs.

			With --constraints it needs no cluster: the constraints and the namespace come from files, users and
			groups from --as and --as-group, and nobody has the verb use.

			Exit status: 0 if all are admitted, and 1 if not or if it can't be told.`),
		Example: templates.Examples(`
			# What becomes of a pod that I create in team-a
			kubectl nstpl scc review -f pod.yaml -n team-a

			# And of one with another service account, created by somebody else
			kubectl nstpl scc review -f pod.yaml -n team-a -z builder --as jane

			# Without a cluster
			kubectl nstpl scc review -f pod.yaml --constraints constraints/ --namespace-file namespace.yaml --as jane -o json`),
		DisableFlagsInUseLine: true,
		Args:                  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			formatErr := o.output.Check(cmd)
			switch {
			case len(o.files) == 0:
				return cli.UsageError(cmd, errors.New("name a file with -f"))
			case formatErr != nil:
				return formatErr
			case o.namespaceFile != "" && len(o.constraints) == 0:
				return cli.UsageError(cmd,
					errors.New("--namespace-file goes with --constraints: in a cluster, the namespace is there"))
			}
			return o.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&o.files, "filename", "f", nil,
		"A file or folder with pods and workloads, a URL, or - for standard input. Symbolic links are not followed.")
	flags.StringVarP(&o.account, "serviceaccount", "z", "",
		"The service account of the pods, in place of the one that they name.")
	flags.StringArrayVar(&o.constraints, "constraints", nil,
		"A file or folder with SecurityContextConstraints, in place of the cluster's.")
	flags.StringVar(&o.namespaceFile, "namespace-file", "",
		"A file with the Namespace of the pods, in place of the cluster's.")
	o.output.AddTo(cmd, cli.FormatTable, "Output format", cli.FormatTable, cli.FormatYAML, cli.FormatJSON)
	return cmd
}

// result is what review -o json prints about a pod.
type result struct {
	Allowed    bool         `json:"allowed"`
	Constraint *string      `json:"constraint"`
	Subject    *string      `json:"subject"`
	Pod        *corev1.Pod  `json:"pod"`
	Reasons    []scc.Reason `json:"reasons"`
	// object names what the pod is, or is made by: "deployment.apps/web".
	object string
	// given is the pod before the review.
	given *corev1.Pod
	// before holds the reasons why constraints that were tried earlier do not admit the pod.
	before []scc.Reason
}

func (o *review) run(ctx context.Context) error {
	objects, err := source.Objects(o.files...)
	if err != nil {
		return err
	}
	env, err := o.environment(ctx)
	if err != nil {
		return err
	}
	var results []result
	for _, object := range objects {
		template := podTemplateIn(object)
		if template == nil {
			o.Note("%s %s has no pods", object.GetKind(), object.GetName())
			continue
		}
		reviewed, err := o.reviewObject(ctx, env, object, template)
		if err != nil {
			return err
		}
		reviewed.object = output.Object(object.GroupVersionKind().GroupKind(), object.GetName())
		if reviewed.Subject != nil && *reviewed.Subject == scc.UserSubject && object.GetKind() != "Pod" {
			o.Note(
				"%s: its pods are made by a controller, which has not the right of the user: give the service account a right to use %s", reviewed.object, *reviewed.Constraint)
		}
		results = append(results, reviewed)
	}
	if len(results) == 0 {
		return fmt.Errorf("there are no pods in %q", o.files)
	}
	if err := o.write(results); err != nil {
		return err
	}
	if slices.ContainsFunc(results, func(r result) bool { return !r.Allowed }) {
		return &cli.Exit{Code: 1}
	}
	return nil
}

// reviewObject reviews the pod that an object is, or that is made of its template.
func (o *review) reviewObject(
	ctx context.Context, env *environment, object *unstructured.Unstructured, template map[string]any,
) (result, error) {
	pod, err := o.podOf(object, template)
	if err != nil {
		return result{}, err
	}
	pod.Namespace = env.namespace
	if own := object.GetNamespace(); own != "" && own != env.namespace {
		if env.explicit {
			return result{},
				fmt.Errorf("%s %s is in namespace %s, and %s was asked about: leave one out", object.GetKind(),
					object.GetName(), own, env.namespace)
		}
		pod.Namespace = own
	}
	if o.account != "" {
		pod.Spec.ServiceAccountName = o.account
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = "default" // as admission does
	}
	if slices.Contains(scc.ExemptNamespaces, pod.Namespace) {
		return result{Allowed: true, Pod: pod, Reasons: []scc.Reason{}, given: pod}, nil
	}
	annotations, err := env.annotations(ctx, pod.Namespace)
	if err != nil {
		return result{}, err
	}
	var usableErr error
	verdict := scc.Review(scc.Request{
		Pod: pod, UnknownVolumes: scc.UnknownVolumes(template), NamespaceAnnotations: annotations,
		Constraints: env.constraints,
		Usable: func(constraint *v1alpha1.SecurityContextConstraints) string {
			subject, err := env.usableBy(ctx, constraint, pod.Namespace, pod.Spec.ServiceAccountName)
			usableErr = errors.Join(usableErr, err)
			return subject
		},
	})
	if usableErr != nil {
		return result{}, usableErr
	}
	reviewed := result{Allowed: verdict.Allowed(), Reasons: []scc.Reason{}, given: pod}
	if !reviewed.Allowed {
		reviewed.Reasons = append(reviewed.Reasons, verdict.Reasons...)
		return reviewed, nil
	}
	reviewed.Constraint, reviewed.Subject, reviewed.Pod, reviewed.before = &verdict.Constraint, &verdict.Subject,
		verdict.Pod, verdict.Reasons
	reviewed.Pod.Annotations = labels.Merge(verdict.Pod.Annotations, map[string]string{
		v1alpha1.SCCAnnotation: verdict.Constraint, v1alpha1.SCCSubjectAnnotation: verdict.Subject,
	})
	return reviewed, nil
}
