package constraint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/source"
	"nstpl.dev/nstpl/plugin/internal/workload"
)

type review struct {
	cli.Session
	files         source.Filenames
	constraints   []string
	namespaceFile string
	account       string
	match         string
	output        cli.ListFlags
}

func newReview(s cli.Session) *cobra.Command {
	o := &review{Session: s}
	cmd := &cobra.Command{
		Use: "review -f FILE [-R] | -k DIR [-z SERVICEACCOUNT] [--as USER --as-group GROUP...] " +
			"[-o name|json|yaml|...]",
		Short: "Show which SecurityContextConstraints admit a pod, or why none does",
		Long: templates.LongDesc(`
			Show which SecurityContextConstraints would admit pods, or the pods of workloads, and which fields they
			would set. If no constraints admit a pod, show which of its fields each of them does not allow. The
			command decides with the same code as the operator.

			The controller of a workload creates its pods, so your own permissions do not matter for them: its service
			account or the controller must be able to use the constraints, or both with ` + matchFlag + `=intersection.

			If you may not read constraints, or who may use them, the API server decides in a dry run, as if you created
			the pod.

			With --constraints, the command needs no cluster. The constraints, the roles and bindings of RBAC, and the
			namespace come from files, and the user and groups from --as and --as-group.

			Exit status: 0 if all pods are admitted, 1 if a pod is not admitted or the command failed.`),
		Example: templates.Examples(`
			# Review a pod that you would create in the namespace team-a
			kubectl nstpl scc review -f pod.yaml -n team-a

			# Review a pod with another service account, created by jane
			kubectl nstpl scc review -f pod.yaml -n team-a -z builder --as jane

			# Review a pod without a cluster
			kubectl nstpl scc review -f pod.yaml --constraints constraints/ --namespace-file namespace.yaml --as jane`),
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filesErr := o.files.Check()
			switch {
			case filesErr != nil:
				return cli.UsageError(cmd, filesErr)
			case o.files.IsEmpty():
				return cli.UsageError(cmd, errors.New("specify a file with -f"))
			case o.match != "" && o.match != matchUnion && o.match != matchIntersection:
				return cli.UsageError(cmd, fmt.Errorf("invalid %s %q: specify %s or %s", matchFlag, o.match, matchUnion,
					matchIntersection))
			case o.namespaceFile != "" && len(o.constraints) == 0:
				return cli.UsageError(cmd, errors.New("--namespace-file requires --constraints"))
			}
			return o.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	o.files.AddFlags(cmd, "pods and workloads")
	flags.StringVarP(&o.account, "serviceaccount", "z", "",
		"The service account of the pods. Overrides the service account in the files.")
	flags.StringArrayVar(&o.constraints, "constraints", nil,
		"A file or directory with SecurityContextConstraints, roles and bindings, to use instead of those in the cluster.")
	flags.StringVar(&o.match, strings.TrimPrefix(matchFlag, "--"), "",
		"Whose permission counts: union (the creator or the service account) or intersection (both). The default is the "+
			"flag of the operator in the cluster, or union.")
	flags.StringVar(&o.namespaceFile, "namespace-file", "",
		"A file with the Namespace of the pods, to use instead of the one in the cluster.")
	o.output.AddTo(cmd, cli.ListOptions{Names: true, Formats: []string{cli.FormatTable}})
	return cmd
}

// result is what review prints for a pod.
type result struct {
	Ref        output.ObjectRef `json:"object"`
	Allowed    bool             `json:"allowed"`
	Constraint *string          `json:"constraint"`
	Subject    *string          `json:"subject"`
	Pod        *corev1.Pod      `json:"pod"`
	Reasons    []scc.Reason     `json:"reasons"`
	// Object is the name of the pod or the workload: "deployment.apps/web".
	Object string `json:"-"`
	// original is the pod before the review.
	original *corev1.Pod
	// isIntersection reports whether both the creator and the service account may use the constraints.
	isIntersection bool
	// isTried reports whether a dry run decided. The constraints are then unknown.
	isTried bool
	// triedBefore holds the reasons why the constraints before Constraint do not admit the pod.
	triedBefore []scc.Reason
}

func (o *review) run(ctx context.Context) error {
	objects, skipped, err := source.Objects(o.files, o.In)
	if err != nil {
		return err
	}
	for _, note := range skipped {
		o.Note("skipped %s", note)
	}
	env, err := o.environment(ctx)
	if err != nil {
		return err
	}
	var results []result
	for _, object := range objects {
		if object.GetName() == "" {
			object.SetName(object.GetGenerateName())
		}
		template := workload.PodTemplate(object)
		if template == nil {
			o.Note("skipped %s %s: it has no pods", object.GetKind(), object.GetName())
			continue
		}
		reviewed, err := o.reviewObject(ctx, env, object, template)
		if err != nil {
			return err
		}
		reviewed.Ref = output.NewObjectRef(object.GroupVersionKind(), reviewed.original.Namespace, object.GetName())
		reviewed.Object = render.IDOf(object).String()
		results = append(results, reviewed)
	}
	if len(results) == 0 {
		return fmt.Errorf("no pods found in %s", &o.files)
	}
	if err := o.write(results); err != nil {
		return err
	}
	if slices.ContainsFunc(results, func(r result) bool { return !r.Allowed }) {
		return &cli.Exit{Code: 1}
	}
	return nil
}

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
				fmt.Errorf("%s %s is in namespace %s, which does not match namespace %s", object.GetKind(),
					object.GetName(), own, env.namespace)
		}
		pod.Namespace = own
	}
	// Admission sets the default.
	pod.Spec.ServiceAccountName = cmp.Or(o.account, pod.Spec.ServiceAccountName, "default")
	if slices.Contains(env.exempt, pod.Namespace) {
		return result{Allowed: true, Pod: pod, Reasons: []scc.Reason{}, original: pod}, nil
	}
	if env.isUnlisted {
		return o.try(ctx, env, object, pod)
	}
	annotations, err := env.annotations(ctx, pod.Namespace)
	if err != nil {
		return result{}, err
	}
	if env.reader != nil && env.reader.LacksServiceAccount(ctx, pod.Namespace, pod.Spec.ServiceAccountName) {
		o.Note("Warning: serviceaccount %q not found in namespace %s: its pods cannot be created",
			pod.Spec.ServiceAccountName, pod.Namespace)
	}
	by := creator{env.requester, true}
	if object.GetKind() != "Pod" {
		by = creator{workload.Controller(object.GroupVersionKind().GroupKind()), false}
	}
	var unread error
	verdict := scc.Review(scc.Request{
		Pod: pod, Unknown: scc.UnknownFieldsOf(template), NamespaceAnnotations: annotations,
		AccountAnnotations: func() (map[string]string, error) {
			annotations, err := env.accountAnnotations(ctx, pod.Namespace, pod.Spec.ServiceAccountName)
			if !apierrors.IsNotFound(err) {
				unread = cmp.Or(unread, err)
			}
			return annotations, err
		},
		Constraints:  env.constraints,
		Intersection: env.isIntersection,
		Usable: func(constraint *v1alpha1.SecurityContextConstraints, subject string) bool {
			who := by
			if subject == scc.ServiceAccountSubject {
				who = creator{
					scc.AccountRequester(pod.Namespace, pod.Spec.ServiceAccountName, env.isIntersection), false,
				}
			}
			allowed, err := env.mayUse(ctx, constraint, pod.Namespace, who)
			unread = cmp.Or(unread, err)
			return allowed && err == nil
		},
	})
	switch {
	case apierrors.IsForbidden(unread):
		return o.try(ctx, env, object, pod)
	case unread != nil:
		return result{}, unread
	}
	reviewed := result{Allowed: verdict.Allowed(), Reasons: []scc.Reason{}, original: pod,
		isIntersection: env.isIntersection}
	if !reviewed.Allowed {
		reviewed.Reasons = append(reviewed.Reasons, verdict.Reasons...)
		return reviewed, nil
	}
	reviewed.Constraint, reviewed.Subject, reviewed.Pod, reviewed.triedBefore = &verdict.Constraint, &verdict.Subject,
		verdict.Pod, verdict.Reasons
	reviewed.Pod.Annotations = labels.Merge(verdict.Pod.Annotations, map[string]string{
		v1alpha1.SCCAnnotation: verdict.Constraint, v1alpha1.SCCSubjectAnnotation: verdict.Subject,
	})
	return reviewed, nil
}
