package integration_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// Only users who may use all templates, such as the operator, can change labels that templates select by through
// subresources.
func TestTemplateUseIsRequiredThroughSubresources(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	privileged := s.createTemplate("privileged", configMap("a", "v"), requiresUse,
		func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Namespaces.LabelSelector.MatchLabels["class"] = "privileged"
		})
	unprivileged, one, all := s.newUser(s.name("unprivileged")), s.newUser(s.name("one")), s.newUser(s.name("all"))
	on := func(verb string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{v1alpha1.NamespaceTemplates.Resource},
			ResourceNames: names, Verbs: []string{verb},
		}
	}
	for _, user := range []testUser{unprivileged, one, all} { // opting in and out needs another permission
		s.grant("optout-"+user.name, userSubject(user.name), on("optout"))
	}
	s.grant(s.name("use-one"), userSubject(one.name), on("use", privileged.Name))
	all.grantUseOfAllTemplates()
	selected := s.createPopulatedNamespace("selected", withLabel("class", "privileged"))
	plain := s.createNamespace("plain")
	optedOut := func(ns *corev1.Namespace) { ns.Annotations = map[string]string{v1alpha1.OptOutAnnotation: "true"} }
	out := s.createNamespace("out", optedOut)
	s.eventually(func(c *assert.CollectT) { // until the API server knows the template and all permissions
		_, err := unprivileged.createNamespace("never", map[string]string{"class": "privileged"}, nil)
		assert.ErrorContains(c, err, "may not use NamespaceTemplate "+privileged.Name)
		_, err = one.createNamespace("of-one", map[string]string{"class": "privileged"}, nil)
		assert.NoError(c, client.IgnoreAlreadyExists(err))
		for i, user := range []testUser{unprivileged, one, all} {
			_, err := user.createNamespace(fmt.Sprint("out-", i), nil,
				map[string]string{v1alpha1.OptOutAnnotation: "true"})
			assert.NoError(c, client.IgnoreAlreadyExists(err))
		}
	})

	for _, test := range subresourceChanges(plain.Name, selected.Name, out.Name) {
		expect := func(user testUser, subresource, reason string) {
			t.Helper()
			err := user.trySubresource(subresource, test.namespace, test.field, test.key, test.value)
			if reason == "" {
				require.NoError(t, err, "%s by %s through %s", test.what, user.name, subresource)
				return
			}
			require.True(t, apierrors.IsForbidden(err), "%s by %s through %s: %v", test.what, user.name, subresource,
				err)
			require.ErrorContains(t, err, reason, "%s by %s through %s", test.what, user.name, subresource)
		}
		for _, subresource := range []string{"status", "finalize"} {
			expect(unprivileged, subresource, test.without)
			expect(one, subresource, test.without)
			expect(all, subresource, test.with)
		}
		expect(newOperatorUser(s), "status", test.operator)
	}
}

// subresourceChange is a change of a label or an annotation of a namespace through its subresources.
type subresourceChange struct {
	what, namespace, field, key string
	value                       *string
	// The reasons for which these are denied: users without the verb, the user who has it for all templates, and
	// the operator. An empty reason means that the request is allowed.
	without, with, operator string
}

