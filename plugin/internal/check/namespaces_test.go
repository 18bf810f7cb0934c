package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// namespace returns a namespace of an age.
func namespace(name string, age time.Duration, change ...func(*corev1.Namespace)) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.NewTime(now.Add(-age)),
		Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	for _, apply := range change {
		apply(ns)
	}
	return ns
}

func held(pending string) func(*corev1.Namespace) {
	return func(ns *corev1.Namespace) {
		ns.Labels[v1alpha1.InitializingLabel], ns.Annotations[v1alpha1.PendingAnnotation] = "true", pending
	}
}

func deleted(age time.Duration) func(*corev1.Namespace) {
	return func(ns *corev1.Namespace) { ns.DeletionTimestamp = &metav1.Time{Time: now.Add(-age)} }
}

func condition(kind corev1.NamespaceConditionType, status corev1.ConditionStatus, reason, message string) func(*corev1.Namespace) {
	return func(ns *corev1.Namespace) {
		ns.Status.Conditions = append(ns.Status.Conditions,
			corev1.NamespaceCondition{Type: kind, Status: status, Reason: reason, Message: message})
	}
}

func TestHeldNamespaces(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		namespaces      []*corev1.Namespace
		status          Status
		message, remedy string
	}{
		"none": {[]*corev1.Namespace{namespace("a", time.Hour)}, OK, "no namespace waits", ""},
		"young": {
			[]*corev1.Namespace{namespace("a", time.Second, held("namespace-template"))}, OK,
			"1 namespace held until initialized, all of them younger than", "",
		},
		"old": {[]*corev1.Namespace{
			namespace("b", time.Hour, held("namespace-template")), namespace("a", 2*time.Minute, held("x")),
		}, Warning, "2 namespaces held until initialized; the oldest, b, has waited for namespace-template for 60m",
			"kubectl nstpl why namespace/b"},
		"of another initializer": {
			[]*corev1.Namespace{namespace("a", time.Hour, held("namespace-template,dns.example.com"))}, Warning,
			"has waited for namespace-template, dns.example.com", "the controllers of these initializers",
		},
		"without a list": {
			[]*corev1.Namespace{namespace("a", time.Hour, held(""))}, Warning, "has waited for the operator",
			"why namespace/a",
		},
		"being deleted": {
			[]*corev1.Namespace{namespace("a", time.Hour, held(""), deleted(0))}, OK, "no namespace waits", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireResult(t, []Result{heldNamespaces(test.namespaces, now)}, test.status, test.message, test.remedy)
		})
	}
}

func TestFailedNamespaces(t *testing.T) {
	t.Parallel()
	populated := func(status corev1.ConditionStatus, reason string) func(*corev1.Namespace) {
		return condition(v1alpha1.NamespacePopulated, status, reason, "")
	}
	failed := populated(corev1.ConditionFalse, populate.ConditionObjectsFailed)
	namespaces := []*corev1.Namespace{
		namespace("a", 0, populated(corev1.ConditionTrue, populate.ConditionPopulated)), namespace("b", 0),
	}
	requireResult(t, []Result{failedNamespaces(namespaces)}, OK, "1 namespace populated, and none failed", "")
	namespaces = append(namespaces, namespace("c", 0, populated(corev1.ConditionFalse, populate.ConditionRetrying)))
	requireResult(t, []Result{failedNamespaces(namespaces)}, Warning, "tried again: c", "kubectl nstpl status --failing")
	for _, name := range []string{"g", "f", "e", "d"} {
		namespaces = append(namespaces, namespace(name, 0, failed))
	}
	namespaces = append(namespaces, namespace("z", 0, failed, deleted(0)))
	requireResult(t, []Result{failedNamespaces(namespaces)}, Failure, "4 namespaces not populated: d, e, f and 1 more",
		"kubectl nstpl status --failing")
}

func TestDriftedNamespaces(t *testing.T) {
	t.Parallel()
	reported := func(message string) func(*corev1.Namespace) {
		return condition(v1alpha1.NamespacePopulated, corev1.ConditionTrue, populate.ConditionPopulated, message)
	}
	namespaces := []*corev1.Namespace{
		namespace("a", 0, reported("configmap/x: declared by templates a, b")), namespace("b", 0),
		namespace("c", 0, reported("configmap/x: drifted: data.a changed by editor"), deleted(0)),
		namespace("fought", 0, reported("configmap/x: is changed again and again by editor")), // another check warns
	}
	requireResult(t, []Result{driftedNamespaces(namespaces)}, OK, "no namespace has uncorrected drift", "")
	for _, message := range []string{
		"configmap/x: no; configmap/y: no; …", "configmap/x: no; configmap/y: is changed again and again by editor; …",
	} {
		shortened := namespace("s", 0, reported(message))
		requireResult(t, []Result{driftedNamespaces(append(namespaces, shortened))}, Unknown,
			"unknown whether there are more objects with drift", "kubectl nstpl diff s")
	}
	namespaces = append(namespaces, namespace("d", 0, reported("configmap/x: drifted: data.a changed by editor")))
	requireResult(t, []Result{driftedNamespaces(namespaces)}, Warning, "1 namespace with uncorrected drift: d",
		"kubectl nstpl diff d")
}

