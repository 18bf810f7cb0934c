package check

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

var (
	operatorDeployment = ref{
		kind: appsv1.SchemeGroupVersion.WithKind("Deployment"), namespace: v1alpha1.OperatorNamespace,
		name: v1alpha1.WebhookName,
	}
	syncDeployment = ref{
		kind: appsv1.SchemeGroupVersion.WithKind("Deployment"), namespace: v1alpha1.OperatorNamespace, name: "nstpl-sync",
	}
)

const syncLeaseObject = "lease.coordination.k8s.io/" + cluster.SyncLease

// logs prints the logs of all replicas. For the Deployment, kubectl would print that of one replica.
const logs = "kubectl logs -n " + v1alpha1.OperatorNamespace + " -l app.kubernetes.io/name=" + v1alpha1.WebhookName +
	" --prefix --tail="

const podsRemedy = "'kubectl get pods -n " + v1alpha1.OperatorNamespace + "' and '" + logs + "50' show why"

const syncPodsRemedy = "'kubectl get pods -n " + v1alpha1.OperatorNamespace + "' and 'kubectl logs -n " +
	v1alpha1.OperatorNamespace + " -l app.kubernetes.io/name=nstpl-sync --prefix --tail=50' show why"

// withoutElection is the argument of a program that leads without a lease. The lease may be that of an earlier one.
const withoutElection = "--leader-elect=false"

// deployment returns the operator's Deployment, or nil if it could not be read.
func (a *after) deployment() *appsv1.Deployment {
	return asDeployment(a.stored[operatorDeployment])
}

func (a *after) arguments() []string { return argumentsOf(a.deployment()) }

// argumentsOf returns the arguments in a Deployment, which may be nil.
func argumentsOf(deployment *appsv1.Deployment) []string {
	var arguments []string
	if deployment != nil {
		for i := range deployment.Spec.Template.Spec.Containers {
			arguments = append(arguments, deployment.Spec.Template.Spec.Containers[i].Args...)
		}
	}
	return arguments
}

// image returns the image of the operator in its Deployment.
func (a *after) image() string {
	deployment := a.deployment()
	if deployment == nil || len(deployment.Spec.Template.Spec.Containers) == 0 {
		return ""
	}
	return deployment.Spec.Template.Spec.Containers[0].Image
}

// mutatesByWebhook reports whether the operator's webhook does the work of the MutatingAdmissionPolicies.
func (a *after) mutatesByWebhook() bool {
	return !mutatesByPolicies(a.server.Version) || slices.ContainsFunc(a.arguments(), func(argument string) bool {
		return argument == "--mutate-namespaces" || argument == "--mutate-namespaces=true"
	})
}

// url returns the URL at which the API server calls an operator that does not run in the cluster, or an empty string.
func (a *after) url() string {
	for i := range a.hooks.value {
		h := &a.hooks.value[i]
		if h.configuration == v1alpha1.WebhookName && h.client.URL != nil {
			return *h.client.URL
		}
	}
	return ""
}

// checkDeployment checks whether the replicas of the operator are available.
func checkDeployment(a *after) Result {
	r := Result{Check: "operator-deployment", Object: operatorDeployment.String(), Status: OK}
	found := a.stored[operatorDeployment]
	switch deployment := asDeployment(found); {
	case a.url() != "":
		r.Message = "the operator runs outside of the cluster: the API server calls it at " + a.url()
	case apierrors.IsNotFound(found.err):
		r.Status, r.Message = Failure, "the Deployment of the operator does not exist"
		r.Remedy = a.applyRemedy()
	case found.err != nil:
		return unread(r.Check, "get deployments in namespace "+v1alpha1.OperatorNamespace, found.err)
	case deployment == nil:
		r.Status, r.Message = Unknown, "the Deployment of the operator cannot be decoded"
		r.Remedy = a.applyRemedy()
	default:
		judgeReplicas(&r, deployment)
	}
	return r
}

func asDeployment(found fact[*unstructured.Unstructured]) *appsv1.Deployment {
	deployment := &appsv1.Deployment{}
	if found.err != nil ||
		runtime.DefaultUnstructuredConverter.FromUnstructured(found.value.UnstructuredContent(), deployment) != nil {
		return nil
	}
	return deployment
}

// judgeReplicas sets the result for the Deployment of the operator.
func judgeReplicas(r *Result, deployment *appsv1.Deployment) {
	desired, status := int32(1), deployment.Status
	if deployment.Spec.Replicas != nil {
		desired = *deployment.Spec.Replicas
	}
	available := fmt.Sprintf("%d of %d replicas of the operator are available", status.AvailableReplicas, desired)
	switch {
	case desired == 0:
		r.Status, r.Message = Failure, "the operator is scaled to 0 replicas"
		r.Remedy = fmt.Sprintf("run 'kubectl scale deployment/%s -n %s --replicas=2'", deployment.Name, deployment.Namespace)
	case status.AvailableReplicas == 0:
		r.Status, r.Message, r.Remedy = Failure, available, podsRemedy
	case status.AvailableReplicas < desired:
		r.Status, r.Message, r.Remedy = Warning, available, podsRemedy
	case status.UpdatedReplicas < desired || status.ObservedGeneration < deployment.Generation:
		r.Status, r.Message = Warning, "the replicas of the operator are being replaced"
		r.Remedy = fmt.Sprintf("run 'kubectl rollout status deployment/%s -n %s'", deployment.Name, deployment.Namespace)
	default:
		r.Message = available
	}
}

