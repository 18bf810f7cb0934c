package constraint

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/attributes"
)

// controllerOf returns the user who creates the pods of a workload: the controller of its kind, not the user who
// created the workload. The name is empty for the controllers of other projects, of which only the groups are known.
func controllerOf(workload schema.GroupKind) attributes.Requester {
	controllers := map[schema.GroupKind]string{
		{Group: "apps", Kind: "DaemonSet"}:         "daemon-set-controller",
		{Group: "apps", Kind: "Deployment"}:        "replicaset-controller",
		{Group: "apps", Kind: "ReplicaSet"}:        "replicaset-controller",
		{Group: "apps", Kind: "StatefulSet"}:       "statefulset-controller",
		{Group: "batch", Kind: "CronJob"}:          "job-controller",
		{Group: "batch", Kind: "Job"}:              "job-controller",
		{Group: "", Kind: "ReplicationController"}: "replication-controller",
	}
	groups := []string{"system:serviceaccounts", "system:authenticated"}
	name, isKnown := controllers[workload]
	if !isKnown {
		return attributes.Requester{Groups: groups}
	}
	return attributes.Requester{
		Name: "system:serviceaccount:kube-system:" + name, Groups: append(groups, "system:serviceaccounts:kube-system"),
	}
}
