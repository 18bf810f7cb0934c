package report

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/rollout"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// now is the time of all reports in tests.
var now = time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)

// contentsOf returns a cluster with so many namespaces. The first one failed, the second one has drifted, and the third
// one is opted out; every hundredth after them is like one of them.
func contentsOf(namespaces int) contents {
	x := contents{
		time: now, cluster: "production", user: "audit@example.com",
		versions:     Versions{Plugin: "v1.2.3", Operator: "v1.2.3", Kubernetes: "v1.36.3"},
		hasTemplates: true,
	}
	for _, name := range []string{"base", "network", "quota"} {
		x.templates = append(x.templates, newTemplate(name, &metav1.LabelSelector{}))
	}
	for i := range 40 {
		team := fmt.Sprintf("team-%02d", i)
		x.templates = append(x.templates, newTemplate(team, &metav1.LabelSelector{MatchLabels: map[string]string{"team": team}}))
		x.spaces = append(x.spaces, newSpace(team, "corp", int64(i*3)))
	}
	x.spaces = append(x.spaces, newSpace("corp", "", 80))
	for i := range namespaces {
		x.namespaces = append(x.namespaces, newNamespace(i))
	}
	x.index = match.NewIndex()
	for _, t := range x.templates {
		specs := map[string]*v1alpha1.NamespaceTemplateSpec{t.Status.Revisions[0].Name: &t.Spec}
		x.index.SetLayers(t, rollout.New(t, t.Status.Revisions, specs))
	}
	x.clusterRoles = []*rbacv1.ClusterRole{{
		ObjectMeta: metav1.ObjectMeta{Name: "platform"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"namespacetemplates"},
			Verbs: []string{"create", "update", "optout"},
		}},
	}}
	role := v1alpha1.RoleReference{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "platform"}
	x.bound = cluster.BoundSubjects{role: {{
		Subject: rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "platform-engineers"}, Binding: "platform",
	}}}
	x.repositories = []v1alpha1.PolicyRepository{{
		ObjectMeta: metav1.ObjectMeta{Name: "corp"},
		Status: v1alpha1.PolicyRepositoryStatus{
			PendingDeletions: &v1alpha1.PendingDeletions{
				Commit: "0a1b2c3", Namespaces: []string{"old-shop", "old-web"}, Total: 2,
			},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}},
		},
	}}
	return x
}

func newTemplate(name string, selector *metav1.LabelSelector) *v1alpha1.NamespaceTemplate {
	return &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1},
		Spec: v1alpha1.NamespaceTemplateSpec{
			Namespaces: v1alpha1.NamespaceSelector{LabelSelector: selector},
			Templates: []runtime.RawExtension{{Raw: []byte(
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"a":"1"}}`)}},
		},
		Status: v1alpha1.NamespaceTemplateStatus{
			ObservedGeneration: 1,
			Revisions: []v1alpha1.TemplateRevision{{
				Name: name + "-1", Revision: 1, Generation: 1, State: v1alpha1.RolloutComplete,
			}},
			Conditions: []metav1.Condition{
				{Type: v1alpha1.TemplateAccepted, Status: metav1.ConditionTrue, ObservedGeneration: 1},
				{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Populated", ObservedGeneration: 1},
			},
		},
	}
}

func newSpace(name, parent string, pods int64) *v1alpha1.PolicySpace {
	list := func(pods int64) corev1.ResourceList {
		return corev1.ResourceList{"pods": *resource.NewQuantity(pods, resource.DecimalSI), "requests.cpu": resource.MustParse("8")}
	}
	return &v1alpha1.PolicySpace{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.PolicySpaceSpec{Parent: parent, Quota: &v1alpha1.PolicySpaceQuota{Hard: list(100)}},
		Status:     v1alpha1.PolicySpaceStatus{Hard: list(100), Used: list(pods), Namespaces: 75},
	}
}

// newNamespace returns a namespace that has a Populated condition unless it is opted out.
func newNamespace(i int) *corev1.Namespace {
	team := fmt.Sprintf("team-%02d", i%40)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("shop-%04d", i), CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
		Labels:      map[string]string{"team": team, v1alpha1.PolicySpaceLabel: team},
		Annotations: map[string]string{v1alpha1.CreatorAnnotation: "jane@example.com"},
	}}
	condition := corev1.NamespaceCondition{
		Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionTrue, Reason: populate.ConditionPopulated,
		Message: "4 objects of base, network, quota, " + team, LastTransitionTime: metav1.NewTime(now.Add(-72 * time.Hour)),
	}
	switch i % 100 {
	case 0:
		condition.Status, condition.Reason = corev1.ConditionFalse, populate.ConditionObjectsFailed
		condition.Message = "resourcequota/budget of template quota: resourcequotas \"budget\" is forbidden: <b>no</b>"
	case 1:
		condition.Message += "; configmap/network: drifted: data.a changed by kubectl-edit"
	case 2:
		ns.Annotations[v1alpha1.OptOutAnnotation] = "true"
		ns.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "kubectl-nstpl", Time: &condition.LastTransitionTime,
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:policy/namespace-template-opt-out":{}}}}`),
		}}
		return ns
	}
	ns.Status.Conditions = []corev1.NamespaceCondition{condition}
	return ns
}
