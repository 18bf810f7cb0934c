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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/marks"
	"nstpl.dev/nstpl/test/operator"
)

// newHeldNamespace returns a populated namespace that waits for the initializer network, and a user who may edit in it.
func (s *testScope) newHeldNamespace() (user kubernetes.Interface, ns *corev1.Namespace) {
	s.t.Helper()
	s.createTemplate("defaults", configMap("a", "v"))
	s.createInitializers(3600, v1alpha1.FailureFail, "network")
	s.waitPendingOnCreation(s.name("network"), v1alpha1.TemplateInitializer)
	user = s.impersonate(s.t, s.name("jane"))
	s.bindClusterRole(s.name("jane"), "edit")
	ns = s.createNamespace("a")
	s.eventually(func(c *assert.CollectT) { // until the API server knows the user's permissions
		_, err := user.CoreV1().ConfigMaps(ns.Name).List(s.t.Context(), metav1.ListOptions{})
		assert.NoError(c, err, "reads are not held")
	})
	s.waitPopulated(ns)
	return user, ns
}

func TestHoldDelaysWritesUntilTheNamespaceIsInitialized(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	user, ns := s.newHeldNamespace()
	// Kubernetes' own controllers can write before the namespace is initialized.
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c,
			s.client.Get(t.Context(), client.ObjectKey{Namespace: ns.Name, Name: "default"}, &corev1.ServiceAccount{}))
		assert.NoError(c,
			s.client.Get(t.Context(), client.ObjectKey{Namespace: ns.Name, Name: "kube-root-ca.crt"},
				&corev1.ConfigMap{}))
	})

	// Users without the verb initialize wait, with every kind of write.
	position := s.auditPosition()
	done := make(chan error, 3)
	go func() {
		_, err := user.CoreV1().ConfigMaps(ns.Name).Create(t.Context(), newConfigMap("", "mine"),
			metav1.CreateOptions{})
		done <- err
	}()
	go func() {
		_, err := user.CoreV1().ConfigMaps(ns.Name).Create(t.Context(), newConfigMap("", "dry"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		done <- err
	}()
	go func() {
		done <- user.CoreV1().ConfigMaps(ns.Name).Delete(t.Context(), "kube-root-ca.crt", metav1.DeleteOptions{})
	}()
	// Users with the verb initialize do not wait. Their later writes end before those that are held.
	s.waitReceived(position, ns.Name, 3)
	require.NoError(t,
		s.client.Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "admins", Namespace: ns.Name}}))
	select {
	case err := <-done:
		require.Fail(t, "a write was not held", "%v", err)
	default:
	}
	s.finishInitialization(ns)
	for range 3 {
		require.NoError(t, <-done)
	}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
	require.NotContains(t, ns.Labels, v1alpha1.InitializingLabel)
	require.True(t,
		apierrors.IsNotFound(s.client.Get(t.Context(), client.ObjectKey{Namespace: ns.Name, Name: "dry"},
			&corev1.ConfigMap{})))
}

// The API server asks whether a namespace is being deleted before it asks the hold. What waits in the hold and is stored
// then would have no policies.
func TestDeletionOfANamespaceDoesNotLetHeldWritesIn(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	user, ns := s.newHeldNamespace()
	position := s.auditPosition()
	done := make(chan error, 1)
	go func() {
		_, err := user.CoreV1().ConfigMaps(ns.Name).Create(t.Context(), newConfigMap("", "mine"),
			metav1.CreateOptions{})
		done <- err
	}()
	s.waitReceived(position, ns.Name, 1)
	require.NoError(t, s.client.Delete(t.Context(), ns))
	err := <-done
	require.True(t, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err), "%v", err)
}

