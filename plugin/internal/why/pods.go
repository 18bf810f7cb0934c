package why

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	strictjson "sigs.k8s.io/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/quantities"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/workload"
)

// creatorOfPods is the user as whom a pod of a workload is tried.
type creatorOfPods struct {
	cluster *cluster.Cluster
	// name says who it is: the controller, or "you".
	name string
	// isController reports whether it is the controller that will create the pods.
	isController bool
}

// tryPods tries to create a pod of a workload that would be allowed, and adds to its answer what becomes of its pods:
// the API server checks them only when a controller creates them.
func (e *explainer) tryPods(ctx context.Context, a *answer, object *unstructured.Unstructured) error {
	template := workload.PodTemplate(object)
	if template == nil || object.GetKind() == "Pod" {
		return nil
	}
	pod, err := podOf(object, template, e.namespace)
	if err != nil {
		a.addUnknownPods(fmt.Sprintf("its pods could not be tried: %v", err))
		return nil
	}
	by, err := e.creatorOfPods(ctx, object)
	if err != nil {
		return err
	}
	kind := pod.GroupVersionKind()
	mapping, err := e.cluster.Mapper.RESTMappingWithContext(ctx, kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	if !by.cluster.MayCreatePods(ctx, e.namespace) {
		a.addUnknownPods("its pods could not be tried: you may neither impersonate the controller that creates them nor " +
			"create pods")
		return nil
	}
	stored, err := by.cluster.Try(ctx, mapping, pod, cli.FieldManager)
	switch {
	case err == nil:
		addAdmitted(a, stored)
		a.add(labelState, "one of its pods was tried, as "+by.name)
		if unknown := cmp.Or(e.unknownRoom(ctx, mapping, stored), unknownPermission(by, stored)); unknown != "" {
			a.addUnknownPods(unknown)
			return nil
		}
		a.PodsAllowed = new(true)
		a.Summary += ", and so would its pods"
		if mayHaveSeveralPods(object) {
			a.add(labelState, "it is unknown whether quotas have room for more than one of them")
		}
		if claims, _, _ := unstructured.NestedSlice(object.Object, "spec", "volumeClaimTemplates"); len(claims) > 0 {
			a.add(labelState, "its volume claims were not tried: if they are denied, its controller creates no pods")
		}
	case !isDecided(err):
		a.addUnknownPods(fmt.Sprintf("its pods could not be tried: %v", err))
	default:
		a.PodsAllowed = new(false)
		e.explainDeniedPods(ctx, a, err)
	}
	return nil
}

// addUnknownPods adds why it is unknown whether the pods of a workload would be allowed.
func (a *answer) addUnknownPods(reason string) {
	a.Summary += ", but it is unknown whether its pods would be"
	a.add(labelState, reason)
}

// explainDeniedPods adds why the pods of a workload would be denied.
func (e *explainer) explainDeniedPods(ctx context.Context, a *answer, err error) {
	verb := "denied"
	if apierrors.IsTooManyRequests(err) {
		verb = "delayed"
	}
	a.Summary += ", but its pods would be " + verb
	e.addDenial(ctx, a, err.Error())
}

// mayHaveSeveralPods reports whether a workload may have more than one pod at the same time.
func mayHaveSeveralPods(object *unstructured.Unstructured) bool {
	field := "replicas"
	switch object.GetKind() {
	case "DaemonSet", "CronJob":
		return true
	case "Job":
		field = "parallelism"
	}
	pods, _, _ := unstructured.NestedInt64(object.Object, "spec", field)
	return pods > 1
}

// unknownPermission says why the API server may not admit pods of the controller as it admitted one of the caller, or
// returns "".
func unknownPermission(by creatorOfPods, stored *unstructured.Unstructured) string {
	constraint := stored.GetAnnotations()[v1alpha1.SCCAnnotation]
	subject := stored.GetAnnotations()[v1alpha1.SCCSubjectAnnotation]
	if by.isController || constraint == "" || subject != scc.UserSubject {
		return ""
	}
	return fmt.Sprintf("your own permission to use %s decided. A controller creates the pods: they are allowed in the "+
		"same way only if their service account may use it", constraint)
}

// creatorOfPods returns the controller of a workload, if the user of the kubeconfig may impersonate it, or else the
// caller.
func (e *explainer) creatorOfPods(ctx context.Context, object *unstructured.Unstructured) (creatorOfPods, error) {
	you := creatorOfPods{cluster: e.cluster, name: "you, since you may not impersonate the controller that creates it"}
	controller := workload.Controller(object.GroupVersionKind().GroupKind()).Name
	account, isKnown := strings.CutPrefix(controller, "system:serviceaccount:")
	if !isKnown {
		you.name = "you, since the controller that creates it is unknown"
		return you, nil
	}
	self, err := e.ConnectAsSelf()
	if err != nil {
		return you, err
	}
	namespace, name, _ := strings.Cut(account, ":")
	allowed, err := self.Allowed(ctx, authorizationv1.ResourceAttributes{
		Verb: "impersonate", Version: "v1", Resource: "serviceaccounts", Namespace: namespace, Name: name,
	})
	if err != nil || !allowed {
		return you, nil //nolint:nilerr // the answer says that the caller was tried
	}
	as, err := e.ConnectAs(controller)
	return creatorOfPods{as, "its controller " + name, true}, err
}

// podOf returns a pod as the controller of a workload creates it.
func podOf(
	object *unstructured.Unstructured, template map[string]any, namespace string,
) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(template)
	if err != nil {
		return nil, err
	}
	if err := quantities.Check(data, reflect.TypeFor[corev1.Pod]()); err != nil {
		return nil, err // the kind may be one of which the API server does not check the template
	}
	pod := &corev1.Pod{}
	if err := strictjson.UnmarshalCaseSensitivePreserveInts(data, pod); err != nil {
		return nil, err
	}
	workload.AddClaims(&pod.Spec, object)
	pod.APIVersion, pod.Kind = "v1", "Pod"
	pod.Name, pod.GenerateName, pod.Namespace = "", object.GetName()+"-", namespace
	if object.GetName() == "" {
		pod.GenerateName = object.GetGenerateName()
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	delete(fields, "status")
	return &unstructured.Unstructured{Object: fields}, err
}
