package integration_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
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
	nobody, one, all := s.newUser(s.name("nobody")), s.newUser(s.name("one")), s.newUser(s.name("all"))
	on := func(verb string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{v1alpha1.NamespaceTemplates.Resource},
			ResourceNames: names, Verbs: []string{verb},
		}
	}
	for _, user := range []testUser{nobody, one, all} { // opting in and out needs another permission
		s.grant("optout-"+user.name, userSubject(user.name), on("optout"))
	}
	s.grant(s.name("use-one"), userSubject(one.name), on("use", privileged.Name))
	all.grantUseOfAllTemplates()
	selected := s.createPopulatedNamespace("selected", withLabel("class", "privileged"))
	plain := s.createNamespace("plain")
	optedOut := func(ns *corev1.Namespace) { ns.Annotations = map[string]string{v1alpha1.OptOutAnnotation: "true"} }
	out := s.createNamespace("out", optedOut)
	s.eventually(func(c *assert.CollectT) { // until the API server knows the template and all permissions
		_, err := nobody.createNamespace("never", map[string]string{"class": "privileged"}, nil)
		assert.ErrorContains(c, err, "may not use NamespaceTemplate "+privileged.Name)
		_, err = one.createNamespace("of-one", map[string]string{"class": "privileged"}, nil)
		assert.NoError(c, client.IgnoreAlreadyExists(err))
		for i, user := range []testUser{nobody, one, all} {
			_, err := user.createNamespace(fmt.Sprint("out-", i), nil,
				map[string]string{v1alpha1.OptOutAnnotation: "true"})
			assert.NoError(c, client.IgnoreAlreadyExists(err))
		}
	})

	const (
		use        = "ask for the verb use on all namespacetemplates in the API group policy.nstpl.dev"
		optout     = "ask for the verb optout on namespacetemplates"
		initialize = "ask for the verb initialize on namespaces"
		kept       = "are managed by the operator"
		either     = "denied request: " // by this policy or by the one that protects the label
	)
	for _, test := range []struct {
		what, namespace, field, key string
		value                       *string
		// The reasons for which these are denied: users without the verb, the user who has it for all templates, and
		// the operator. An empty reason means that the request is allowed.
		without, with, operator string
	}{
		{
			what: "a label that a template selects", namespace: plain.Name, field: "labels", key: "class",
			value: new("privileged"), without: use,
		},
		{
			what: "a label that no template selects", namespace: plain.Name, field: "labels", key: "class",
			value: new("other"), without: use,
		},
		{
			what: "another value", namespace: selected.Name, field: "labels", key: "class", value: new("other"),
			without: use,
		},
		{what: "a label that goes", namespace: selected.Name, field: "labels", key: "class", without: use},
		{
			what: "a label of an opted-out namespace", namespace: out.Name, field: "labels", key: "class",
			value: new("privileged"),
		},
		{
			what: "a label of the system", namespace: "kube-public", field: "labels", key: "class",
			value: new("privileged"),
		},
		{
			what: "opting in", namespace: out.Name, field: "annotations", key: v1alpha1.OptOutAnnotation, without: use,
			operator: optout,
		},
		{
			what: "opting in by another value", namespace: out.Name, field: "annotations",
			key: v1alpha1.OptOutAnnotation, value: new("false"),
			without: use, operator: optout,
		},
		{
			what: "opting out", namespace: plain.Name, field: "annotations", key: v1alpha1.OptOutAnnotation,
			value: new("true"), operator: optout,
		},
		{what: "another annotation", namespace: plain.Name, field: "annotations", key: "a", value: new("b")},
		{
			what: "initialization", namespace: plain.Name, field: "labels", key: v1alpha1.InitializingLabel,
			value:   new("true"),
			without: either, with: initialize,
		},
		{
			what: "depth", namespace: plain.Name, field: "labels", key: "x" + v1alpha1.DepthLabelSuffix,
			value: new("1"), without: either, with: kept,
		},
	} {
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
			expect(nobody, subresource, test.without)
			expect(one, subresource, test.without)
			expect(all, subresource, test.with)
		}
		expect(s.newOperatorUser(), "status", test.operator)
	}
}

// unknownParamKind is the API server's error while it does not know the kind of a policy's parameters.
const unknownParamKind = "failed to find resource referenced by paramKind"

