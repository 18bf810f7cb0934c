package integration_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/selfservice"
	"nstpl.dev/nstpl/test/marks"
)

// createSelfService creates a policyspace with rules for self-service.
func createSelfService(s *testScope, short string, rules v1alpha1.SelfService) {
	s.t.Helper()
	space := s.newSpace(short, "")
	space.Spec.SelfService = &rules
	require.NoError(s.t, s.client.Create(s.t.Context(), space))
}

// hasSelfServiceWebhook reports whether the API server sends namespaces to the operator because of rules for
// self-service.
func hasSelfServiceWebhook(s *testScope, c require.TestingT) bool {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	key := client.ObjectKey{Name: v1alpha1.WebhookName}
	require.NoError(c, s.client.Get(s.t.Context(), key, configuration))
	for i := range configuration.Webhooks {
		if configuration.Webhooks[i].Name == "self-service."+v1alpha1.GroupVersion.Group {
			return true
		}
	}
	return false
}

func labelPatch(key, value string) string {
	return fmt.Sprintf(`{"metadata": {"labels": {%q: %s}}}`, key, value)
}

// newCostNamespace returns a namespace in a policyspace, with the label that the rules of TestSelfService require.
func newCostNamespace(s *testScope, short, space string) *corev1.Namespace {
	return s.newNamespace(short, s.inSpace(space), withLabel("cost-center", "7"))
}

// consentsToDeletion lets a namespace be deleted when it has expired.
func consentsToDeletion(ns *corev1.Namespace) {
	ns.Annotations = map[string]string{v1alpha1.DeleteWhenExpiredAnnotation: "true"}
}

// intoSpace returns a patch that moves a namespace to a policyspace.
func intoSpace(s *testScope, space string) string {
	return labelPatch(v1alpha1.PolicySpaceLabel, `"`+s.name(space)+`"`)
}

func TestSelfService(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	require.False(t, hasSelfServiceWebhook(s, t), "it costs nothing while no policyspace has rules")
	space := s.createSpace("sandbox", "")
	s.createSpace("other", "")
	s.createSpace("below", "sandbox")
	jane := s.newUser(s.name("jane"))
	jane.grant("use", "policyspaces")
	jane.grantUseOfAllTemplates() // otherwise no labels can be changed through subresources
	older := s.createNamespace("older", s.inSpace("sandbox"))
	s.eventually(func(c *assert.CollectT) {
		err := jane.createsNamespace(s.newNamespace("by-jane", s.inSpace("other")))
		assert.True(c, err == nil || apierrors.IsAlreadyExists(err), "%v", err)
	})

	require.NoError(t, s.client.Patch(t.Context(), space, mergePatch(`{"spec": {"selfService":
		{"namePattern": "`+s.name("sb-*")+`", "labels": {"cost-center": "*"}}}}`)))
	named := fmt.Sprintf("the self-service of policyspace %s does not allow namespace %s: its name must match %s",
		space.Name, s.name("wrong"), s.name("sb-*"))
	// Creations are also sent to the operator because of their label, and changes of other labels only because of rules.
	s.eventually(func(c *assert.CollectT) {
		_, err := jane.CoreV1().Namespaces().Patch(t.Context(), s.name("by-jane"), types.MergePatchType,
			[]byte(labelPatch(v1alpha1.PolicySpaceLabel, `"`+space.Name+`"`)),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		assert.True(c, apierrors.IsForbidden(err), "%v", err)
	})

	t.Run("a namespace that the rules allow", func(t *testing.T) { expectAllowedByRules(t, s.withT(t), jane) })

	t.Run("a namespace that the rules do not allow", func(t *testing.T) {
		expectDeniedByRules(t, s.withT(t), jane, named)
	})

	t.Run("a namespace that moves there", func(t *testing.T) { expectMoveNeedsRules(t, s.withT(t), space, jane) })

	t.Run("a label that is required is kept", func(t *testing.T) { expectRequiredLabelIsKept(t, s.withT(t), jane) })

	t.Run("a label that is required is set by templates of users who may change the rules", func(t *testing.T) {
		expectRequiredLabelsOfTemplates(t, s.withT(t), space)
	})

	t.Run("a namespace from before the rules can be changed", func(t *testing.T) {
		expectOlderNamespaceCanChange(t, jane, older)
	})

	t.Run("by users who may change the rules", func(t *testing.T) {
		expectRulesOfHoldersOfPatch(t, s.withT(t), space)
	})

	t.Run("while the operator is down, it is denied there only", func(t *testing.T) {
		expectSelfServiceDeniedWithoutOperator(t, s.withT(t), jane)
	})

	require.NoError(t, s.client.Patch(t.Context(), space, mergePatch(`{"spec": {"selfService": null}}`)))
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, client.IgnoreAlreadyExists(jane.createsNamespace(newCostNamespace(s, "free", "sandbox"))))
		assert.False(c, hasSelfServiceWebhook(s, t))
	})
	require.NoError(t, jane.createsNamespace(s.newNamespace("free-too", s.inSpace("other"))))
}