// The API server completes and checks Pods by the LimitRanges of the namespace before it asks the hold.
func TestHeldPodsAreCompletedByThePopulatedLimitRange(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	user := s.impersonate(t, s.name("jane"))
	s.bindClusterRole(s.name("jane"), "edit")
	s.eventually(func(c *assert.CollectT) { // until the API server knows the user's permissions
		_, err := user.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		assert.NoError(c, err)
	})
	s.createInitializers(3600, v1alpha1.FailureFail, "network")
	s.waitPendingOnCreation(s.name("network"))
	ns := s.createNamespace("a")
	s.eventually(func(c *assert.CollectT) { // before that, the API server refuses Pods
		assert.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Namespace: ns.Name, Name: "default"},
			&corev1.ServiceAccount{}))
	})
	position := s.auditPosition()
	type answer struct {
		pod *corev1.Pod
		err error
	}
	create := func(name, cpu string) <-chan answer {
		pod, answered := newPod(ns.Name, name), make(chan answer, 1)
		if cpu != "" {
			pod.Spec.Containers[0].Resources.Limits = resourceList("cpu", cpu)
		}
		go func() {
			created, err := user.CoreV1().Pods(ns.Name).Create(t.Context(), pod, metav1.CreateOptions{})
			answered <- answer{created, err}
		}()
		return answered
	}
	completed, tooLarge := create("completed", ""), create("large", "1")
	s.waitReceived(position, ns.Name, 2)
	const limits = "{apiVersion: v1, kind: LimitRange, metadata: {name: defaults}, " +
		"spec: {limits: [{type: Container, default: {cpu: 100m}, max: {cpu: 200m}}]}}"
	s.createTemplate("defaults", limits)
	s.waitPresent(ns, limits)
	s.finishInitialization(ns)
	one, other := <-completed, <-tooLarge
	require.NoError(t, one.err)
	require.Equal(t, "100m", one.pod.Spec.Containers[0].Resources.Limits.Cpu().String())
	require.True(t, apierrors.IsForbidden(other.err), "%v", other.err)
}

// The operator is also asked about writes in open namespaces, for the sake of other plugins.
func TestNothingIsHeldInAnOpenNamespace(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("defaults", "", labelsNamespaces(s.name("label"), "x"))
	s.createLimitedSpace(s.newSpace("s", ""), func(space *v1alpha1.PolicySpace) {
		space.Spec.Quota = &v1alpha1.PolicySpaceQuota{Hard: resourceList("pods", "5")}
	})
	ns := s.createPopulatedNamespace("a", withLabel(v1alpha1.PolicySpaceLabel, s.name("s")))
	s.waitCounted(ns.Name)
	user := s.impersonate(t, s.name("jane"))
	s.bindClusterRole(s.name("jane"), "edit")
	create := func(name string) error {
		return user.CoreV1().RESTClient().Post().Namespace(ns.Name).Resource("pods").Body(newPod("", name)).
			MaxRetries(0).Do(t.Context()).Error()
	}
	s.eventually(func(c *assert.CollectT) { // until the API server asks the operator, which refuses the sixth Pod
		for i := range 5 {
			if err := create(fmt.Sprint("web", i)); err != nil { // it may exist since the last attempt
				assert.NotContains(c, err.Error(), "(nstpl:held)")
			}
		}
		assert.ErrorContains(c, create("web5"), "exceeded quota in policyspace")
	})
	require.NoError(t, s.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(ns.Name),
		client.GracePeriodSeconds(0)))
	s.waitUsage("s", "pods: 0/5")
	for i := range 5 {
		if err := create(fmt.Sprint("again", i)); err != nil { // Kubernetes may count the deleted ones meanwhile
			require.NotContains(t, err.Error(), "(nstpl:held)")
		}
	}
}