// setParamKind changes the kind of the parameters of the policy nstpl-template-use. It returns when the API server
// denies new namespaces for that reason, or allows them.
func (s *testScope) setParamKind(kind string, refused bool) {
	s.t.Helper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "nstpl-template-use"},
	}
	patch := `{"spec": {"paramKind": {"kind": "` + kind + `"}}}`
	require.NoError(s.t, s.client.Patch(s.t.Context(), policy, mergePatch(patch)))
	s.eventually(func(c *assert.CollectT) {
		err := s.client.Create(s.t.Context(), s.newNamespace("probe"), client.DryRunAll)
		if refused {
			assert.ErrorContains(c, err, unknownParamKind)
		} else {
			assert.NoError(c, err)
		}
	})
}

// expectOperatorNotDenied fails if the API server denied a request of the operator because of unknown parameters.
func (s *testScope) expectOperatorNotDenied() {
	s.t.Helper()
	requests, err := s.audit.Read()
	require.NoError(s.t, err)
	for _, r := range requests {
		if r.User.Username == operatorUser {
			require.NotContains(s.t, r.ResponseStatus.Message, unknownParamKind, "%s %s", r.Verb, r.RequestURI)
		}
	}
}

// After its start, the API server may not know the kind of the parameters for some time. Until it does, it denies
// everything that may have a namespace selected. Namespaces are still populated, reported on, initialized and deleted.
func TestTemplateUseIsDeniedUntilTemplatesAreKnown(t *testing.T) {
	t.Parallel()
	s := newScope(t, newTestCluster(t))
	template := s.createTemplate("defaults", configMap("a", "v"), continuesAfterFailures)
	s.createInitializers(3600, v1alpha1.FailureFail, "network")
	held, deleted := s.createNamespace("held"), s.createNamespace("deleted")
	s.waitPending(held, s.name("network"))
	s.waitPending(deleted, s.name("network"))

	s.setParamKind("NotInstalledYet", true)
	require.ErrorContains(t, s.client.Create(t.Context(), s.newNamespace("never")), unknownParamKind,
		"the namespace could not be held")
	labelled := mergePatch(`{"metadata": {"labels": {"a": "b"}}}`)
	require.ErrorContains(t, s.client.Patch(t.Context(), held.DeepCopy(), labelled), unknownParamKind)
	jane := s.newUser("jane")
	err := jane.trySubresource("status", held.Name, "labels", "a", new("b"))
	require.ErrorContains(t, err, "ask for the verb use on all namespacetemplates")

	s.updateTemplate(template, withObjects(t, documents(configMap("a", "w"), failingObject)))
	s.waitPresent(held, configMap("a", "w"))
	s.waitNotPopulated(held, "resourcequota/bad")
	s.updateTemplate(template, withObjects(t, configMap("a", "x")))
	s.waitPopulated(held)
	finished := mergePatch(`{"metadata": {"annotations": {"` + v1alpha1.PendingAnnotation + `": null}}}`)
	require.NoError(t, s.client.Status().Patch(t.Context(), held.DeepCopy(), finished))
	s.waitInitialized(held)
	s.delete(deleted)
	s.waitDeleted(deleted)
	s.expectOperatorNotDenied()

	s.setParamKind("NamespaceTemplate", false)
}

// The operator continues after a restart of the API server, whether or not that knows the kind of the parameters at
// once.
func TestOperatorContinuesAfterAPIServerRestart(t *testing.T) {
	t.Parallel()
	s := newScope(t, newTestCluster(t))
	template := s.createTemplate("defaults", configMap("a", "0"), continuesAfterFailures)
	ns := s.createPopulatedNamespace("a")
	for _, value := range []string{"1", "2"} {
		require.NoError(t, s.controlPlane.Restart(t.Context(), "kube-apiserver"))
		s.updateTemplate(template, withObjects(t, documents(configMap("a", value), failingObject)))
		s.waitPresent(ns, configMap("a", value))
		s.waitNotPopulated(ns, "resourcequota/bad")
		s.updateTemplate(template, withObjects(t, configMap("a", value)))
		s.waitPopulated(ns)
		next := s.newNamespace("created-" + value)
		s.eventually(func(c *assert.CollectT) { // namespaces may be denied for half a minute
			assert.NoError(c, s.client.Create(t.Context(), next))
		})
		s.waitPresent(next, configMap("a", value))
	}
	s.expectOperatorNotDenied()
}