func expectAllowedByRules(t *testing.T, s *testScope, jane testUser) {
	t.Helper()
	require.NoError(t, jane.createsNamespace(newCostNamespace(s, "sb-a", "sandbox")))
	require.NoError(t, jane.createsNamespace(newCostNamespace(s, "sb-b", "below")))
	generated := newCostNamespace(s, "", "sandbox")
	generated.Name, generated.GenerateName = "", s.name("sb-")
	require.NoError(t, jane.createsNamespace(generated))
}

func expectDeniedByRules(t *testing.T, s *testScope, jane testUser, named string) {
	t.Helper()
	require.ErrorContains(t, jane.createsNamespace(newCostNamespace(s, "wrong", "sandbox")), named)
	require.ErrorContains(t, jane.createsNamespace(newCostNamespace(s, "wrong", "below")), named, "rules hold below, too")
	require.ErrorContains(t, jane.createsNamespace(s.newNamespace("sb-c", s.inSpace("sandbox"))),
		"it must have the label cost-center with a value that matches * (nstpl:self-service)")
	generated := newCostNamespace(s, "", "sandbox")
	generated.Name, generated.GenerateName = "", s.name("wrong-")
	require.ErrorContains(t, jane.createsNamespace(generated), "its name must match")
}

func expectMoveNeedsRules(t *testing.T, s *testScope, space *v1alpha1.PolicySpace, jane testUser) {
	t.Helper()
	require.NoError(t, jane.createsNamespace(s.newNamespace("outside", withLabel("cost-center", "7"))))
	err := jane.patchesNamespace(s.name("outside"), labelPatch(v1alpha1.PolicySpaceLabel, `"`+space.Name+`"`))
	require.ErrorContains(t, err, "its name must match")
	err = jane.patchesNamespace(s.name("by-jane"), labelPatch(v1alpha1.PolicySpaceLabel, `"`+space.Name+`"`))
	require.ErrorContains(t, err, "its name must match")
	err = jane.patchesNamespace(s.name("outside"), labelPatch(v1alpha1.PolicySpaceLabel, `"`+space.Name+`"`), "status")
	require.ErrorContains(t, err, "its name must match")
}

func expectRequiredLabelIsKept(t *testing.T, s *testScope, jane testUser) {
	t.Helper()
	for _, subresource := range [][]string{nil, {"status"}} {
		require.ErrorContains(t, jane.patchesNamespace(s.name("sb-a"), labelPatch("cost-center", "null"), subresource...),
			"it must have the label cost-center")
		require.ErrorContains(t, jane.patchesNamespace(s.name("sb-a"), labelPatch("cost-center", `""`), subresource...),
			"it must have the label cost-center")
	}
	require.NoError(t, jane.patchesNamespace(s.name("sb-a"), labelPatch("cost-center", `"8"`)))
	require.NoError(t, jane.patchesNamespace(s.name("sb-a"), labelPatch("team", `"x"`)))
	// A namespace stays where it is if the tree of the space that its label names does not adopt it.
	require.NoError(t, s.client.Create(t.Context(), ofTree(s.newSpace("of-tree", ""))))
	ns := &corev1.Namespace{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: s.name("sb-b")}, ns))
	s.waitInitialized(ns)
	require.NoError(t, jane.patchesNamespace(ns.Name, intoSpace(s, "of-tree")))
	s.waitReason(ns, "NotAdopted")
	require.ErrorContains(t, jane.patchesNamespace(ns.Name, labelPatch("cost-center", "null")),
		"it must have the label cost-center")
	// So it does if a policyspace above that one does not exist.
	flux := s.newServiceAccountClient(s.createNamespace("flux").Name, "flux")
	require.NoError(t, flux.Create(t.Context(), s.newSpace("orphan", "missing")))
	require.NoError(t, jane.patchesNamespace(ns.Name, intoSpace(s, "orphan")))
	s.waitReason(ns, "PolicySpaceNotFound")
	require.ErrorContains(t, jane.patchesNamespace(ns.Name, labelPatch("cost-center", "null")),
		"it must have the label cost-center")
	require.NoError(t, jane.patchesNamespace(ns.Name, intoSpace(s, "other")), "it leaves")
	s.waitInSpace(ns.Name, "other")
	require.NoError(t, jane.patchesNamespace(ns.Name, labelPatch("cost-center", "null")))
}

