package integration_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/test/marks"
)

// someConstraints has a restricted constraint for all users, and a privileged one for users with the verb use.
const someConstraints = `
apiVersion: policy.nstpl.dev/v1alpha1
kind: SecurityContextConstraints
metadata: {name: restricted}
allowPrivilegeEscalation: false
allowedCapabilities: [NET_BIND_SERVICE]
requiredDropCapabilities: [ALL]
runAsUser: {type: MustRunAsRange}
seLinuxContext: {type: MustRunAs}
fsGroup: {type: MustRunAs}
supplementalGroups: {type: MustRunAs}
seccompProfiles: [runtime/default]
volumes: [configMap, emptyDir, secret, projected]
groups: ["system:authenticated"]
priority: null
users: null
---
apiVersion: policy.nstpl.dev/v1alpha1
kind: SecurityContextConstraints
metadata: {name: privileged}
allowPrivilegedContainer: true
allowHostNetwork: true
allowHostPorts: true
allowHostPID: true
allowHostDirVolumePlugin: true
allowedCapabilities: ["*"]
seccompProfiles: ["*"]
volumes: ["*"]
runAsUser: {type: RunAsAny}
seLinuxContext: {type: RunAsAny}
`

// newSCCScope returns a scope on its own cluster with someConstraints, when pods are admitted by them.
func newSCCScope(t *testing.T) *testScope {
	t.Helper()
	s := newScope(t, borrowCluster(t))
	s.applyYAML(someConstraints)
	probe := s.createNamespace("scc-probe").Name
	s.eventually(func(c *assert.CollectT) {
		p := newPod(probe, "probe")
		if assert.NoError(c, s.client.Create(t.Context(), p, client.DryRunAll)) {
			assert.NotEmpty(c, p.Annotations[v1alpha1.SCCAnnotation])
		}
	})
	return s
}

// podAuthors are users who create pods in a namespace of a cluster with someConstraints.
type podAuthors struct {
	*testScope
	namespace string
	// given is the namespace with its allocations, and blocks are its UIDs.
	given  *corev1.Namespace
	blocks []v1alpha1.IDRange
	// group is a group of both users, who have all verbs on workloads.
	group string
	// jane may use the constraint restricted, and admin also the constraint privileged.
	jane, admin client.Client
	// plain is a pod that jane created, and sudo is a privileged pod that admin created.
	plain, sudo *corev1.Pod
}

// newPodAuthors returns the users, when the API server knows their permissions.
func newPodAuthors(t *testing.T) podAuthors {
	t.Helper()
	s := newSCCScope(t)
	ns := s.createNamespace("a").Name
	p := podAuthors{
		testScope: s, namespace: ns, given: &corev1.Namespace{}, group: s.allVerbsGroup(),
		jane: s.newAllVerbsClient("jane"), admin: s.newAllVerbsClient("operator"),
		plain: newPod(ns, "plain"), sudo: newPod(ns, "sudo", makesPrivileged),
	}
	role := &rbacv1.ClusterRole{} // the group has all verbs, including use: restrict it to the kinds of workloads
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: p.group}, role))
	role.Rules = []rbacv1.PolicyRule{
		{APIGroups: []string{"", "apps", "batch"}, Resources: []string{"*"}, Verbs: []string{"*"}},
	}
	require.NoError(t, s.client.Update(t.Context(), role))
	s.bindRole(ns, v1alpha1.ClusterRoleKind, s.createPrivilegedRole(), userSubject("operator"))
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, p.admin.Create(t.Context(), newPod(ns, "x", makesPrivileged), client.DryRunAll))
		err := p.jane.Create(t.Context(), newPod(ns, "x", makesPrivileged), client.DryRunAll)
		assert.True(c, apierrors.IsForbidden(err), "%v", err)
	})
	require.NoError(t, p.jane.Create(t.Context(), p.plain))
	require.NoError(t, p.admin.Create(t.Context(), p.sudo))
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: ns}, p.given))
	var err error
	p.blocks, err = scc.ParseBlocks(p.given.Annotations[v1alpha1.UIDRangeAnnotation])
	require.NoError(t, err)
	return p
}

// withT returns the authors for a subtest.
func (s podAuthors) withT(t *testing.T) podAuthors {
	t.Helper()
	s.testScope = s.testScope.withT(t)
	return s
}