// subresourceChanges returns changes of namespaces: of one that no template selects, of one that a template which
// requires permission selects by the label class=privileged, and of one that is opted out.
func subresourceChanges(plain, selected, out string) []subresourceChange {
	const (
		use        = "ask for the verb use on all namespacetemplates in the API group policy.nstpl.dev"
		optout     = "ask for the verb optout on namespacetemplates"
		initialize = "ask for the verb initialize on namespaces"
		kept       = "are managed by the operator"
		either     = "denied request: " // by this policy or by the one that protects the label
	)
	return []subresourceChange{
		{
			what: "a label that a template selects", namespace: plain, field: "labels", key: "class",
			value: new("privileged"), without: use,
		},
		{
			what: "a label that no template selects", namespace: plain, field: "labels", key: "class",
			value: new("other"), without: use,
		},
		{
			what: "another value", namespace: selected, field: "labels", key: "class", value: new("other"),
			without: use,
		},
		{what: "a label that goes", namespace: selected, field: "labels", key: "class", without: use},
		{
			what: "a label of an opted-out namespace", namespace: out, field: "labels", key: "class",
			value: new("privileged"),
		},
		{
			what: "a label of the system", namespace: "kube-public", field: "labels", key: "class",
			value: new("privileged"),
		},
		{
			what: "opting in", namespace: out, field: "annotations", key: v1alpha1.OptOutAnnotation, without: use,
			operator: optout,
		},
		{
			what: "opting in by another value", namespace: out, field: "annotations",
			key: v1alpha1.OptOutAnnotation, value: new("false"),
			without: use, operator: optout,
		},
		{
			what: "opting out", namespace: plain, field: "annotations", key: v1alpha1.OptOutAnnotation,
			value: new("true"), operator: optout,
		},
		{what: "another annotation", namespace: plain, field: "annotations", key: "a", value: new("b")},
		{
			what: "initialization", namespace: plain, field: "labels", key: v1alpha1.InitializingLabel,
			value:   new("true"),
			without: either, with: initialize,
		},
		{
			what: "depth", namespace: plain, field: "labels", key: "x" + v1alpha1.DepthLabelSuffix,
			value: new("1"), without: either, with: kept,
		},
	}
}

// A namespace may be selected by more guarded templates than the API server can check permission for one by one: it
// limits the cost of a policy. Up to 20 are checked, and for more the user needs permission for all templates.
func TestTemplateUseIsRequiredForEachOfManyTemplates(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	some, all := s.newUser(s.name("some")), s.newUser(s.name("all"))
	all.grantUseOfAllTemplates()
	admin := testUser{Interface: kubernetes.NewForConfigOrDie(s.controlPlane.RESTConfig()), scope: s.userFixture}
	create := func(user testUser) error {
		_, err := user.CoreV1().Namespaces().Create(t.Context(), s.newNamespace("never"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	const most = 20
	for i := range most + 1 {
		template := s.createTemplate(fmt.Sprint("guarded-", i), configMap(fmt.Sprint("c-", i), "v"), requiresUse)
		message := "namespacetemplates/" + template.Name
		if i == most {
			message = "more than 20 NamespaceTemplates that require permission select this namespace"
		}
		s.eventually(func(c *assert.CollectT) { // until the API server knows the template
			assert.ErrorContains(c, create(some), message)
		})
		require.NoError(t, create(all), "%d templates", i+1)
		require.NoError(t, create(admin), "%d templates", i+1)
		if i == most {
			break
		}
		s.grant(template.Name, userSubject(some.name), rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{v1alpha1.NamespaceTemplates.Resource},
			ResourceNames: []string{template.Name}, Verbs: []string{"use"},
		})
		s.eventually(func(c *assert.CollectT) { // until the API server knows the permission
			assert.NoError(c, create(some), "%d templates", i+1)
		})
	}
}

// A user without the verb use never gets a namespace that a guarded template selects: neither right after the template
// was stored, nor while other templates are written, nor while no operator runs.
func TestTemplateUseIsRequiredOnceATemplateIsStored(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	jane := s.newUser("jane")
	create := func(name, value string) error {
		_, err := jane.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: s.name(name), Labels: map[string]string{"guarded": value}},
		}, metav1.CreateOptions{})
		return err
	}
	others, stop := writeOtherTemplates(s)
	for i := range 20 {
		value := fmt.Sprint("v", i)
		guarded := s.newTemplate("guarded-"+value, configMap("a", "v"), func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Namespaces = selectLabel("guarded", value)
			if i%2 == 0 {
				requiresUse(template)
			}
		})
		require.NoError(t, s.client.Create(t.Context(), guarded))
		if i%2 == 1 { // a template that exists becomes guarded
			s.patchTemplate(guarded, requiresUse)
		}
		require.ErrorContains(t, create("a-"+value, value), "may not use NamespaceTemplate "+guarded.Name)
		s.patchTemplate(guarded, func(template *v1alpha1.NamespaceTemplate) { // and selects others
			template.Spec.Namespaces = selectLabel("guarded", "also-"+value)
		})
		require.ErrorContains(t, create("b-"+value, "also-"+value), "may not use NamespaceTemplate "+guarded.Name)
		s.eventually(func(c *assert.CollectT) { assert.NoError(c, create("c-"+value, value)) })
	}
	stop()
	require.Positive(t, *others)
	require.NoError(t, s.operator.Stop())
	require.ErrorContains(t, create("d", "also-v0"), "may not use NamespaceTemplate")
	require.NoError(t, create("e", "free"))
}