func checkLeader(a *after) Result {
	r := Result{Check: "operator-leader", Object: "lease.coordination.k8s.io/" + v1alpha1.OperatorLease, Status: OK}
	elects := !slices.Contains(a.arguments(), withoutElection)
	switch {
	case !elects && (apierrors.IsNotFound(a.lease.err) || a.lease.err == nil):
		r.Message = "the operator runs without leader election"
		return r
	case apierrors.IsNotFound(a.lease.err):
		r.Status, r.Message, r.Remedy = Failure, "no operator has ever led in this cluster", podsRemedy
		return r
	case a.lease.err != nil:
		return unread(r.Check, "get the lease "+v1alpha1.OperatorLease+" in namespace "+v1alpha1.OperatorNamespace,
			a.lease.err)
	}
	host, since, isHeld := cluster.HolderOf(a.lease.value, a.now())
	switch {
	case host == "":
		r.Status, r.Message, r.Remedy = Failure, "no operator leads: its lease is not held", podsRemedy
	case !isHeld:
		r.Status, r.Remedy = Failure, podsRemedy
		r.Message = fmt.Sprintf("no operator leads: %s renewed the lease for the last time %s ago", host,
			duration.HumanDuration(since))
	default:
		r.Message = "replica " + host + " leads"
	}
	return r
}

// syncRemedy is the remedy for nstpl-sync that is not installed.
func (a *after) syncRemedy() string {
	if upgrade := a.helmUpgrade(); upgrade != "" {
		return upgrade + ", and components.sync set to true"
	}
	return "apply sync.yaml of the operator's release"
}

// checkSync checks whether something follows the PolicyRepositories. The lease of nstpl-sync says so: a replica that
// does not lead is available too, and nstpl-sync may run outside of the cluster.
func checkSync(a *after) []Result {
	repositories := len(a.own[v1alpha1.PolicyRepositories.Resource].value)
	if repositories == 0 {
		return nil
	}
	r := Result{Check: "sync-deployment", Object: syncDeployment.String(), Status: OK, Message: "nstpl-sync is available"}
	deployment := asDeployment(a.sync)
	elects := !slices.Contains(argumentsOf(deployment), withoutElection)
	switch host, _, isHeld := a.syncHolder(); {
	case elects && isHeld:
		r.Object, r.Message = syncLeaseObject, "nstpl-sync runs on "+host
		if apierrors.IsNotFound(a.sync.err) || deployment != nil && deployment.Status.Replicas == 0 {
			r.Message += ", outside of the cluster"
		}
	case elects && a.syncLease.err != nil && !apierrors.IsNotFound(a.syncLease.err):
		r = unread(r.Check, "get the lease "+cluster.SyncLease+" in namespace "+v1alpha1.OperatorNamespace, a.syncLease.err)
	case a.sync.err != nil && !apierrors.IsNotFound(a.sync.err):
		r = unread(r.Check, "get deployments in namespace "+v1alpha1.OperatorNamespace, a.sync.err)
	case elects || deployment.Status.AvailableReplicas == 0:
		r.Status = Failure
		r.Message, r.Remedy = a.whyNotFollowed(deployment, elects)
		r.Message += ", and nothing follows " + output.Count(repositories, "PolicyRepository object")
	}
	return []Result{r}
}

// syncHolder returns what cluster.HolderOf returns for the lease of nstpl-sync.
func (a *after) syncHolder() (host string, since time.Duration, isHeld bool) {
	if a.syncLease.err != nil {
		return "", 0, false
	}
	return cluster.HolderOf(a.syncLease.value, a.now())
}

// whyNotFollowed returns why no nstpl-sync follows PolicyRepositories, and the remedy.
func (a *after) whyNotFollowed(deployment *appsv1.Deployment, elects bool) (why, remedy string) {
	switch {
	case deployment == nil:
		why, remedy = "nstpl-sync is not installed", a.syncRemedy()
		if a.syncLease.err == nil {
			remedy += ", or start nstpl-sync where it ran before"
		}
	case deployment.Status.Replicas == 0:
		why = "the Deployment of nstpl-sync has no pods"
		remedy = "run 'kubectl scale deployment/nstpl-sync -n " + v1alpha1.OperatorNamespace + " --replicas=1' if it " +
			"is scaled to 0; otherwise its conditions show why"
	case deployment.Status.AvailableReplicas == 0:
		why, remedy = "no replica of nstpl-sync is available", syncPodsRemedy
	default:
		why, remedy = "no replica of nstpl-sync leads", syncPodsRemedy
	}
	switch host, since, _ := a.syncHolder(); {
	case !elects || a.syncLease.err != nil:
	case host == "":
		why += ", nothing holds the lease"
	default:
		why += fmt.Sprintf(", %s renewed the lease for the last time %s ago", host, duration.HumanDuration(since))
	}
	return why, remedy
}