func TestSCCAdmitsPodsByConstraints(t *testing.T) {
	marks.OnEveryVersion(t)
	marks.Thorough(t)
	t.Parallel()
	authors := newPodAuthors(t)
	for _, test := range []struct {
		name  string
		check func(podAuthors)
	}{
		{"open fields get values from the ranges of the namespace", podAuthors.checkOpenFields},
		{"a denial has all reasons and a forged annotation has no effect", podAuthors.checkDenial},
		{"the permission of the user or of the service account suffices", podAuthors.checkServiceAccount},
		{"a ReplicaSet reports that its service account lacks the permission", podAuthors.checkReplicaSet},
		{"a pod can be updated if a constraint admits it unchanged", podAuthors.checkUpdates},
		{"open fields of ephemeral containers get values", podAuthors.checkEphemeralContainers},
		{"a required constraint is the only candidate", podAuthors.checkRequiredConstraint},
		{"users can exec into and attach to pods that they could have created", podAuthors.checkExec},
	} {
		t.Run(test.name, func(t *testing.T) { test.check(authors.withT(t)) })
	}
}

func (s podAuthors) checkOpenFields() {
	require.Equal(s.t, "restricted", s.plain.Annotations[v1alpha1.SCCAnnotation])
	require.Equal(s.t, "user", s.plain.Annotations[v1alpha1.SCCSubjectAnnotation])
	require.Equal(s.t, s.blocks[0].Min, *s.plain.Spec.Containers[0].SecurityContext.RunAsUser)
	require.Equal(s.t, s.blocks[0].Min, *s.plain.Spec.SecurityContext.FSGroup)
	require.Equal(s.t, []int64{s.blocks[0].Min}, s.plain.Spec.SecurityContext.SupplementalGroups)
	require.Equal(s.t, s.given.Annotations[v1alpha1.MCSAnnotation], s.plain.Spec.SecurityContext.SELinuxOptions.Level)
	require.Equal(s.t, []corev1.Capability{"ALL"}, s.plain.Spec.Containers[0].SecurityContext.Capabilities.Drop)
}

func (s podAuthors) checkDenial() {
	forged := newPod(s.namespace, "forged", makesPrivileged, func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1alpha1.SCCAnnotation: "privileged"}
		p.Spec.HostNetwork = true
	})
	err := s.jane.Create(s.t.Context(), forged)
	require.True(s.t, apierrors.IsForbidden(err), "%v", err)
	for _, denial := range []string{
		"no SecurityContextConstraints admit it for user \"jane\"",
		"constraint privileged: not usable by user or serviceaccount",
		"constraint restricted: spec.hostNetwork: it is not allowed",
		"spec.containers[0].securityContext.privileged: privileged containers are not allowed",
	} {
		require.ErrorContains(s.t, err, denial)
	}
}

func (s podAuthors) checkServiceAccount() {
	require.Equal(s.t, "privileged", s.sudo.Annotations[v1alpha1.SCCAnnotation])
	require.NoError(s.t,
		s.client.Create(s.t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "infra"}}))
	s.bindRole(s.namespace, v1alpha1.ClusterRoleKind, s.name("privileged"),
		accountSubject(s.namespace, "infra"))
	infra := newDeployment(s.namespace, "infra", 1, nil)
	infra.Spec.Template.Spec.ServiceAccountName = "infra"
	infra.Spec.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	require.NoError(s.t, s.jane.Create(s.t.Context(), infra))
	s.eventually(func(c *assert.CollectT) {
		if pods := s.listPods(s.namespace, "infra"); assert.Len(c, pods, 1) {
			assert.Equal(c, "privileged", pods[0].Annotations[v1alpha1.SCCAnnotation])
			assert.Equal(c, "serviceaccount", pods[0].Annotations[v1alpha1.SCCSubjectAnnotation])
		}
	})
}

func (s podAuthors) checkReplicaSet() {
	other := newDeployment(s.namespace, "other", 1, nil)
	other.Spec.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	require.NoError(s.t, s.admin.Create(s.t.Context(), other))
	s.eventually(func(c *assert.CollectT) {
		events := &corev1.EventList{}
		assert.NoError(c, s.client.List(s.t.Context(), events, client.InNamespace(s.namespace)))
		messages := ""
		for _, event := range events.Items {
			messages += event.Message
		}
		assert.Contains(c, messages, "no SecurityContextConstraints admit it")
	})
	require.Empty(s.t, s.listPods(s.namespace, "other"))
}

func (s podAuthors) checkUpdates() {
	patch := func(who client.Client, p *corev1.Pod, body string) error {
		return who.Patch(s.t.Context(), p.DeepCopy(), mergePatch(body))
	}
	require.NoError(s.t, patch(s.jane, s.plain, `{"metadata": {"labels": {"a": "b"}}}`))
	require.ErrorContains(s.t,
		patch(s.jane, s.plain, `{"metadata": {"annotations": {"`+v1alpha1.RequiredSCCAnnotation+`": "restricted"}}}`),
		"can't be changed")
	require.ErrorContains(s.t, patch(s.jane, s.sudo, `{"metadata": {"labels": {"a": "b"}}}`),
		"privileged containers are not allowed")
	require.NoError(s.t, patch(s.admin, s.sudo, `{"metadata": {"labels": {"a": "b"}}}`))
}