// A template removes its label again once it no longer declares it, so the value does not matter.
func expectRequiredLabelsOfTemplates(t *testing.T, s *testScope, space *v1alpha1.PolicySpace) {
	t.Helper()
	elsewhere := func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Namespaces = selectLabel(testLabel, "none")
	}
	stored := s.createTemplate("stored", "", labelsNamespaces("cost-center", "7"), deletesObjects, elsewhere)
	author := s.newTemplateAuthor("author", policyRule("create patch", "", "configmaps"),
		policyRule("patch", "", "namespaces"))
	create := func(label string) error {
		template := s.newTemplate("t", "", labelsNamespaces(label, "x"), elsewhere)
		return author.Create(t.Context(), template, client.DryRunAll)
	}
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, create("team")) })
	denial := "may not set or remove the label cost-center of namespaces, since the self-service of policy spaces " +
		`requires it: ask an administrator for the right to patch policyspaces.policy.nstpl.dev "` + space.Name + `"`
	expectForbidden(t, create("cost-center"), denial)
	dropsLabel := mergePatch(`{"spec": {"namespaceMetadata": null}}`)
	expectForbidden(t, author.Patch(t.Context(), stored.DeepCopy(), dropsLabel, client.DryRunAll), denial)
	expectForbidden(t, author.Delete(t.Context(), stored.DeepCopy(), client.DryRunAll), denial)
	s.grant(s.name("author-of-rules"), userSubject(s.name("author")),
		policyRule("patch", v1alpha1.GroupVersion.Group, v1alpha1.PolicySpaces.Resource, space.Name))
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, create("cost-center")) })
	require.NoError(t, author.Patch(t.Context(), stored.DeepCopy(), dropsLabel, client.DryRunAll))
	require.NoError(t, author.Delete(t.Context(), stored.DeepCopy(), client.DryRunAll))
}

func expectOlderNamespaceCanChange(t *testing.T, jane testUser, older *corev1.Namespace) {
	t.Helper()
	require.NoError(t, jane.patchesNamespace(older.Name, labelPatch("team", `"x"`)))
	require.NoError(t, jane.patchesNamespace(older.Name, labelPatch("cost-center", `"7"`)))
	require.ErrorContains(t, jane.patchesNamespace(older.Name, labelPatch("cost-center", "null")), "cost-center")
}

func expectRulesOfHoldersOfPatch(t *testing.T, s *testScope, space *v1alpha1.PolicySpace) {
	t.Helper()
	require.NoError(t, s.client.Create(t.Context(), s.newNamespace("by-admin", s.inSpace("sandbox"))))
	lead := s.newUser(s.name("lead"))
	s.grant(s.name("lead"), userSubject(lead.name),
		policyRule("use patch", v1alpha1.GroupVersion.Group, "policyspaces", s.name("below")))
	s.eventually(func(c *assert.CollectT) {
		assert.ErrorContains(c, lead.createsNamespace(s.newNamespace("by-lead", s.inSpace("below"))),
			"the self-service of policyspace "+space.Name, "who may patch a policyspace cannot avoid the rules above it")
	})
	s.grant(s.name("lead-2"), userSubject(lead.name),
		policyRule("patch", v1alpha1.GroupVersion.Group, "policyspaces", space.Name))
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, lead.createsNamespace(s.newNamespace("by-lead", s.inSpace("below"))))
	})
}

func expectSelfServiceDeniedWithoutOperator(t *testing.T, s *testScope, jane testUser) {
	t.Helper()
	require.NoError(t, s.operator.Kill())
	require.Error(t, jane.createsNamespace(newCostNamespace(s, "sb-down", "sandbox")))
	require.NoError(t, jane.createsNamespace(s.newNamespace("down")))
	require.NoError(t, s.client.Create(t.Context(), s.newNamespace("admin-down", s.inSpace("sandbox"))))
	require.NoError(t, s.startOperator(t.Context()))
	require.NoError(t, jane.createsNamespace(newCostNamespace(s, "sb-down", "sandbox")))
}

