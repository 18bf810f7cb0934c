package sync

import (
	"cmp"
	"reflect"
	"strconv"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// view is what the commands print for a PolicyRepository.
type view struct {
	// Context is the context of the kubeconfig, or empty without --contexts.
	Context string `json:"context,omitempty"`
	Name    string `json:"name"`
	// Ready is the status of the condition Ready, or Unknown if the condition does not describe the current spec.
	Ready     string                          `json:"ready"`
	Reason    string                          `json:"reason,omitempty"`
	Message   string                          `json:"message,omitempty"`
	Suspended bool                            `json:"suspended,omitempty"`
	Status    v1alpha1.PolicyRepositoryStatus `json:"status"`
	// path is spec.path, or empty if that is unknown.
	path string
	// confirmed is the commit whose deletions are confirmed, or empty.
	confirmed string
	// confirmedRollback is the older commit that is confirmed, or empty.
	confirmedRollback string
}

const checkPods = ": run 'kubectl get pods -n " + v1alpha1.OperatorNamespace + "' to check whether it is running"

func newView(context string, repository *v1alpha1.PolicyRepository) view {
	v := view{
		Context: context, Name: repository.Name, Ready: string(metav1.ConditionUnknown),
		Suspended: repository.Spec.Suspend, Status: repository.Status, path: repository.Spec.Path,
		confirmed:         repository.Annotations[v1alpha1.ConfirmedCommitAnnotation],
		confirmedRollback: repository.Annotations[v1alpha1.ConfirmedRollbackAnnotation],
	}
	ready := apimeta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		v.Reason, v.Message = "NotReported", "nstpl-sync has not reported a status yet"+checkPods
	case v.Status.ObservedGeneration < repository.Generation:
		v.Reason, v.Message = "NotObserved", "nstpl-sync has not seen the last change of the spec yet"+checkPods
	default:
		v.Ready, v.Reason, v.Message = string(ready.Status), ready.Reason, ready.Message
	}
	return v
}

// isReady reports whether the repository's tree is in force.
func (v view) isReady() bool { return v.Ready == string(metav1.ConditionTrue) }

// title returns the name of the repository, with the context if there are several.
func (v view) title() string {
	if v.Context == "" {
		return v.Name
	}
	return v.Context + "/" + v.Name
}

// deleted returns the view of a repository that was deleted after it was shown as v.
func (v view) deleted() view {
	return view{
		Context: v.Context, Name: v.Name, Ready: string(metav1.ConditionUnknown), Reason: "Deleted",
		Message: "the PolicyRepository was deleted, and its objects remain", Status: v.Status,
	}
}

// isSame reports whether two views differ in nothing except for the times of synchronizations that changed nothing.
func (v view) isSame(other view) bool {
	for _, status := range []*v1alpha1.PolicyRepositoryStatus{&v.Status, &other.Status} {
		status.LastSyncTime, status.RequestedAt = nil, ""
	}
	return reflect.DeepEqual(v, other)
}

// columns are the columns of the table, and wideColumns those that only a wide table has. With --contexts, the column
// Context comes first.
var (
	columns     = []string{"Name", "Ready", "Reason", "Commit", "Tree", "Namespaces", "Synced"}
	wideColumns = []string{"Fetched", "Message"}
)

// row returns the cells of the columns and of the wide columns.
func (v view) row(now time.Time) []string {
	synced := "<none>"
	if v.Status.LastSyncTime != nil {
		synced = duration.HumanDuration(now.Sub(v.Status.LastSyncTime.Time))
	}
	return []string{
		v.Name, v.Ready, v.Reason, short(v.Status.Commits.Applied), cmp.Or(v.Status.Tree, "<none>"),
		strconv.Itoa(int(v.Status.Namespaces)), synced, short(v.Status.Commits.Fetched), v.Message,
	}
}
