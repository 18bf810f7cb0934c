package check

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ready returns the facts of a cluster in which the caller may install nstpl.
func ready(t *testing.T) *before {
	t.Helper()
	b := &before{
		common: empty(t), rights: map[authorizationv1.ResourceAttributes]fact[bool]{}, denied: map[ref]error{},
	}
	for _, request := range rightsToInstall(b.needed()) {
		b.rights[request] = fact[bool]{value: true}
	}
	for _, object := range b.needed() {
		b.denied[refOf(object)] = nil
	}
	return b
}

var operatorRole = ref{kind: rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), name: "nstpl-operator"}

func TestRightsToInstall(t *testing.T) {
	t.Parallel()
	b := ready(t)
	requireResult(t, checkRights(b), OK, "you may install nstpl", "")
	require.Contains(t, b.rights, authorizationv1.ResourceAttributes{
		Namespace: "nstpl-system", Verb: "create", Group: "apps", Version: "v1", Resource: "deployments",
	})
	require.Contains(t, b.rights, authorizationv1.ResourceAttributes{
		Verb: "patch", Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})

	for request := range b.rights {
		b.rights[request] = fact[bool]{value: request.Verb != "create"}
	}
	requireResult(t, checkRights(b), Failure, "you may not create clusterrolebindings, clusterroles, configmaps and ",
		"administrator")

	b = ready(t)
	b.denied[operatorRole] = apierrors.NewForbidden(schema.GroupResource{Resource: "clusterroles"}, operatorRole.name,
		errors.New("user \"x\" is attempting to grant RBAC permissions not currently held"))
	requireResult(t, checkRights(b), Failure, "which you do not have yourself: clusterrole.rbac", "escalate and bind")
	require.NotEmpty(t, b.denied)

	for request := range b.rights {
		b.rights[request] = fact[bool]{err: errForbidden}
	}
	requireResult(t, checkRights(b), Unknown, "selfsubjectaccessreviews", "administrator")
}

func TestOtherAdmissionRejectsObjects(t *testing.T) {
	t.Parallel()
	b := ready(t)
	requireResult(t, checkDryRuns(b), OK, "no admission webhook", "")
	b.denied[operatorRole] = errors.New(`admission webhook "deny.example.com" denied the request: no`)
	requireResult(t, checkDryRuns(b), Failure,
		`clusterrole.rbac.authorization.k8s.io/nstpl-operator would be rejected: admission webhook "deny.example.com"`,
		"exempt")
	b.denied[operatorRole] = errNotFound // the role of a binding that would be created before it
	requireResult(t, checkDryRuns(b), OK, "no admission webhook", "")
	b.denied[operatorRole] = mayNotCreate("clusterroles")
	requireResult(t, checkDryRuns(b), Unknown, "dry run unknown: you may not create clusterroles", "administrator")
	for object := range b.denied {
		b.denied[object] = errors.New("ValidatingAdmissionPolicy 'all' with binding 'all' denied request: no")
	}
	results := checkDryRuns(b)
	require.Len(t, results, maxNamed+1)
	requireResult(t, results[maxNamed:], Failure, "more objects would be rejected", "exempt")
	b.denied = nil // all objects exist already
	require.Empty(t, checkDryRuns(b))
}

func TestLeftovers(t *testing.T) {
	t.Parallel()
	system := ref{kind: corev1.SchemeGroupVersion.WithKind("Namespace"), name: "nstpl-system"}
	object := func(change func(*unstructured.Unstructured)) fact[*unstructured.Unstructured] {
		stored := &unstructured.Unstructured{}
		stored.SetGroupVersionKind(system.kind)
		stored.SetName(system.name)
		change(stored)
		return fact[*unstructured.Unstructured]{value: stored}
	}
	for name, test := range map[string]struct {
		stored          fact[*unstructured.Unstructured]
		status          Status
		message, remedy string
	}{
		"nothing": {fact[*unstructured.Unstructured]{err: errNotFound}, OK, "no objects of an earlier installation", ""},
		"of others": {
			object(func(*unstructured.Unstructured) {}), Warning,
			"would change 1 existing object without the label app.kubernetes.io/part-of=nstpl: namespace/nstpl-system",
			"rename or delete",
		},
		"of nstpl": {
			object(func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{partOfLabel: partOf}) }), Warning,
			"1 object of an earlier or unfinished installation: namespace/nstpl-system", "Uninstall",
		},
		"being deleted": {
			object(func(o *unstructured.Unstructured) { o.SetDeletionTimestamp(&metav1.Time{Time: now}) }), Failure,
			"objects to install are being deleted: namespace/nstpl-system", "kubectl get namespace nstpl-system",
		},
		"forbidden": {
			fact[*unstructured.Unstructured]{err: errForbidden}, Unknown, "you may not get namespaces", "administrator",
		},
		"unreachable": {
			fact[*unstructured.Unstructured]{err: errors.New("timeout")}, Unknown,
			"the request to get namespace/nstpl-system failed: timeout", "again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := ready(t)
			b.stored[system] = test.stored
			requireResult(t, checkLeftovers(b), test.status, test.message, test.remedy)
		})
	}
	b := &before{common: installed(t), isInstalled: true}
	requireResult(t, checkLeftovers(b), OK, "nstpl is installed: the manifests change", "")
}