func TestSelfServiceOnly(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t, "--self-service-only")
	s := newScope(t, cluster)
	s.createSpace("other", "")
	createSelfService(s, "sandbox", v1alpha1.SelfService{NamePattern: "*"})
	jane := s.newUser(s.name("jane"))
	jane.grant("use", "policyspaces")
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, client.IgnoreAlreadyExists(jane.createsNamespace(s.newNamespace("a", s.inSpace("sandbox")))))
	})
	elsewhere := "must be in a policyspace with self-service"
	require.ErrorContains(t, jane.createsNamespace(s.newNamespace("b")), elsewhere)
	require.ErrorContains(t, jane.createsNamespace(s.newNamespace("b", s.inSpace("other"))), elsewhere)
	require.ErrorContains(t, jane.createsNamespace(s.newNamespace("b", s.inSpace("missing"))), "policyspace")
	for _, to := range []string{"null", `"` + s.name("other") + `"`} {
		require.ErrorContains(t, jane.patchesNamespace(s.name("a"), labelPatch(v1alpha1.PolicySpaceLabel, to)), elsewhere)
	}
	jane.grantUseOfAllTemplates() // otherwise no labels can be changed through subresources
	for _, subresource := range []string{"status", "finalize"} {
		require.ErrorContains(t, jane.trySubresource(subresource, s.name("a"), "labels", v1alpha1.PolicySpaceLabel, nil),
			elsewhere)
	}
	require.NoError(t, jane.patchesNamespace(s.name("a"), labelPatch("team", `"x"`)))
	require.NoError(t, s.client.Create(t.Context(), s.newNamespace("by-admin")))
	require.NoError(t, jane.patchesNamespace(s.name("by-admin"), labelPatch("team", `"x"`)))

	require.NoError(t, s.operator.Kill())
	require.Error(t, jane.createsNamespace(s.newNamespace("down", s.inSpace("sandbox"))))
	for _, name := range []string{s.name("a"), s.name("by-admin")} {
		require.Error(t, jane.patchesNamespace(name, labelPatch("team", `"y"`)), name)
		require.NoError(t, jane.patchesNamespace(name, `{"metadata": {"annotations": {"team": "y"}}}`), name)
	}
	require.NoError(t, s.client.Create(t.Context(), s.newNamespace("admin-down")), "the cluster goes on")
	s.patchNamespace(s.newNamespace("by-admin"), labelPatch("team", `"y"`))
}

// A user who may change one policyspace, and use the one above it, does not avoid the rules of the one above by moving
// the policyspace elsewhere, with all its namespaces.
func TestPolicySpacesStayBelowRules(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	createSelfService(s, "sandbox", v1alpha1.SelfService{NamePattern: s.name("sb-*")})
	s.createSpace("middle", "sandbox")
	s.createSpace("other", "")
	below := s.createSpace("below", "sandbox")
	name := s.name("lead")
	group, resource := v1alpha1.GroupVersion.Group, v1alpha1.PolicySpaces.Resource
	s.grant(s.name("uses"), userSubject(name), policyRule("use", group, resource))
	s.grant(s.name("patches"), userSubject(name), policyRule("patch", group, resource, below.Name))
	lead, err := s.newUserClient(name)
	require.NoError(t, err)
	moveTo := func(as client.Client, parent string, options ...client.PatchOption) error {
		return as.Patch(t.Context(), below.DeepCopy(), mergePatch(`{"spec": {"parent": `+parent+`}}`), options...)
	}
	s.eventually(func(c *assert.CollectT) {
		assert.ErrorContains(c, moveTo(lead, "null", client.DryRunAll), "policyspace "+below.Name+
			" and its namespaces must stay below policyspace "+s.name("sandbox"))
	})
	// The garbage collector would delete the policyspace, and she could create it elsewhere.
	owned := mergePatch(`{"metadata": {"ownerReferences": [
		{"apiVersion": "v1", "kind": "Node", "name": "no", "uid": "no"}]}}`)
	expectForbidden(t, lead.Patch(t.Context(), below.DeepCopy(), owned),
		"may not change the owners of policyspace "+below.Name)
	require.NoError(t, s.client.Patch(t.Context(), below.DeepCopy(), owned, client.DryRunAll))
	require.ErrorContains(t, moveTo(lead, `"`+s.name("other")+`"`), "(nstpl:self-service)")
	require.NoError(t, moveTo(lead, `"`+s.name("middle")+`"`), "the rules hold there, too")
	require.ErrorContains(t, moveTo(lead, "null"), "(nstpl:self-service)")
	s.grant(s.name("patches-rules"), userSubject(name), policyRule("patch", group, resource, s.name("sandbox")))
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, moveTo(lead, `"`+s.name("other")+`"`)) })
	require.NoError(t, moveTo(s.client, `"`+s.name("sandbox")+`"`))
	require.NoError(t, moveTo(s.client, "null"))
	// Nor do namespaces come below rules by which they were not judged.
	createSelfService(s, "another", v1alpha1.SelfService{NamePattern: s.name("an-*")})
	require.ErrorContains(t, moveTo(lead, `"`+s.name("another")+`"`), "policyspace "+below.Name+
		" and its namespaces cannot move below policyspace "+s.name("another"))
	require.NoError(t, moveTo(lead, `"`+s.name("sandbox")+`"`), "a user who may change the rules")
	expectNoCreationWithNamespacesBelowRules(t, s, lead, name)
}