func TestDeletedNamespaces(t *testing.T) {
	t.Parallel()
	waits := condition("NamespaceFinalizersRemaining", corev1.ConditionTrue, "", "policy.nstpl.dev/x in 1 resource instances")
	namespaces := []*corev1.Namespace{
		namespace("a", time.Hour, deleted(time.Second), waits),
		namespace("b", time.Hour, deleted(time.Hour)),
		namespace("c", time.Hour, deleted(time.Hour), condition("NamespaceContentRemaining", corev1.ConditionTrue, "", "pods.")),
		namespace("d", time.Hour, deleted(time.Hour),
			condition(v1alpha1.NamespacePopulated, corev1.ConditionTrue, "", "policy.nstpl.dev")),
	}
	requireResult(t, []Result{deletedNamespaces(namespaces, now)}, OK, "the deletion of no namespace waits", "")
	namespaces = append(namespaces, namespace("e", time.Hour, deleted(time.Hour), waits))
	requireResult(t, []Result{deletedNamespaces(namespaces, now)}, Failure, "1 namespace waits for nstpl: e",
		"kubectl get namespace e")
}

func TestNamespacesCannotBeListed(t *testing.T) {
	t.Parallel()
	a := healthy(t)
	a.namespaces.err = errForbidden
	requireResult(t, checkNamespaces(a), Unknown, "you may not list namespaces", "administrator")
	a.namespaces.err = nil
	require.Len(t, checkNamespaces(a), 4)
}

func TestRemainingGrants(t *testing.T) {
	t.Parallel()
	stays := condition(v1alpha1.NamespacePopulated, corev1.ConditionTrue, populate.ConditionPopulated,
		"1 object of t; rolebinding.rbac.authorization.k8s.io/x: stays, although no template declares it: existed before")
	require.Empty(t, reportedObjects([]*corev1.Namespace{namespace("a", 0)}))
	requireResult(t, reportedObjects([]*corev1.Namespace{namespace("a", 0, condition(v1alpha1.NamespacePopulated,
		corev1.ConditionTrue, populate.ConditionPopulated, "configmap/x: drifted: data.a; …"))}), Unknown,
		"unknown whether there are more grants that no template declares any more", "resolve the findings")
	requireResult(t, reportedObjects([]*corev1.Namespace{namespace("a", 0, stays)}), Warning,
		"1 grant that no template declares any more: rolebinding.rbac.authorization.k8s.io/x in namespace a", "delete those")
}

func TestFoughtObjects(t *testing.T) {
	t.Parallel()
	fought := condition(v1alpha1.NamespacePopulated, corev1.ConditionTrue, populate.ConditionPopulated,
		"1 object of t; configmap/x: is changed again and again by rival, so it is corrected less and less often")
	require.Empty(t, reportedObjects([]*corev1.Namespace{namespace("a", 0)}))
	requireResult(t, reportedObjects([]*corev1.Namespace{namespace("a", 0, fought)}), Warning,
		"other clients change 1 object again and again: configmap/x in namespace a", "stop them")
	labels := condition(v1alpha1.NamespacePopulated, corev1.ConditionTrue, populate.ConditionPopulated,
		"namespace/a: label x is changed again and again by rival; namespace/a: label y is changed again and again by rival")
	requireResult(t, reportedObjects([]*corev1.Namespace{namespace("a", 0, labels)}), Warning,
		"other clients change 1 object again and again: namespace/a in namespace a", "stop them")
}

func TestAlteredObjects(t *testing.T) {
	t.Parallel()
	const altered = "is not stored as it is declared: data.a: mutating admission changes it"
	warning := condition(v1alpha1.NamespacePopulated, corev1.ConditionTrue, populate.ConditionPopulated,
		"1 object of t; configmap/x: "+altered)
	failure := condition(v1alpha1.NamespacePopulated, corev1.ConditionFalse, populate.ConditionObjectsFailed,
		"networkpolicy.networking.k8s.io/y of template t: "+altered)
	requireResult(t, reportedObjects([]*corev1.Namespace{namespace("a", 0, warning), namespace("b", 0, failure)}), Warning,
		"admission changes 2 objects while they are stored: configmap/x in namespace a, "+
			"networkpolicy.networking.k8s.io/y in namespace b", "exempt the objects")
}
