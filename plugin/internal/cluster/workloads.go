package cluster

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Workload is a DaemonSet, Deployment or StatefulSet.
type Workload struct {
	Kind            schema.GroupKind
	Namespace, Name string
	Pods            corev1.PodSpec
}

// Workloads returns the workloads of all namespaces.
func (c *Cluster) Workloads(ctx context.Context) ([]Workload, error) {
	daemonSets, err := List[appsv1.DaemonSet](ctx, c, appsv1.SchemeGroupVersion.WithResource("daemonsets"),
		metav1.NamespaceAll, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	deployments, err := List[appsv1.Deployment](ctx, c, appsv1.SchemeGroupVersion.WithResource("deployments"),
		metav1.NamespaceAll, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	statefulSets, err := List[appsv1.StatefulSet](ctx, c, appsv1.SchemeGroupVersion.WithResource("statefulsets"),
		metav1.NamespaceAll, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var workloads []Workload
	add := func(kind string, meta metav1.ObjectMeta, pods corev1.PodSpec) {
		workloads = append(workloads,
			Workload{schema.GroupKind{Group: appsv1.GroupName, Kind: kind}, meta.Namespace, meta.Name, pods})
	}
	for i := range daemonSets {
		add("DaemonSet", daemonSets[i].ObjectMeta, daemonSets[i].Spec.Template.Spec)
	}
	for i := range deployments {
		add("Deployment", deployments[i].ObjectMeta, deployments[i].Spec.Template.Spec)
	}
	for i := range statefulSets {
		add("StatefulSet", statefulSets[i].ObjectMeta, statefulSets[i].Spec.Template.Spec)
	}
	return workloads, nil
}

// DeploymentPods returns the pods of a Deployment, or none if it does not exist.
func (c *Cluster) DeploymentPods(ctx context.Context, namespace, name string) (corev1.PodSpec, error) {
	object, err := c.Dynamic.Resource(appsv1.SchemeGroupVersion.WithResource("deployments")).Namespace(namespace).
		Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return corev1.PodSpec{}, client.IgnoreNotFound(err)
	}
	deployment := &appsv1.Deployment{}
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment)
	return deployment.Spec.Template.Spec, err
}