// A policyspace may be created after the namespaces in it, and after the policyspaces below it.
func expectNoCreationWithNamespacesBelowRules(t *testing.T, s *testScope, lead client.Client, name string) {
	t.Helper()
	s.grant(s.name("creates"), userSubject(name),
		policyRule("create delete", v1alpha1.GroupVersion.Group, v1alpha1.PolicySpaces.Resource))
	flux := s.newServiceAccountClient(s.createNamespace("flux").Name, "flux")
	require.NoError(t, flux.Create(t.Context(), s.newNamespace("early", s.inSpace("late"))))
	require.NoError(t, flux.Create(t.Context(), s.newSpace("inner", "later")))
	require.NoError(t, flux.Create(t.Context(), s.newNamespace("early-below", s.inSpace("inner"))))
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, lead.Create(t.Context(), s.newSpace("empty", "another"), client.DryRunAll))
	})
	inherited := s.newSpace("empty", "another")
	inherited.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "flux", UID: "flux"}}
	expectForbidden(t, lead.Create(t.Context(), inherited), "may not change the owners of policyspace "+inherited.Name)
	for _, short := range []string{"late", "later"} {
		expectForbidden(t, lead.Create(t.Context(), s.newSpace(short, "another")), "policyspace "+s.name(short)+
			" and its namespaces cannot move below policyspace "+s.name("another"))
		require.NoError(t, lead.Create(t.Context(), s.newSpace(short, ""), client.DryRunAll), "no rules hold there")
		require.NoError(t, lead.Create(t.Context(), s.newSpace(short, "sandbox"), client.DryRunAll), "its rules are hers")
		require.NoError(t, s.client.Create(t.Context(), s.newSpace(short, "another")))
	}
	// One that is deleted could be created elsewhere. While the operator is down, only this denies its deletion.
	require.NoError(t, s.operator.Kill())
	require.ErrorContains(t, lead.Delete(t.Context(), s.newSpace("late", "")), "self-service-parents")
	require.NoError(t, s.startOperator(t.Context()))
	expectForbidden(t, lead.Delete(t.Context(), s.newSpace("late", "")), "and its namespaces must stay below policyspace ")
	// A ServiceAccount may delete policyspaces of trees that have namespaces. Nothing names those of a collection.
	require.NoError(t, s.client.Patch(t.Context(), s.newSpace("late", ""),
		mergePatch(`{"metadata": {"labels": {"`+v1alpha1.TreeLabel+`": "x"}}}`)))
	s.grant(s.name("trees"), accountSubject(s.name("flux"), "trees"),
		policyRule("list deletecollection", v1alpha1.GroupVersion.Group, v1alpha1.PolicySpaces.Resource))
	trees := s.impersonate(t, "system:serviceaccount:"+s.name("flux")+":trees").CoreV1().RESTClient()
	s.eventually(func(c *assert.CollectT) {
		err := trees.Delete().AbsPath("/apis/policy.nstpl.dev/v1alpha1/policyspaces").
			Param("fieldSelector", "metadata.name="+s.name("late")).Do(t.Context()).Error()
		assert.ErrorContains(c, err, "policyspace "+s.name("late")+" and its namespaces must stay below policyspace ")
	})
	require.NoError(t, lead.Create(t.Context(), s.newSpace("empty", "another")))
	require.NoError(t, lead.Delete(t.Context(), s.newSpace("empty", "")))
}

// setExpiry has a namespace expire after a time from now on.
func setExpiry(s *testScope, ns *corev1.Namespace, after time.Duration) {
	s.t.Helper()
	annotateNamespace(s, ns, v1alpha1.ExpiresAnnotation, selfservice.EndOf(after, time.Now()))
}

func annotateNamespace(s *testScope, ns *corev1.Namespace, key, value string) {
	s.t.Helper()
	s.patchNamespace(ns, fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, key, value))
}

// waitExpired waits until the condition v1alpha1.NamespaceExpired has a reason, or is missing if the reason is empty.
func waitExpired(s *testScope, ns *corev1.Namespace, reason, text string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		stored := &corev1.Namespace{}
		require.NoError(c, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(ns), stored))
		found := corev1.NamespaceCondition{}
		for _, condition := range stored.Status.Conditions {
			if condition.Type == v1alpha1.NamespaceExpired {
				found = condition
			}
		}
		assert.Equal(c, reason, found.Reason, found.Message)
		assert.Contains(c, found.Message, text)
	})
}