// writeOtherTemplates creates, changes and deletes templates until stop is called. It counts them.
func writeOtherTemplates(s *testScope) (written *int, stop func()) {
	written = new(int)
	stopped := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for !isClosed(stopped) {
			template := s.newTemplate(fmt.Sprint("other-", *written), configMap("b", "v"), requiresUse,
				func(template *v1alpha1.NamespaceTemplate) {
					template.Spec.Namespaces = selectLabel("other", fmt.Sprint("o", *written))
				})
			if !assert.NoError(s.t, s.client.Create(s.t.Context(), template)) ||
				!assert.NoError(s.t, s.client.Delete(s.t.Context(), template)) {
				return
			}
			*written++
		}
	})
	return written, func() {
		close(stopped)
		writing.Wait()
	}
}

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

// The operator restores the record of selectors, while it runs and when it starts.
func TestTemplateUseIsRequiredAfterTheRecordWasEmptied(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	guarded := s.createTemplate("guarded", configMap("a", "v"), requiresUse)
	jane := s.newUser("jane")
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.SelectorsConfigMap,
	}}
	expectDenied := func() {
		t.Helper()
		s.eventually(func(c *assert.CollectT) { // until the API server knows
			_, err := jane.createNamespace("denied", nil, nil)
			assert.ErrorContains(c, err, "may not use NamespaceTemplate "+guarded.Name)
		})
	}
	expectDenied()
	require.NoError(t, s.client.Patch(t.Context(), record.DeepCopy(), mergePatch(`{"data": null}`)))
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(record), record))
		assert.NotEmpty(c, record.Data)
	})
	expectDenied()
	require.NoError(t, s.operator.Stop())
	require.NoError(t, s.client.Patch(t.Context(), record.DeepCopy(), mergePatch(`{"data": null}`)))
	require.NoError(t, s.startOperator(t.Context()))
	expectDenied()
}

// The API server knows the parameters of the policies at once after a restart, and denies no request for their sake.
func TestNamespacesAreCreatedAfterAPIServerRestarts(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, newTestCluster(t))
	template := s.createTemplate("defaults", configMap("a", "0"), continuesAfterFailures)
	ns := s.createPopulatedNamespace("a")
	for _, value := range []string{"1", "2"} {
		require.NoError(t, s.controlPlane.Restart(t.Context(), "kube-apiserver"))
		next := s.newNamespace("created-" + value)
		require.NoError(t, s.client.Create(t.Context(), next))
		require.Contains(t, next.Labels, v1alpha1.InitializingLabel)
		s.updateTemplate(template, withObjects(t, documents(configMap("a", value), failingObject)))
		s.waitPresent(ns, configMap("a", value))
		s.waitNotPopulated(ns, "resourcequota/bad")
		s.updateTemplate(template, withObjects(t, configMap("a", value)))
		s.waitPopulated(ns)
		s.waitPresent(next, configMap("a", value))
	}
}

// newOperatorUser returns the operator's ServiceAccount, with the operator's own token.
func newOperatorUser(s *testScope) testUser {
	s.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.operatorKubeconfig)
	require.NoError(s.t, err)
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(s.t, err)
	return testUser{Interface: clients, scope: s.userFixture, name: operatorUser}
}