func (s podAuthors) checkEphemeralContainers() {
	debug := func(who client.Client, p *corev1.Pod, context *corev1.SecurityContext) error {
		p = p.DeepCopy()
		require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(p), p))
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers,
			corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: fmt.Sprint("debug-", len(p.Spec.EphemeralContainers)), Image: "d", SecurityContext: context,
			}})
		return who.SubResource("ephemeralcontainers").Update(s.t.Context(), p)
	}
	require.NoError(s.t, debug(s.jane, s.plain, nil))
	require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(s.plain), s.plain))
	require.Equal(s.t, s.blocks[0].Min, *s.plain.Spec.EphemeralContainers[0].SecurityContext.RunAsUser)
	require.ErrorContains(s.t, debug(s.jane, s.plain, &corev1.SecurityContext{Privileged: new(true)}),
		"spec.ephemeralContainers[1].securityContext.privileged")
	require.ErrorContains(s.t, debug(s.jane, s.sudo, nil), "privileged containers are not allowed")
}

func (s podAuthors) checkRequiredConstraint() {
	required := newPod(s.namespace, "required", func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1alpha1.RequiredSCCAnnotation: "restricted"}
	})
	require.NoError(s.t, s.admin.Create(s.t.Context(), required))
	require.Equal(s.t, "restricted", required.Annotations[v1alpha1.SCCAnnotation])
	none := newPod(s.namespace, "none", func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1alpha1.RequiredSCCAnnotation: "none"}
	})
	require.ErrorContains(s.t, s.admin.Create(s.t.Context(), none),
		"SecurityContextConstraints of this name do not exist")
}

func (s podAuthors) checkExec() {
	enter := func(user, verb string, p *corev1.Pod) error {
		config, err := s.controlPlane.UserConfig(user, s.group)
		require.NoError(s.t, err)
		clients, err := kubernetes.NewForConfig(config)
		require.NoError(s.t, err)
		return clients.CoreV1().RESTClient().Post().Namespace(s.namespace).Resource("pods").Name(p.Name).
			SubResource(verb).VersionedParams(&corev1.PodExecOptions{Command: []string{"sh"}, Stdout: true},
			clientgoscheme.ParameterCodec).Do(s.t.Context()).Error()
	}
	for _, verb := range []string{"exec", "attach"} {
		err := enter("jane", verb, s.sudo)
		require.True(s.t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(s.t, err,
			verb+" is not allowed because the pod's security context exceeds your permissions")
		// These requests are allowed, and fail only because no node runs the pod.
		require.ErrorContains(s.t, enter("operator", verb, s.sudo), "does not have a host assigned")
		require.ErrorContains(s.t, enter("jane", verb, s.plain), "does not have a host assigned")
	}
}

// Otherwise every user who may create namespaces could avoid constraints, or templates, in one that a flag lists and that
// does not exist.
func TestOnlyAdministratorsCreateReservedNamespaces(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t,
		"--exclude-namespaces=excluded, excluded-too", "--scc-exempt-namespaces=exempt-by-flag"))
	jane := s.newUser(s.name("jane"))
	createAs := func(user testUser, name string) error {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := user.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	create := func(name string) error { return createAs(jane, name) }
	reserved := []string{"exempt-by-flag", "excluded-too"}
	createAsAdministrator := func(name string) error {
		return s.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.DryRunAll)
	}
	for _, name := range reserved {
		expectForbidden(t, create(name), "(nstpl:reserved-namespace)")
		require.NoError(t, createAsAdministrator(name))
	}
	require.NoError(t, create(s.name("other")))
	s.grant(s.name("patch-all"), userSubject(jane.name),
		policyRule("patch", v1alpha1.NamespaceTemplates.Group, v1alpha1.NamespaceTemplates.Resource))
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, create(reserved[0])) })

	require.NoError(t, s.operator.Kill())
	other := s.newUser(s.name("other"))
	for _, name := range reserved {
		require.ErrorContains(t, createAs(other, name), "failed calling webhook")
		require.NoError(t, createAsAdministrator(name))
	}
	require.NoError(t, createAs(other, s.name("other")))
}