// The first objects in a namespace are judged by the rights that its users have once it is initialized.
func TestFirstObjectsAreJudgedByTheRightsInTheirNamespace(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newSCCScope(t)
	privileged, setter := s.createPrivilegedRole(), s.createAttributeRole("", "setter")
	s.protectAttribute("", "tier", s.attributeRule(v1alpha1.LabelAttribute, "tier", v1alpha1.ClusterRoleKind, setter))
	user := s.impersonate(t, s.name("jane"))
	s.bindClusterRole(s.name("jane"), "edit")
	s.createInitializers(3600, v1alpha1.FailureFail, "network")
	s.waitPendingOnCreation(s.name("network"))
	ns := s.createNamespace("a")
	s.eventually(func(c *assert.CollectT) { // before that, the API server refuses Pods
		_, err := user.CoreV1().ServiceAccounts(ns.Name).Get(t.Context(), "default", metav1.GetOptions{})
		assert.NoError(c, err)
	})
	labelled := newConfigMap("", "labelled")
	labelled.Labels = map[string]string{s.name("tier"): "a"}
	objects := map[string]client.Object{"pods": newPod("", "privileged", makesPrivileged), "configmaps": labelled}
	create := func(retries int) map[string]<-chan error {
		answers := map[string]<-chan error{}
		for resource, object := range objects {
			answer := make(chan error, 1)
			answers[resource] = answer
			go func() {
				answer <- user.CoreV1().RESTClient().Post().Namespace(ns.Name).Resource(resource).Body(object).
					MaxRetries(retries).Do(t.Context()).Error()
			}()
		}
		return answers
	}
	for resource, answer := range create(0) {
		err := <-answer
		require.True(t, apierrors.IsTooManyRequests(err), "%s: %v", resource, err)
		require.ErrorContains(t, err, "(nstpl:held)")
	}
	for _, role := range []string{privileged, setter} {
		s.bindRole(ns.Name, v1alpha1.ClusterRoleKind, role, userSubject(s.name("jane")))
	}
	s.finishInitialization(ns)
	for resource, answer := range create(10) {
		require.NoError(t, <-answer, resource)
	}
}

func TestHoldAsksClientsToRetry(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	user, ns := s.newHeldNamespace()
	s.eventuallyWithin(time.Minute, func(c *assert.CollectT) {
		var status apierrors.APIStatus
		err := user.CoreV1().RESTClient().Post().Namespace(ns.Name).Resource("configmaps").Body(
			newConfigMap("", "mine")).MaxRetries(0).
			Do(t.Context()).Error()
		// the status is 403 until the API server knows the user's permissions
		if assert.ErrorAs(c, err, &status) && assert.EqualValues(c, 429, status.Status().Code, "%v", err) {
			assert.EqualValues(c, 1, status.Status().Details.RetryAfterSeconds)
			assert.ErrorContains(c, err, "namespace "+ns.Name+" is being initialized: it waits for "+s.name("network"))
		}
	})
}

func TestHoldIsNotCalledForInitializedNamespaces(t *testing.T) {
	marks.OnEveryVersion(t)
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t)
	s := newScope(t, cluster)
	user := s.impersonate(t, s.name("jane"))
	s.bindClusterRole(s.name("jane"), "edit")
	asked := func() float64 {
		calls, _, err := cluster.operator.Metric(t.Context(), "nstpl_admission_decisions_total", `plugin="hold"`)
		require.NoError(t, err)
		return calls
	}
	before := asked() // the operator may have held writes of an earlier test
	ns := s.createNamespace("a")
	s.eventually(func(c *assert.CollectT) {
		_, err := user.CoreV1().ConfigMaps(ns.Name).Create(t.Context(), newConfigMap("", "mine"),
			metav1.CreateOptions{})
		assert.NoError(c, err)
	})
	require.Equal(t, before, asked())

	// A write into a namespace that is not initialized is counted.
	s.createInitializers(3600, v1alpha1.FailureFail, "network")
	s.waitPendingOnCreation(s.name("network"))
	held := s.createNamespace("held")
	s.eventually(func(c *assert.CollectT) {
		err := user.CoreV1().RESTClient().Post().Namespace(held.Name).Resource("configmaps").Body(
			newConfigMap("", "mine")).MaxRetries(0).Do(t.Context()).Error()
		assert.True(c, apierrors.IsTooManyRequests(err), "%v", err)
	})
	require.Greater(t, asked(), before)
}

