// Package workload knows the pods of Kubernetes' workloads, and the controllers that create them.
package workload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/attributes"
)

// PodTemplate returns the fields of a pod, or of the pod template of a workload. It returns nil for other objects, also
// for those with a template of something else than pods, such as machines or nodes.
func PodTemplate(object *unstructured.Unstructured) map[string]any {
	if object.GetKind() == "Pod" {
		return object.Object
	}
	for _, path := range [][]string{{"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}, {"template"}} {
		template, _, _ := unstructured.NestedMap(object.Object, path...)
		if containers, _, _ := unstructured.NestedSlice(template, "spec", "containers"); len(containers) > 0 {
			return template
		}
	}
	return nil
}

// AddClaims adds the volumes that the controller of a StatefulSet adds to its first pod, in place of those with the
// same names. It adds none for other workloads.
func AddClaims(pod *corev1.PodSpec, object *unstructured.Unstructured) {
	claims := claimVolumes(object)
	pod.Volumes = slices.DeleteFunc(pod.Volumes, func(v corev1.Volume) bool {
		return slices.ContainsFunc(claims, func(claim corev1.Volume) bool { return claim.Name == v.Name })
	})
	pod.Volumes = append(pod.Volumes, claims...)
}

// claimVolumes returns the volumes of the first pod of a StatefulSet for the claims that its controller creates.
func claimVolumes(object *unstructured.Unstructured) []corev1.Volume {
	if object.GetKind() != "StatefulSet" {
		return nil
	}
	var volumes []corev1.Volume
	claims, _, _ := unstructured.NestedSlice(object.Object, "spec", "volumeClaimTemplates")
	for _, claim := range claims {
		fields, _ := claim.(map[string]any)
		name, _, _ := unstructured.NestedString(fields, "metadata", "name")
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
				ClaimName: name + "-" + object.GetName() + "-0",
			},
		}})
	}
	return volumes
}

// Controller returns the user who creates the pods of a workload: the controller of its kind, not the user who
// created the workload. The name is empty for the controllers of other projects, of which only the groups are known.
func Controller(workload schema.GroupKind) attributes.Requester {
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
