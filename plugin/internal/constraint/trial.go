package constraint

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/plugin/internal/cli"
)

// reasonInDenial matches the reason of a constraint in the message of a denial: "- constraint NAME: FIELD: MESSAGE", or
// without a field.
var reasonInDenial = regexp.MustCompile(
	`^- constraint ([a-z0-9][a-z0-9.-]*): (?:([A-Za-z][^\s:]*(?:\[[^\]]*\])?): )?(.+)$`)

// reasonsIn returns the reasons in the message of a denial: those of constraints, or else the message itself.
func reasonsIn(message string) []scc.Reason {
	var reasons []scc.Reason
	if slices.Contains(codes.Find(message), codes.ConstraintDenied) {
		for line := range strings.Lines(codes.Trim(message)) {
			if match := reasonInDenial.FindStringSubmatch(strings.TrimSpace(line)); match != nil {
				reasons = append(reasons, scc.Reason{Constraint: match[1], Field: match[2], Message: match[3]})
			}
		}
	}
	if len(reasons) == 0 {
		return []scc.Reason{{Message: message}}
	}
	return reasons
}

// try asks the API server, by a dry run, whether it would admit the pod of an object if the caller created it. A user
// who may not read constraints, or who may use them, gets an answer this way.
func (o *review) try(
	ctx context.Context, env *environment, object *unstructured.Unstructured, pod *corev1.Pod,
) (result, error) {
	reviewed := result{Reasons: []scc.Reason{}, original: pod, isTried: true}
	if !env.hasTried {
		env.hasTried = true
		o.Note("you may not read who may use SecurityContextConstraints, so the API server decides in a dry run: " +
			"ask for the ClusterRole nstpl-auditor to see what each of them does not allow")
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return result{}, err
	}
	request := &unstructured.Unstructured{Object: fields}
	request.SetName("")
	request.SetGenerateName(pod.Name + "-") // a pod of this name may exist
	request.SetResourceVersion("")          // the file may be of a pod that exists
	unstructured.RemoveNestedField(request.Object, "status")
	stored, err := env.caller.Dynamic.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(pod.Namespace).
		Create(ctx, request, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: cli.FieldManager})
	switch {
	case apierrors.IsForbidden(err) && !env.caller.MayCreatePods(ctx, pod.Namespace):
		return result{}, fmt.Errorf("you may neither read the SecurityContextConstraints nor create pods in "+
			"namespace %s: ask a cluster administrator for the ClusterRole nstpl-viewer, "+
			"or an administrator of the namespace for the ClusterRole edit in it", pod.Namespace)
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
		reviewed.Reasons = append(reviewed.Reasons, reasonsIn(err.Error())...)
		return reviewed, nil
	case err != nil:
		return result{}, err
	}
	reviewed.Allowed = true
	reviewed.Pod = &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, reviewed.Pod); err != nil {
		return result{}, err
	}
	reviewed.Pod.Name, reviewed.Pod.GenerateName, reviewed.Pod.ManagedFields = pod.Name, "", nil
	if name, ok := reviewed.Pod.Annotations[v1alpha1.SCCAnnotation]; ok {
		subject := reviewed.Pod.Annotations[v1alpha1.SCCSubjectAnnotation]
		reviewed.Constraint, reviewed.Subject = &name, &subject
	}
	if object.GetKind() != "Pod" && reviewed.Subject != nil && *reviewed.Subject == scc.UserSubject {
		o.Note("%s: your own permission to use %s decided, but a controller creates the pods: "+
			"they are admitted the same way only if service account %s may use it",
			render.IDOf(object), *reviewed.Constraint, pod.Spec.ServiceAccountName)
	}
	return reviewed, nil
}
