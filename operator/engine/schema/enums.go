package schema

import (
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// enums are the values of string types, which the Go types do not tell. Only types whose values have been the same in
// all supported versions of Kubernetes are listed, so that no value of a later version is reported. An empty string is
// always valid, since the API server replaces it with a default.
var enums = map[reflect.Type][]string{
	reflect.TypeFor[networkingv1.PolicyType](): {"Egress", "Ingress"},
	reflect.TypeFor[networkingv1.PathType]():   {"Exact", "ImplementationSpecific", "Prefix"},
	reflect.TypeFor[corev1.Protocol]():         {"SCTP", "TCP", "UDP"},
	reflect.TypeFor[corev1.ServiceType](): {
		"ClusterIP", "ExternalName", "LoadBalancer", "NodePort",
	},
	reflect.TypeFor[corev1.ServiceAffinity]():              {"ClientIP", "None"},
	reflect.TypeFor[corev1.ServiceExternalTrafficPolicy](): {"Cluster", "Local"},
	reflect.TypeFor[corev1.ServiceInternalTrafficPolicy](): {"Cluster", "Local"},
	reflect.TypeFor[corev1.IPFamily]():                     {"IPv4", "IPv6"},
	reflect.TypeFor[corev1.IPFamilyPolicy]():               {"PreferDualStack", "RequireDualStack", "SingleStack"},
	reflect.TypeFor[corev1.RestartPolicy]():                {"Always", "Never", "OnFailure"},
	reflect.TypeFor[corev1.PullPolicy]():                   {"Always", "IfNotPresent", "Never"},
	reflect.TypeFor[corev1.DNSPolicy](): {
		"ClusterFirst", "ClusterFirstWithHostNet", "Default", "None",
	},
	reflect.TypeFor[corev1.TaintEffect]():                   {"NoExecute", "NoSchedule", "PreferNoSchedule"},
	reflect.TypeFor[corev1.NodeSelectorOperator]():          {"DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"},
	reflect.TypeFor[corev1.TerminationMessagePolicy]():      {"FallbackToLogsOnError", "File"},
	reflect.TypeFor[corev1.URIScheme]():                     {"HTTP", "HTTPS"},
	reflect.TypeFor[corev1.SeccompProfileType]():            {"Localhost", "RuntimeDefault", "Unconfined"},
	reflect.TypeFor[corev1.AppArmorProfileType]():           {"Localhost", "RuntimeDefault", "Unconfined"},
	reflect.TypeFor[corev1.MountPropagationMode]():          {"Bidirectional", "HostToContainer", "None"},
	reflect.TypeFor[corev1.UnsatisfiableConstraintAction](): {"DoNotSchedule", "ScheduleAnyway"},
	reflect.TypeFor[corev1.PersistentVolumeMode]():          {"Block", "Filesystem"},
	reflect.TypeFor[corev1.PersistentVolumeAccessMode](): {
		"ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod",
	},
	reflect.TypeFor[corev1.ScopeSelectorOperator]():            {"DoesNotExist", "Exists", "In", "NotIn"},
	reflect.TypeFor[metav1.LabelSelectorOperator]():            {"DoesNotExist", "Exists", "In", "NotIn"},
	reflect.TypeFor[policyv1.UnhealthyPodEvictionPolicyType](): {"AlwaysAllow", "IfHealthyBudget"},
	reflect.TypeFor[batchv1.ConcurrencyPolicy]():               {"Allow", "Forbid", "Replace"},
	reflect.TypeFor[batchv1.CompletionMode]():                  {"Indexed", "NonIndexed"},
	reflect.TypeFor[appsv1.DeploymentStrategyType]():           {"Recreate", "RollingUpdate"},
	reflect.TypeFor[appsv1.PodManagementPolicyType]():          {"OrderedReady", "Parallel"},
	reflect.TypeFor[appsv1.DaemonSetUpdateStrategyType]():      {"OnDelete", "RollingUpdate"},
	reflect.TypeFor[autoscalingv2.MetricSourceType](): {
		"ContainerResource", "External", "Object", "Pods", "Resource",
	},
	reflect.TypeFor[autoscalingv2.MetricTargetType]():     {"AverageValue", "Utilization", "Value"},
	reflect.TypeFor[autoscalingv2.ScalingPolicySelect]():  {"Disabled", "Max", "Min"},
	reflect.TypeFor[autoscalingv2.HPAScalingPolicyType](): {"Percent", "Pods"},
	// The scopes differ between versions: VolumeAttributesClass is the latest.
	reflect.TypeFor[corev1.ResourceQuotaScope](): {
		"BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass", "Terminating",
		"VolumeAttributesClass",
	},
}