func TestAdmissionSetsCreatorsAndHoldsWithoutOperator(t *testing.T) {
	marks.OnEveryVersion(t)
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t)
	s := newScope(t, cluster)
	s.createTemplate("defaults", configMap("a", "v"))
	s.waitPendingOnCreation(v1alpha1.TemplateInitializer)
	other := s.impersonate(t, s.name("jane"))
	s.bindClusterRole(s.name("jane"), "edit")
	elsewhere := s.createPopulatedNamespace("elsewhere")
	require.NoError(t, cluster.operator.Kill())

	ns := s.createNamespace("a")
	forged := s.newNamespace("forged")
	forged.Annotations = map[string]string{v1alpha1.CreatorAnnotation: "another-user"}
	intruder := s.newTemplateAuthor("intruder", policyRule("create", "", "namespaces"))
	err := intruder.Create(t.Context(), forged)
	if _, flags, _ := controlplane.Manifests(controlplane.Version()); len(flags) > 0 {
		// Before Kubernetes 1.36, creators are not set without the operator, forged ones are denied, and nothing is
		// held. The rest of the test is for later versions.
		require.ErrorContains(t, err, v1alpha1.CreatorAnnotation)
		require.NotContains(t, ns.Annotations, v1alpha1.CreatorAnnotation)
		require.NoError(t, cluster.startOperator(t.Context()))
		s.waitPopulated(ns)
		return
	}
	require.NoError(t, err)
	require.Equal(t, s.name("intruder"), forged.Annotations[v1alpha1.CreatorAnnotation])
	require.Equal(t, "admin", ns.Annotations[v1alpha1.CreatorAnnotation])
	require.Equal(t, "true", ns.Labels[v1alpha1.InitializingLabel])
	s.eventually(func(c *assert.CollectT) {
		_, err := other.CoreV1().ConfigMaps(elsewhere.Name).Create(t.Context(), newConfigMap("", "mine"),
			metav1.CreateOptions{})
		assert.NoError(c, err)
	})
	_, err = other.CoreV1().ConfigMaps(ns.Name).Create(t.Context(), newConfigMap("", "mine"), metav1.CreateOptions{})
	require.ErrorContains(t, err, "hold.policy.nstpl.dev")
	err = s.client.Create(t.Context(), s.newTemplate("more", configMap("b", "v")))
	require.ErrorContains(t, err, "template.policy.nstpl.dev", "templates cannot be vetted without the operator")

	require.NoError(t, cluster.startOperator(t.Context()))
	s.waitPopulated(ns)
	s.waitPresent(ns, configMap("a", "v"))
	_, err = other.CoreV1().ConfigMaps(ns.Name).Create(t.Context(), newConfigMap("", "mine"), metav1.CreateOptions{})
	require.NoError(t, err)
}

// Many users create a namespace and at once an object in it, and all of them succeed.
func TestHoldServesManyUsersAtOnce(t *testing.T) {
	marks.OnEveryVersion(t)
	marks.Thorough(t)
	users := 500
	// Beside other tests, the operator then takes longer for so many than the API server waits.
	if operator.HasRaceDetector() {
		users = 100
	}
	cluster := borrowCluster(t)
	s := newScope(t, cluster)
	s.createTemplate("creator", `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: creator
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: $(CREATOR)}
`, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Templates = append(template.Spec.Templates, rawObjects(t, configMap("a", "v"))...)
	})
	_, err := cluster.kubectl(t.Context(), "", "apply", "--filename", "../../manifests/samples/namespace-creator.yaml")
	require.NoError(t, err)
	_, err = cluster.kubectl(t.Context(), "", "create", "clusterrolebinding", "creators",
		"--clusterrole=namespace-creator",
		"--group=creators")
	require.NoError(t, err)
	var group sync.WaitGroup
	errs := make([]error, users)
	for i := range users {
		user := s.impersonate(t, fmt.Sprintf("user %d", i), "creators")
		group.Go(func() { errs[i] = createNamespaceAndConfigMap(t.Context(), user, s.name(fmt.Sprint(i)), s.id) })
	}
	group.Wait()
	for i, err := range errs {
		require.NoError(t, err, "user %d", i)
	}
}

// createNamespaceAndConfigMap creates a namespace and a ConfigMap in it. It retries only while the API server does not
// know the user's permissions yet.
func createNamespaceAndConfigMap(ctx context.Context, user kubernetes.Interface, name, scope string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{testLabel: scope}}}
	err := whenPermitted(ctx, func() error {
		_, err := user.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return whenPermitted(ctx, func() error {
		_, err := user.CoreV1().ConfigMaps(name).Create(ctx, newConfigMap("", "mine"), metav1.CreateOptions{})
		return err
	})
}

// whenPermitted repeats a request while the API server does not know the user's permissions, for two minutes at most.
func whenPermitted(ctx context.Context, request func() error) error {
	return wait.PollUntilContextTimeout(ctx, pollInterval, 2*time.Minute, true, func(context.Context) (bool, error) {
		err := request()
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot create resource") {
			return false, nil
		}
		return err == nil, err
	})
}