// waitTerminating waits until a namespace is deleted, or about to be.
func waitTerminating(s *testScope, ns *corev1.Namespace) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		stored := &corev1.Namespace{}
		err := s.client.Get(s.t.Context(), client.ObjectKeyFromObject(ns), stored)
		assert.True(c, apierrors.IsNotFound(err) || err == nil && stored.DeletionTimestamp != nil, "%v", err)
	})
}

func TestNamespacesExpire(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t)
	s := newScope(t, cluster)
	createSelfService(s, "sandbox", v1alpha1.SelfService{
		NamePattern: "*", MaxAge: &metav1.Duration{Duration: 720 * time.Hour},
	})
	s.createSpace("below", "sandbox")
	s.createSpace("other", "")
	jane := s.newUser(s.name("jane"))
	jane.grant("use", "policyspaces")
	mary := s.name("mary") // she may change namespaces, but not delete them
	s.grant(mary, userSubject(mary), policyRule("get list patch", "", "namespaces"))
	maryClient, _ := s.newWarnedUser(mary)

	// Without the component, the operator may not delete namespaces.
	kept := s.createNamespace("kept", consentsToDeletion)
	setExpiry(s, kept, -time.Hour)
	waitExpired(s, kept, "Expired", "the operator may not delete namespaces: apply manifests/components/expiry")
	permissions, err := os.ReadFile("../../manifests/components/expiry/rbac.yaml")
	require.NoError(t, err)
	s.applyYAML(string(permissions))

	t.Run("a namespace in the policyspace gets an end", func(t *testing.T) { expectEndInSpace(t, s.withT(t), jane) })

	t.Run("a namespace that is applied before its policyspace gets an end", func(t *testing.T) {
		expectEndInLateSpace(t, s.withT(t))
	})

	t.Run("a namespace that keeps its place gets the end of rules that come later", func(t *testing.T) {
		expectEndWhereNamespaceRemains(t, s.withT(t))
	})

	t.Run("only administrators change it", func(t *testing.T) {
		expectOnlyAdministratorsChangeEnd(t, s.withT(t), jane)
	})

	t.Run("without consentsToDeletion, an expired namespace stays", func(t *testing.T) {
		expectExpiredStaysWithoutConsent(s.withT(t))
	})

	t.Run("consent needs the right to delete the namespace", func(t *testing.T) {
		expectConsentNeedsDelete(t, s.withT(t), jane, maryClient)
	})

	createSelfService(s, "short", v1alpha1.SelfService{
		NamePattern: "*", MaxAge: &metav1.Duration{Duration: time.Hour},
	})

	t.Run("a namespace that expires too late does not move there", func(t *testing.T) {
		expectNoMoveOfLateNamespaces(t, s.withT(t), jane)
	})

	t.Run("a namespace that consents to its deletion is moved by users who may delete it", func(t *testing.T) {
		expectMoveOfConsentingNamespaceNeedsDelete(t, s.withT(t), jane, mary, maryClient)
	})

	t.Run("a namespace without room for the annotation", func(t *testing.T) {
		expectReportWithoutRoomForAnnotation(t, s.withT(t), jane)
	})

	t.Run("a protected namespace stays", func(t *testing.T) { expectProtectedStays(s.withT(t)) })
	t.Run("a namespace of which a rule guards the deletion stays", func(t *testing.T) { expectGuardedStays(s.withT(t)) })

	t.Run("a namespace that expires while the operator is down", func(t *testing.T) {
		expectExpiryWhileOperatorIsDown(t, s.withT(t), kept)
	})
}

// The policyspace has no maxAge of its own: its parent has one.
func expectEndInLateSpace(t *testing.T, s *testScope) {
	t.Helper()
	flux := s.newServiceAccountClient(s.createNamespace("flux").Name, "flux")
	ns := s.newNamespace("early", s.inSpace("late"))
	require.NoError(t, flux.Create(t.Context(), ns))
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, "PolicySpaceNotFound", condition.Reason)
	})
	s.createSpace("late", "sandbox")
	s.eventually(func(c *assert.CollectT) {
		stored := &corev1.Namespace{}
		if assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), stored)) {
			assert.NotEmpty(c, stored.Annotations[v1alpha1.ExpiresAnnotation])
		}
	})
}