// Without constraints, the webhooks for pods do not exist, and no policy is evaluated for their statuses. The webhooks
// are never called for exempt namespaces.
func TestSCCWebhooksExistOnlyWithConstraints(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newSCCScope(t)
	hooks := func() (names []string) {
		validating, mutating := &admissionregistrationv1.ValidatingWebhookConfiguration{},
			&admissionregistrationv1.MutatingWebhookConfiguration{}
		require.NoError(t,
			s.client.Get(t.Context(), client.ObjectKey{Name: v1alpha1.ConstraintWebhookName}, validating))
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: v1alpha1.WebhookName}, mutating))
		for _, webhook := range validating.Webhooks {
			names = append(names, webhook.Name)
		}
		for _, webhook := range mutating.Webhooks {
			names = append(names, webhook.Name)
		}
		return names
	}
	require.Equal(t, 2, strings.Count(strings.Join(hooks(), " "), "scc.policy.nstpl.dev"))
	system := newPod("kube-system", "system", makesPrivileged)
	s.eventually(func(c *assert.CollectT) { // until its service account exists
		assert.NoError(c, s.client.Create(t.Context(), system.DeepCopy(), client.DryRunAll))
	})
	s.deleteYAML(someConstraints)
	s.eventually(func(c *assert.CollectT) {
		assert.NotContains(c, hooks(), "scc.policy.nstpl.dev")
		p := newPod(s.name("scc-probe"), "p", makesPrivileged)
		if assert.NoError(c, s.client.Create(t.Context(), p, client.DryRunAll)) {
			assert.Empty(c, p.Annotations[v1alpha1.SCCAnnotation])
		}
	})
	p := newPod(s.name("scc-probe"), "unjudged")
	require.NoError(t, s.client.Create(t.Context(), p))
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, s.client.Status().Patch(t.Context(), p, annotationPatch(v1alpha1.SCCAnnotation, `"none"`)),
			"the policy is not evaluated")
	})
	s.applyYAML(someConstraints)
	s.eventually(func(c *assert.CollectT) {
		err := s.client.Status().Patch(t.Context(), p, annotationPatch(v1alpha1.SCCAnnotation, `"privileged"`),
			client.DryRunAll)
		assert.ErrorContains(c, err, "cannot be changed through")
	})
}

// With the stricter flags, both user and service account need the permission, and exec is guarded by the caller's
// permissions alone.
func TestSCCStrictFlagsRestrictPodsAndExec(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newSCCScope(t)
	require.NoError(t, s.operator.Kill())
	require.NoError(t, s.startOperator(t.Context(), "--scc-match=intersection", "--exec-guard=caller"))
	ns := s.createNamespace("a").Name
	operator := s.newAllVerbsClient("operator") // has all verbs
	s.eventually(func(c *assert.CollectT) {
		err := operator.Create(t.Context(), newPod(ns, "x", makesPrivileged), client.DryRunAll)
		assert.ErrorContains(c, err, "constraint privileged: not usable", "the service account lacks the permission")
	})
	s.bindRole(ns, v1alpha1.ClusterRoleKind, s.createPrivilegedRole(),
		accountSubject(ns, "default"))
	pod := newPod(ns, "p", makesPrivileged)
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, operator.Create(t.Context(), pod.DeepCopy())) })
	config, err := s.controlPlane.UserConfig("jane")
	require.NoError(t, err)
	s.grant(s.name("exec"), userSubject("jane"),
		policyRule("*", "", "*"))
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	s.eventually(func(c *assert.CollectT) {
		err := clients.CoreV1().RESTClient().Post().Namespace(ns).Resource("pods").Name("p").SubResource("exec").
			VersionedParams(&corev1.PodExecOptions{Command: []string{"sh"}, Stdout: true},
				clientgoscheme.ParameterCodec).Do(t.Context()).Error()
		assert.ErrorContains(c, err, "exceeds your permissions")
	})
}

// A constraint that was stored before its validation existed, and is invalid, does not affect pods that another
// constraint admits.
func TestSCCInvalidConstraintDoesNotBlockPods(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newSCCScope(t)
	definition := `{"spec": {"versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}`
	_, err := s.kubectl(t.Context(), "", "patch", "crd", "securitycontextconstraints.policy.nstpl.dev", "--type=merge",
		"--patch", definition)
	require.NoError(t, err)
	s.eventually(func(c *assert.CollectT) {
		_, err := s.kubectl(t.Context(),
			strings.NewReplacer("name: restricted", "name: broken", "type: MustRunAsRange", "type: MustRunAs",
				"priority: null", "priority: 9").
				Replace(strings.Split(someConstraints, "---")[0]), "apply", "--filename", "-")
		assert.NoError(c, err)
	})
	ns := s.createNamespace("a").Name
	jane := s.newAllVerbsClient("jane")
	s.eventually(func(c *assert.CollectT) {
		required := newPod(ns, "p", func(p *corev1.Pod) {
			p.Annotations = map[string]string{v1alpha1.RequiredSCCAnnotation: "broken"}
		})
		assert.ErrorContains(c, jane.Create(t.Context(), required, client.DryRunAll),
			"it cannot be evaluated: runAsUser.uid is missing")
	})
	require.NoError(t, jane.Create(t.Context(), newPod(ns, "p")))
}

// A populated namespace is given its ranges in the write that opens it.
func TestSCCPopulatedNamespaceOpensWithItsRanges(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newSCCScope(t)
	s.createTemplate("t", configMap("a", "x"))
	ns := s.createPopulatedNamespace("populated")
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
	for _, key := range []string{
		v1alpha1.UIDRangeAnnotation, v1alpha1.SupplementalGroupsAnnotation, v1alpha1.MCSAnnotation,
	} {
		require.NotEmpty(t, ns.Annotations[key], "the namespace is open")
	}
	// The controller of allocations may try, too, until its cache has the open namespace. The API server refuses that.
	writes := s.outcomes(ns)
	require.Contains(t, writes, "patch configmaps a/: 201")
	require.Equal(t, 1, strings.Count(writes, "/status: 200"), writes)
	require.Equal(t, 2, strings.Count(writes, ": 20"), writes)
}

// No two namespaces get the same ranges, even if the operator restarts meanwhile. A new namespace's first pod waits for
// its ranges.
func TestSCCAllocationsAreUnique(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	const namespaces = 300
	s := newSCCScope(t)
	var group sync.WaitGroup
	errs := make([]error, namespaces)
	for i := range namespaces {
		group.Go(func() {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name(fmt.Sprint(i))}}
			errs[i] = s.client.Create(context.WithoutCancel(t.Context()), ns)
		})
		if i == namespaces/2 {
			s.restartOperator(t)
		}
	}
	group.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	unique := func(c *assert.CollectT) {
		list := &corev1.NamespaceList{}
		require.NoError(t, s.client.List(t.Context(), list))
		owners := map[string]string{}
		for i := range list.Items {
			ns := &list.Items[i]
			if ns.Name == "kube-system" || ns.Name == v1alpha1.OperatorNamespace {
				continue
			}
			for _, key := range []string{v1alpha1.UIDRangeAnnotation, v1alpha1.MCSAnnotation} {
				value := ns.Annotations[key]
				if assert.NotEmpty(c, value, "%s of %s", key, ns.Name) {
					assert.Empty(c, owners[value], "%s of %s", value, ns.Name)
				}
				owners[value] = ns.Name
			}
			assert.Equal(c, ns.Annotations[v1alpha1.UIDRangeAnnotation],
				ns.Annotations[v1alpha1.SupplementalGroupsAnnotation])
		}
	}
	s.eventuallyWithin(2*time.Minute, unique)

	t.Run("a new namespace gets ranges before its first pod", func(t *testing.T) {
		s := s.withT(t)
		require.NoError(t,
			s.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name("young")}}))
		// The pod has its own service account, because the controller that creates the default ones is busy.
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.name("young"), Name: "first"}}
		require.NoError(t, s.client.Create(t.Context(), account))
		require.NoError(t, s.client.Create(t.Context(), newPod(s.name("young"), "first", func(p *corev1.Pod) {
			p.Annotations = map[string]string{v1alpha1.RequiredSCCAnnotation: "restricted"}
			p.Spec.ServiceAccountName = account.Name
			p.Spec.AutomountServiceAccountToken = new(false)
		}), client.DryRunAll), "the pod must wait for the allocation")
		s.restartOperator(t)
		s.eventually(unique)
	})

	t.Run("a duplicate is repaired and reported", func(t *testing.T) {
		s := s.withT(t)
		first, second := &corev1.Namespace{}, &corev1.Namespace{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: s.name("scc-probe")}, first))
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: s.name("young")}, second))
		s.patchNamespace(second,
			fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, v1alpha1.UIDRangeAnnotation,
				first.Annotations[v1alpha1.UIDRangeAnnotation]))
		s.waitEvent(second, corev1.EventTypeWarning, "AllocationRepaired",
			"overlap with those of namespace "+first.Name)
		s.eventually(unique)
	})

	t.Run("a restart writes nothing", func(t *testing.T) {
		s := s.withT(t)
		s.expectRestartWritesNothing("allocation")
	})
}