// The policyspace that the label of the namespace names does not exist.
func expectEndWhereNamespaceRemains(t *testing.T, s *testScope) {
	t.Helper()
	space := s.createSpace("endless", "")
	ns := s.createNamespace("parked", s.inSpace("endless"))
	s.waitInitialized(ns)
	argo := s.newServiceAccountClient(s.createNamespace("argo").Name, "argo")
	require.NoError(t, argo.Patch(t.Context(), ns.DeepCopy(), mergePatch(intoSpace(s, "nowhere"))))
	s.waitReason(ns, "PolicySpaceNotFound")
	require.NoError(t, s.client.Patch(t.Context(), space,
		mergePatch(`{"spec": {"selfService": {"namePattern": "*", "maxAge": "720h"}}}`)))
	s.eventually(func(c *assert.CollectT) {
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
		assert.NotEmpty(c, ns.Annotations[v1alpha1.ExpiresAnnotation])
	})
}

func expectEndInSpace(t *testing.T, s *testScope, jane testUser) {
	t.Helper()
	for short, space := range map[string]string{"a": "sandbox", "b": "below"} {
		s.eventually(func(c *assert.CollectT) {
			err := jane.createsNamespace(s.newNamespace(short, s.inSpace(space)))
			assert.NoError(c, client.IgnoreAlreadyExists(err))
		})
		ns := s.newNamespace(short)
		s.eventually(func(c *assert.CollectT) {
			require.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
			end, err := time.Parse(time.RFC3339, ns.Annotations[v1alpha1.ExpiresAnnotation])
			if assert.NoError(c, err) {
				assert.InDelta(c, 720, end.Sub(ns.CreationTimestamp.Time).Hours(), 1)
			}
		})
		waitExpired(s, ns, "", "")
	}
	ns := s.createNamespace("elsewhere", s.inSpace("other"))
	s.waitInitialized(ns)
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
	require.NotContains(t, ns.Annotations, v1alpha1.ExpiresAnnotation)
}

func expectOnlyAdministratorsChangeEnd(t *testing.T, s *testScope, jane testUser) {
	t.Helper()
	for _, value := range []string{`"never"`, `"2999-01-01T00:00:00Z"`, "null"} {
		patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: %s}}}`, v1alpha1.ExpiresAnnotation, value)
		for _, subresource := range [][]string{nil, {"status"}} {
			require.ErrorContains(t, jane.patchesNamespace(s.name("a"), patch, subresource...), "(nstpl:expiry)")
		}
	}
	own := s.newNamespace("own", s.inSpace("sandbox"))
	own.Annotations = map[string]string{v1alpha1.ExpiresAnnotation: v1alpha1.ExpiresNever}
	require.ErrorContains(t, jane.createsNamespace(own), "(nstpl:expiry)")
	annotateNamespace(s, s.newNamespace("b"), v1alpha1.ExpiresAnnotation, v1alpha1.ExpiresNever)
}

func expectExpiredStaysWithoutConsent(s *testScope) {
	ns := s.newNamespace("a")
	setExpiry(s, ns, -time.Minute)
	waitExpired(s, ns, "Expired", "did not consent")
	s.waitEvent(ns, corev1.EventTypeWarning, "Expired", "did not consent")
	annotateNamespace(s, ns, v1alpha1.ExpiresAnnotation, "tomorrow")
	waitExpired(s, ns, "InvalidTime", `the value "tomorrow"`)
	annotateNamespace(s, ns, v1alpha1.ExpiresAnnotation, v1alpha1.ExpiresNever)
	waitExpired(s, ns, "", "")
}

func expectConsentNeedsDelete(t *testing.T, s *testScope, jane testUser, maryClient client.Client) {
	t.Helper()
	patch := mergePatch(fmt.Sprintf(`{"metadata": {"annotations": {%q: "true"}}}`, v1alpha1.DeleteWhenExpiredAnnotation))
	ns := s.newNamespace("a")
	require.ErrorContains(t, maryClient.Patch(t.Context(), ns, patch), "may not consent to the deletion")
	setExpiry(s, ns, -time.Minute)
	waitExpired(s, ns, "Expired", "did not consent")
	require.NoError(t, jane.patchesNamespace(ns.Name, fmt.Sprintf(`{"metadata": {"annotations": {%q: "true"}}}`,
		v1alpha1.DeleteWhenExpiredAnnotation)))
	waitTerminating(s, ns)
}

func expectNoMoveOfLateNamespaces(t *testing.T, s *testScope, jane testUser) {
	t.Helper()
	ns := s.newNamespace("long", s.inSpace("sandbox"))
	require.NoError(t, jane.createsNamespace(ns))
	s.eventually(func(c *assert.CollectT) { // until the operator knows the rules
		_, err := jane.CoreV1().Namespaces().Patch(t.Context(), ns.Name, types.MergePatchType, []byte(intoSpace(s, "short")),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		assert.ErrorContains(c, err, "it must expire within 60m, and its annotation policy.nstpl.dev/expires is ")
	})
	require.ErrorContains(t, jane.patchesNamespace(ns.Name, intoSpace(s, "short")), "it must expire within 60m")
	require.NoError(t, jane.patchesNamespace(ns.Name, intoSpace(s, "below")), "it leaves no rules")
	annotateNamespace(s, ns, v1alpha1.ExpiresAnnotation, v1alpha1.ExpiresNever)
	require.ErrorContains(t, jane.patchesNamespace(ns.Name, intoSpace(s, "short")), "is never (nstpl:self-service)")
	require.NoError(t, jane.patchesNamespace(ns.Name, intoSpace(s, "sandbox")), "it is below the same rules")
	setExpiry(s, ns, 30*time.Minute)
	require.NoError(t, jane.patchesNamespace(ns.Name, intoSpace(s, "short")))
}

func expectMoveOfConsentingNamespaceNeedsDelete(
	t *testing.T, s *testScope, jane testUser, mary string, maryClient client.Client,
) {
	t.Helper()
	s.grant(s.name("mary-uses"), userSubject(mary),
		policyRule("use", v1alpha1.GroupVersion.Group, v1alpha1.PolicySpaces.Resource))
	ns := s.createNamespace("consents", consentsToDeletion, s.inSpace("other"))
	s.waitInitialized(ns)
	patch := func(body string) error { return maryClient.Patch(t.Context(), ns.DeepCopy(), mergePatch(body)) }
	s.eventually(func(c *assert.CollectT) {
		assert.ErrorContains(c, patch(intoSpace(s, "short")), "or move it to another policyspace")
	})
	require.ErrorContains(t, patch(labelPatch(v1alpha1.PolicySpaceLabel, "null")), "(nstpl:expiry)")
	require.NoError(t, patch(labelPatch("team", `"x"`)))
	require.NoError(t, jane.patchesNamespace(ns.Name, intoSpace(s, "below")))
	require.NoError(t, patch(`{"metadata": {"annotations": {"`+v1alpha1.DeleteWhenExpiredAnnotation+`": null}}}`))
	require.NoError(t, patch(intoSpace(s, "other")), "it is not deleted")
}

func expectReportWithoutRoomForAnnotation(t *testing.T, s *testScope, jane testUser) {
	t.Helper()
	ns := s.createNamespace("full", s.inSpace("other"))
	s.waitInitialized(ns)
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
	room := 256<<10 - len("fill")
	for key, value := range ns.Annotations {
		room -= len(key) + len(value)
	}
	// Annotations that are larger than users may write may be from before that was so.
	require.NoError(t, newOperatorClient(s).Patch(t.Context(), ns, mergePatch(fmt.Sprintf(
		`{"metadata": {"annotations": {"fill": %q}}}`, strings.Repeat("x", room)))))
	require.NoError(t, jane.patchesNamespace(ns.Name, intoSpace(s, "sandbox")))
	waitExpired(s, ns, "InvalidTime", "its annotation policy.nstpl.dev/expires cannot be written")
	s.waitEvent(ns, corev1.EventTypeWarning, "InvalidTime", "cannot be written")
}

func expectProtectedStays(s *testScope) {
	ns := s.createNamespace("protected", consentsToDeletion)
	annotateNamespace(s, ns, v1alpha1.DeletionProtectionAnnotation, "true")
	setExpiry(s, ns, -time.Minute)
	waitExpired(s, ns, "Expired", "protected from deletion")
	annotateNamespace(s, ns, v1alpha1.DeletionProtectionAnnotation, "false")
	waitTerminating(s, ns)
}

func expectGuardedStays(s *testScope) {
	ns := s.createNamespace("guarded", consentsToDeletion, withLabel(s.name("guarded"), "a"))
	rule := s.attributeRule(v1alpha1.LabelAttribute, "guarded", v1alpha1.ClusterRoleKind,
		s.createAttributeRole("", "deleter"))
	rule.GuardDeletion = true
	s.protectAttribute("", "guarded", rule)
	setExpiry(s, ns, -time.Minute)
	waitExpired(s, ns, "Expired", "stays because ClusterProtectedAttribute "+s.name("guarded")+" guards its label "+
		s.name("guarded"))
}

func expectExpiryWhileOperatorIsDown(t *testing.T, s *testScope, kept *corev1.Namespace) {
	t.Helper()
	ns := s.createNamespace("down", consentsToDeletion)
	s.waitInitialized(ns)
	require.NoError(t, s.operator.Kill())
	setExpiry(s, ns, -time.Minute)
	require.NoError(t, s.startOperator(t.Context()))
	waitTerminating(s, ns)
	waitTerminating(s, kept)
}
