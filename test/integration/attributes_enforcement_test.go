package integration_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// countWebhookCalls returns the API server's own counts of its calls of a webhook, and of the requests that the
// webhook's matchConditions excluded.
func (cluster *testCluster) countWebhookCalls(ctx context.Context, webhook string) (calls, excluded int, err error) {
	clients, err := kubernetes.NewForConfig(cluster.controlPlane.RESTConfig())
	if err != nil {
		return 0, 0, err
	}
	text, err := clients.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, 0, err
	}
	count := func(metric string) (sum int, err error) {
		pattern := regexp.MustCompile(`(?m)^` + metric + `\{[^}]*name="` + regexp.QuoteMeta(webhook) +
			`"[^}]*\} (\d+)$`)
		for _, match := range pattern.FindAllSubmatch(text, -1) {
			var n int
			if _, err := fmt.Sscan(string(match[1]), &n); err != nil {
				return 0, err
			}
			sum += n
		}
		return sum, nil
	}
	if calls, err = count("apiserver_admission_webhook_admission_duration_seconds_count"); err != nil {
		return 0, 0, err
	}
	excluded, err = count("apiserver_admission_match_condition_exclusions_total")
	return calls, excluded, err
}

const attributesWebhook = "attributes.policy.nstpl.dev"

// The API server calls the webhook only for requests that change a protected attribute. Without rules, the webhook does
// not exist.
func TestAttributeWebhookIsCalledOnlyForProtectedAttributes(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t)
	s := newScope(t, cluster)
	ns := s.createNamespace("a").Name
	require.Empty(t, s.attributeWebhooks())
	protected := newConfigMap(ns, "protected")
	protected.Labels = map[string]string{s.name("env"): "x"}
	require.NoError(t, s.client.Create(t.Context(), protected))
	rule := s.protectAttribute("", "env",
		s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.ClusterRoleKind, "any"))
	require.Equal(t, []string{attributesWebhook}, s.attributeWebhooks())

	countCalls := func(t *testing.T) (calls, excluded int) {
		t.Helper()
		calls, excluded, err := cluster.countWebhookCalls(t.Context(), attributesWebhook)
		require.NoError(t, err)
		return calls, excluded
	}
	refused := newConfigMap(ns, "refused")
	refused.Labels = map[string]string{s.name("env"): "x"}

	t.Run("other writes do not call the webhook", func(t *testing.T) {
		s := s.withT(t)
		callsBefore, excludedBefore := countCalls(t)
		// The writes of Kubernetes' controllers meanwhile count as well: ReplicaSets, pods, tokens, leases.
		for i := range 20 {
			object := newConfigMap(ns, fmt.Sprint("other-", i))
			object.Labels, object.Annotations = map[string]string{"app": "x"},
				map[string]string{s.name("env"): "the rule is about labels"}
			require.NoError(t, s.client.Create(t.Context(), object))
			object.Labels["app"] = "y"
			require.NoError(t, s.client.Update(t.Context(), object))
			require.NoError(t, s.client.Delete(t.Context(), object))
		}
		web := newDeployment(ns, "web", 2, nil)
		require.NoError(t, s.client.Create(t.Context(), web))
		s.eventually(func(c *assert.CollectT) { assert.Len(c, s.listPods(ns, "web"), 2) })
		require.NoError(t,
			s.client.Delete(t.Context(), web, client.PropagationPolicy(metav1.DeletePropagationForeground)))
		protected.Data = map[string]string{"left": "alone"}
		protected.Annotations = map[string]string{"other": "annotation"}
		require.NoError(t, s.client.Update(t.Context(), protected))
		require.NoError(t, s.client.Delete(t.Context(), protected))
		calls, excluded := countCalls(t)
		require.Equal(t, callsBefore, calls)
		require.Greater(t, excluded, excludedBefore+40)
	})

	t.Run("a write of a protected attribute calls the webhook once", func(t *testing.T) {
		s := s.withT(t)
		callsBefore, _ := countCalls(t)
		require.True(t, apierrors.IsForbidden(s.client.Create(t.Context(), refused)))
		calls, _ := countCalls(t)
		require.Equal(t, callsBefore+1, calls)
	})

	t.Run("the webhook is removed with the last rule", func(t *testing.T) {
		s := s.withT(t)
		require.NoError(t, s.client.Delete(t.Context(), rule))
		s.eventually(func(c *assert.CollectT) {
			assert.Empty(c, s.attributeWebhooks())
			assert.NoError(c, s.client.Create(t.Context(), refused, client.DryRunAll))
		})
	})

	t.Run("a restart of the operator writes nothing", func(t *testing.T) {
		s := s.withT(t)
		rule := s.protectAttribute("", "env-again",
			s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.ClusterRoleKind, "any"))
		s.expectRestartWritesNothing("protectedattribute")
		require.True(t, apierrors.IsForbidden(s.client.Create(t.Context(), refused)))
		s.waitEnforced(rule)
	})
}

// The user who writes a workload's template needs the role. Controllers that create pods from it, report on pods or
// delete them do not.
func TestAttributesOfPodsAreCheckedInWorkloadTemplates(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("a").Name
	key := s.name("env")
	rule := s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.ClusterRoleKind,
		s.createAttributeRole("", "deployer"), "prod")
	rule.GuardDeletion = true
	s.protectAttribute("", "env", rule)
	jane, deployer := s.newAllVerbsClient(s.name("jane")), s.newAllVerbsClient(s.name("deployer"))
	s.bindRole(ns, v1alpha1.ClusterRoleKind, s.name("deployer"), userSubject(s.name("deployer")))
	prod := map[string]string{key: "prod"}
	web := newDeployment(ns, "web", 2, prod)
	require.ErrorContains(t, jane.Create(t.Context(), web.DeepCopy()),
		fmt.Sprintf("set label %s in spec.template of Deployment %s/web", key, ns))
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, deployer.Create(t.Context(), web.DeepCopy())) })
	var pods []corev1.Pod
	s.eventually(func(c *assert.CollectT) {
		pods = s.listPods(ns, "web")
		assert.Len(c, pods, 2)
	})
	require.Equal(t, "prod", pods[0].Labels[key])
	report := func(body string) error {
		return jane.Status().Patch(t.Context(), pods[0].DeepCopy(), mergePatch(body))
	}

	t.Run("writes that do not change the attribute are allowed", func(t *testing.T) {
		s := s.withT(t)
		scale := mergePatch(`{"spec": {"replicas": 3}}`)
		require.NoError(t, jane.SubResource("scale").Patch(t.Context(), web.DeepCopy(), scale))
		require.NoError(t,
			jane.Patch(t.Context(), web.DeepCopy(),
				mergePatch(
					`{"metadata": {"labels": {"other": "x"}}, "spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}}`)))
		s.eventually(func(c *assert.CollectT) { assert.GreaterOrEqual(c, len(s.listPods(ns, "web")), 3) })
		pods = s.listPods(ns, "web")
		require.NoError(t,
			report(`{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}`))
	})

	t.Run("writes of subresources that change the attribute are denied", func(t *testing.T) {
		require.ErrorContains(t, report(`{"metadata": {"labels": {"`+key+`": null}}}`), "remove label "+key)
		binding := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pods[0].Name, Namespace: ns, Labels: map[string]string{key: "x"}},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "n"},
		}
		require.ErrorContains(t, jane.SubResource("binding").Create(t.Context(), &pods[0], binding), "change label "+key)
	})

	t.Run("guarded pods can be deleted only by users who may remove the label", func(t *testing.T) {
		s := s.withT(t)
		for _, err := range []error{
			jane.Delete(t.Context(), pods[0].DeepCopy()),
			jane.SubResource("eviction").Create(t.Context(), pods[0].DeepCopy(), &policyv1.Eviction{}),
			jane.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(ns), client.MatchingLabels{"app": "web"}),
			jane.Delete(t.Context(), web.DeepCopy()),
			jane.Patch(t.Context(), web.DeepCopy(), mergePatch(`{"metadata": {"ownerReferences": [
				{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "1"}]}}`)),
		} {
			expectForbidden(t, err, "remove label "+key)
		}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(&pods[0]), &corev1.Pod{}))
		require.NoError(t,
			deployer.SubResource("eviction").Create(t.Context(), pods[0].DeepCopy(), &policyv1.Eviction{}))
		require.NoError(t, deployer.Delete(t.Context(), web.DeepCopy()))
		s.eventually(func(c *assert.CollectT) { assert.Empty(c, s.listPods(ns, "web")) }) // by the garbage collector
	})

	t.Run("deleting the namespace needs no role", func(t *testing.T) {
		s := s.withT(t)
		require.NoError(t, deployer.Create(t.Context(), newDeployment(ns, "more", 1, prod)))
		s.eventually(func(c *assert.CollectT) { assert.Len(c, s.listPods(ns, "more"), 1) })
		require.NoError(t, jane.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}))
		s.waitDeleted(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	})
}

// Templates select namespaces by labels, so a Namespace's labels are protected by cluster-wide rules and bindings only.
func TestAttributesOfNamespacesNeedClusterWideBindings(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("a")
	key := s.name("tier")
	role := s.createAttributeRole("", "tiers")
	s.protectAttribute("", "tier", s.attributeRule(v1alpha1.LabelAttribute, "tier", v1alpha1.ClusterRoleKind, role))
	// A rule and a binding inside the namespace do not apply to the Namespace object.
	s.protectAttribute(ns.Name, "tier",
		s.attributeRule(v1alpha1.LabelAttribute, "tier", v1alpha1.ClusterRoleKind, role))
	jane := s.newUser(s.name("jane"))
	s.bindRole(ns.Name, v1alpha1.ClusterRoleKind, role, userSubject(jane.name))
	inside := newConfigMap("", "inside")
	inside.Labels = map[string]string{key: "gold"}
	s.eventually(func(c *assert.CollectT) {
		_, err := jane.CoreV1().ConfigMaps(ns.Name).Create(t.Context(), inside, metav1.CreateOptions{})
		assert.NoError(c, err)
	})
	jane.grantUseOfAllTemplates() // so that no other policy denies changes of labels through subresources
	jane.expectAllDenied(ns, "labels", key, new("gold"), "of Namespace "+ns.Name,
		"ask for a binding to ClusterRole "+role)
	_, err := jane.createNamespace("b", map[string]string{key: "gold"}, nil)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	s.bindRole("", v1alpha1.ClusterRoleKind, role, userSubject(jane.name))
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, jane.metadataWrites("labels", key, new("gold"))["merge patch"](ns.Name))
	})
	other := s.newUser(s.name("other"))
	other.grantUseOfAllTemplates()
	for _, value := range []*string{nil, new("silver"), new("")} {
		other.expectAllDenied(ns, "labels", key, value)
	}
	require.NoError(t, other.metadataWrites("labels", "other", new("label"))["update of status"](ns.Name))
}

// The author of a NamespaceTemplate needs the roles for the attributes of its objects. The operator needs none to
// populate them.
func TestAttributesOfTemplatesAreCheckedForTheirAuthors(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.protectAttribute("", "env",
		s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.ClusterRoleKind, s.createAttributeRole("", "setter"),
			"prod"))
	author := s.newAllVerbsClient(s.name("author"))
	labelled := func(value string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {" + s.name("env") + ": " + value + "}}\n"
	}
	refused := func(template *v1alpha1.NamespaceTemplate, denial string) {
		t.Helper()
		err := author.Create(t.Context(), template)
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, denial)
	}
	prod := s.newTemplate("prod", labelled("prod"))
	refused(prod,
		fmt.Sprintf(
			"may not set label %s of ConfigMap a to \"prod\" in all namespaces: ask for a binding to ClusterRole %s",
			s.name("env"), s.name("setter")))
	refused(s.newTemplate("overlay", configMap("a", "v"), func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Overlays = []v1alpha1.Overlay{{
			Name: "prod", Namespaces: selectLabel("tier", "production"),
			Labels: map[string]string{s.name("env"): "prod"},
		}}
	}), "ClusterRole "+s.name("setter"))
	require.NoError(t, author.Create(t.Context(), s.newTemplate("other", configMap("b", "v"))))
	// A template applies to all namespaces, so that a binding in one namespace does not suffice.
	ns := s.createNamespace("a")
	s.bindRole(ns.Name, v1alpha1.ClusterRoleKind, s.name("setter"), userSubject(s.name("author")))
	s.bindRole("", v1alpha1.ClusterRoleKind, s.name("setter"), userSubject(s.name("author")))
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, author.Create(t.Context(), prod)) })
	refused(s.newTemplate("token", labelled("$(NAMESPACE)")), "no rule allows this value")
	s.waitPresent(ns, labelled("prod"))
	s.waitPopulated(ns)

	// Removing an attribute needs the role as well as setting it.
	other := s.newAllVerbsClient(s.name("other"))
	edit := func(change func(*v1alpha1.NamespaceTemplate)) error {
		template := &v1alpha1.NamespaceTemplate{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(prod), template))
		before := template.DeepCopy()
		change(template)
		return other.Patch(t.Context(), template, client.MergeFrom(before))
	}
	objects := func(texts ...string) func(*v1alpha1.NamespaceTemplate) {
		return func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Templates = s.newTemplate("x", documents(texts...)).Spec.Templates
		}
	}
	require.ErrorContains(t, edit(objects(configMap("a", "v"))),
		fmt.Sprintf("may not remove label %s of ConfigMap a, which is \"prod\"", s.name("env")))
	require.ErrorContains(t, edit(func(template *v1alpha1.NamespaceTemplate) {
		objects(configMap("a", "v"))(template)
		template.Spec.Overlays = []v1alpha1.Overlay{{
			Name: "o", Namespaces: selectLabel("tier", "x"), Labels: map[string]string{"a": "b"},
		}}
	}), "may not remove label")
	// A template whose name comes later in the alphabet replaces the object.
	for _, objectName := range []string{"a", "$(NAMESPACE)"} {
		err := other.Create(t.Context(), s.newTemplate("replaces", configMap(objectName, "v")))
		require.ErrorContains(t, err, fmt.Sprintf("may not remove label %s of ConfigMap a, which is \"prod\"", s.name("env")))
	}
	require.NoError(t, other.Create(t.Context(), s.newTemplate("is-replaced", configMap("a", "v")), client.DryRunAll))
	rule := &v1alpha1.ClusterProtectedAttribute{ObjectMeta: metav1.ObjectMeta{Name: s.name("env")}}
	require.NoError(t, s.client.Patch(t.Context(), rule, mergePatch(`{"guardDeletion": true}`)))
	s.waitEnforced(rule)
	// Objects that the template no longer declares are deleted in selected namespaces under every deletionPolicy.
	require.ErrorContains(t, edit(objects(configMap("b", "v"))), "may not remove label")
	// An authoritative template deletes the objects of other users, too.
	deletes := s.newTemplateAuthor("deletes", policyRule("create patch delete", "", "configmaps"))
	authoritative := func(policy v1alpha1.AuthoritativePolicy) *v1alpha1.NamespaceTemplate {
		return s.newTemplate("authoritative", configMap("c", "v"), func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Authoritative = []v1alpha1.GroupKind{{Kind: "ConfigMap"}}
			template.Spec.AuthoritativePolicy = policy
		})
	}
	expectForbidden(t, deletes.Create(t.Context(), authoritative(v1alpha1.AuthoritativeDelete)), fmt.Sprintf(
		"may not remove label %s of undeclared objects (authoritative), which is \"prod\"", s.name("env")))
	require.NoError(t, deletes.Create(t.Context(), authoritative(v1alpha1.AuthoritativeReport), client.DryRunAll))
	writes := policyRule("create patch delete", "", "configmaps")
	binds := s.newTemplateAuthor("binds", writes, bindsEveryRole[0], bindsEveryRole[1])
	require.NoError(t, binds.Create(t.Context(), authoritative(""), client.DryRunAll))
	for i, rule := range bindsEveryRole {
		half := s.newTemplateAuthor(fmt.Sprint("binds-", i), writes, rule)
		expectForbidden(t, half.Create(t.Context(), authoritative("")), s.name("env"))
	}
	s.bindRole("", v1alpha1.ClusterRoleKind, s.name("setter"), userSubject(s.name("deletes")))
	s.eventually(func(c *assert.CollectT) { // other tests have rules that guard deletions, too
		if err := deletes.Create(t.Context(), authoritative(""), client.DryRunAll); err != nil {
			assert.NotContains(c, err.Error(), s.name("env"))
		}
	})
}

// bindsEveryRole are the rights with which a user could hold every role.
var bindsEveryRole = [...]rbacv1.PolicyRule{
	policyRule("bind", rbacv1.GroupName, "clusterroles"), policyRule("create", rbacv1.GroupName, "clusterrolebindings"),
}

// Mirror pods are not checked, because kubelets run their static pods in any case.
func TestAttributesOfMirrorPodsAreNotChecked(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("a").Name
	s.eventually(func(c *assert.CollectT) { // without it, the API server denies pods before it calls webhooks
		assert.NoError(c,
			s.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "default"}, &corev1.ServiceAccount{}))
	})
	rule := s.attributeRule(v1alpha1.LabelAttribute, "tier", v1alpha1.ClusterRoleKind,
		s.createAttributeRole("", "setter"))
	rule.GuardDeletion = true
	s.protectAttribute("", "tier", rule)
	kubelet := s.newAllVerbsClient(s.name("kubelet"), "system:nodes")
	of := func(short string, annotations map[string]string) *corev1.Pod {
		return newPod(ns, short, func(p *corev1.Pod) {
			p.Labels, p.Annotations, p.Spec.NodeName = map[string]string{s.name("tier"): "control-plane"}, annotations,
				s.name("n")
		})
	}
	mirror := map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	require.NoError(t, kubelet.Create(t.Context(), of("static", mirror)))
	require.NoError(t, kubelet.Delete(t.Context(), of("static", nil)))
	require.ErrorContains(t, kubelet.Create(t.Context(), of("plain", nil)), "may not set label")
	require.ErrorContains(t, s.newAllVerbsClient(s.name("jane")).Create(t.Context(), of("forged", mirror)),
		"may not set label")
}

// A rule is not undermined by another, and says what is odd about its role.
func TestAttributeRulesCannotWeakenOthers(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("a").Name
	s.grant(s.name("jane"), userSubject(s.name("jane")), rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group, ""}, Resources: []string{"protectedattributes", "namespaces"},
		Verbs: []string{"*"},
	})
	jane, warnings := s.newWarnedUser(s.name("jane"))
	rule := func(short string, rule v1alpha1.AttributeRule) *v1alpha1.ProtectedAttribute {
		return &v1alpha1.ProtectedAttribute{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: s.name(short)}, AttributeRule: rule,
		}
	}
	own := rule("own", s.attributeRule(v1alpha1.LabelAttribute, "own", v1alpha1.RoleKind, s.name("setters")))
	edit := func(change func()) error {
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(own), own))
		before := own.DeepCopy()
		change()
		return jane.Patch(t.Context(), own, client.MergeFrom(before))
	}
	setters := s.createAttributeRole(ns, "real-setters")

	t.Run("the author is warned about a role that does not exist or has no rules", func(t *testing.T) {
		s := s.withT(t)
		require.NoError(t, jane.Create(t.Context(), own))
		require.Contains(t, strings.Join(warnings.drain(), "\n"), "Role "+ns+"/"+s.name("setters")+" does not exist")
		s.waitEnforced(own)
		require.NoError(t, edit(func() { own.Labels = map[string]string{"a": "b"} }))
		require.Empty(t, warnings.drain(), "the rule did not change")
		require.NoError(t,
			s.client.Create(t.Context(),
				&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: s.name("setters")}}))
		require.NoError(t, edit(func() { own.GuardDeletion = true }))
		require.Contains(t, strings.Join(warnings.drain(), "\n"), "has no rules")
		require.NoError(t, edit(func() { own.RoleRef.Name = setters }))
		require.Empty(t, warnings.drain())
	})

	t.Run("a rule in a namespace cannot weaken a cluster-wide rule", func(t *testing.T) {
		s := s.withT(t)
		s.protectAttribute("", "env",
			s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.ClusterRoleKind,
				s.createAttributeRole("", "deployer"),
				"prod"))
		opening := rule("opening", s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.RoleKind, setters))
		err := jane.Create(t.Context(), opening)
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, "needs the verb create on clusterprotectedattributes.policy.nstpl.dev")
		require.True(t, apierrors.IsForbidden(edit(func() {
			own.AttributeName = s.name("env")
		})), "an update of the name is denied too")
		require.NoError(t, s.client.Create(t.Context(), opening), "administrators may create it")
	})

	t.Run("the author of a cluster-wide rule is warned about earlier rules in namespaces", func(t *testing.T) {
		s := s.withT(t)
		first := rule("first", s.attributeRule(v1alpha1.LabelAttribute, "late", v1alpha1.RoleKind, setters))
		require.NoError(t, jane.Create(t.Context(), first))
		s.waitEnforced(first)
		admin, adminWarnings := s.newWarnedUser("admin-of-rules", "system:masters")
		late := &v1alpha1.ClusterProtectedAttribute{
			ObjectMeta: metav1.ObjectMeta{Name: s.name("late")},
			AttributeRule: s.attributeRule(v1alpha1.LabelAttribute, "late", v1alpha1.ClusterRoleKind,
				s.name("deployer")),
		}
		require.NoError(t, admin.Create(t.Context(), late))
		require.Contains(t, strings.Join(adminWarnings.drain(), "\n"),
			fmt.Sprintf("ProtectedAttribute %s/%s remains in force", ns, s.name("first")))
	})
}

// While a rule is enforced, no write circumvents it, whichever other rules are created and deleted meanwhile.
func TestAttributesAreEnforcedForConcurrentWrites(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	const writers, rounds = 6, 6
	cluster := borrowCluster(t)
	s := newScope(t, cluster)
	ns := s.createNamespace("a").Name
	jane := s.newAllVerbsClient(s.name("jane"))
	// the time from and until which the rule is known to be enforced, in nanoseconds; 0 is unknown
	var from, until atomic.Int64
	var passed, refusals atomic.Int64
	var group sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	errs := make(chan error, writers)
	for writer := range writers {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				object := newConfigMap(ns, fmt.Sprintf("w-%d-%d", writer, i))
				object.Labels = map[string]string{s.name("env"): "prod"}
				began := time.Now().UnixNano()
				err := jane.Create(ctx, object)
				since, ended := from.Load(), until.Load()
				switch {
				case ctx.Err() != nil:
				case apierrors.IsForbidden(err):
					refusals.Add(1)
				case err != nil:
					errs <- err
					return
				case since != 0 && began > since && ended == 0:
					errs <- fmt.Errorf("%s was allowed while the rule was enforced", object.Name)
					return
				default:
					passed.Add(1)
				}
			}
		})
	}
	for round := range rounds {
		rule := s.protectAttribute("", fmt.Sprint("env-", round),
			s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.ClusterRoleKind, "any"))
		until.Store(0)
		from.Store(time.Now().UnixNano())
		// Other rules are created and deleted, so that the webhook configuration is written each time.
		more := s.protectAttribute(ns, fmt.Sprint("more-", round),
			s.attributeRule(v1alpha1.AnnotationAttribute, "more", v1alpha1.RoleKind, "any"))
		another := s.protectAttribute("", fmt.Sprint("another-", round),
			s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.ClusterRoleKind, "any"))
		require.NoError(t, s.client.Delete(t.Context(), more))
		require.NoError(t, s.client.Delete(t.Context(), rule))
		s.eventually(func(c *assert.CollectT) { assert.Greater(c, refusals.Load(), int64(writers)) })
		until.Store(time.Now().UnixNano())
		from.Store(0)
		require.NoError(t, s.client.Delete(t.Context(), another))
		s.eventually(func(c *assert.CollectT) { assert.Empty(c, s.attributeWebhooks()) })
		before := passed.Load()
		s.eventually(func(c *assert.CollectT) { assert.Greater(c, passed.Load(), before+writers) })
		refusals.Store(0)
	}
	stop()
	group.Wait()
	select {
	case err := <-errs:
		require.NoError(t, err)
	default:
	}
}

// Without the operator, writes that change a protected attribute are denied, and all others are allowed.
func TestAttributesFailClosedWithoutOperator(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t)
	s := newScope(t, cluster)
	ns := s.createNamespace("a").Name
	s.bindRole("", v1alpha1.ClusterRoleKind, s.createAttributeRole("", "deployer"),
		groupSubject("system:masters"))
	rule := s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.ClusterRoleKind, s.name("deployer"))
	rule.GuardDeletion = true
	s.protectAttribute("", "env", rule)
	prod := map[string]string{s.name("env"): "prod"}
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, s.client.Create(t.Context(), newDeployment(ns, "web", 1, prod)))
	})
	s.eventually(func(c *assert.CollectT) { assert.Len(c, s.listPods(ns, "web"), 1) })
	require.NoError(t, cluster.operator.Kill())
	require.ErrorContains(t, s.client.Create(t.Context(), newDeployment(ns, "other", 1, prod)), attributesWebhook)
	require.NoError(t, s.client.Create(t.Context(), newDeployment(ns, "plain", 1, nil)))
	s.eventually(func(c *assert.CollectT) { assert.Len(c, s.listPods(ns, "plain"), 1) })
	scale := mergePatch(`{"spec": {"replicas": 2}}`)
	require.NoError(t, s.client.Patch(t.Context(), newDeployment(ns, "web", 1, prod), scale))
	s.eventually(func(c *assert.CollectT) { assert.Len(c, s.listPods(ns, "web"), 2) })
	require.NoError(t, cluster.startOperator(t.Context()))
	require.NoError(t, s.client.Create(t.Context(), newDeployment(ns, "other", 1, prod)))

	// Without the webhook configuration, nothing is enforced, and the rule's condition reports that.
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AttributeWebhookName},
	}
	require.NoError(t, s.client.Delete(t.Context(), configuration))
	guarded := &v1alpha1.ClusterProtectedAttribute{ObjectMeta: metav1.ObjectMeta{Name: s.name("env")}}
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(guarded), guarded))
		enforced := apimeta.FindStatusCondition(guarded.Status.Conditions, v1alpha1.AttributeEnforced)
		if assert.NotNil(c, enforced) {
			assert.Equal(c, metav1.ConditionFalse, enforced.Status)
			assert.Contains(c, enforced.Message, "does not exist")
		}
	})
	configuration.ResourceVersion = ""
	require.NoError(t, s.client.Create(t.Context(), configuration))
	s.waitEnforced(guarded)
}

// systemScope has pods in system namespaces and in one of the scope, and a Node. All have attributes that are protected.
type systemScope struct {
	*testScope
	system     []string
	namespace  string
	kubelet    client.Client
	registered *corev1.Node
}

func newSystemScope(t *testing.T) systemScope {
	t.Helper()
	s := newScope(t, borrowCluster(t))
	y := systemScope{
		testScope: s, system: []string{metav1.NamespaceSystem, v1alpha1.OperatorNamespace},
		namespace: s.createNamespace("a").Name,
	}
	for _, namespace := range append(slices.Clone(y.system), y.namespace) {
		for _, name := range []string{"deleted", "evicted", "updated"} {
			y.createLabeledPod(namespace, name)
		}
	}
	for short, name := range map[string]string{
		"name": "app.kubernetes.io/name", "hostname": "kubernetes.io/hostname", "tenant": "tenant",
	} {
		s.protectAttribute("", short, v1alpha1.AttributeRule{
			AttributeKind: v1alpha1.LabelAttribute, AttributeName: name, GuardDeletion: true,
			RoleRef: v1alpha1.RoleReference{Kind: v1alpha1.ClusterRoleKind, Name: s.name("setter")},
		})
	}
	s.grant(s.name("nodes"), groupSubject("system:nodes"), policyRule("*", "", "nodes nodes/status namespaces"))
	y.kubelet, y.registered = y.newNode("registered", "system:nodes")
	require.NoError(t, y.kubelet.Create(t.Context(), y.registered.DeepCopy()))
	return y
}

// createLabeledPod creates a pod that every Pod Security Standard allows.
func (s systemScope) createLabeledPod(namespace, name string) {
	s.t.Helper()
	pod := newPod(namespace, name, func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"app.kubernetes.io/name": "nstpl-operator"}
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(1000)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
		pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(false),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	})
	s.eventually(func(c *assert.CollectT) { // until the namespace has its default ServiceAccount
		assert.NoError(c, client.IgnoreAlreadyExists(s.client.Create(s.t.Context(), pod.DeepCopy())))
	})
}

// newNode returns the client of a kubelet and its Node, which is not created yet.
func (s systemScope) newNode(name string, groups ...string) (client.Client, *corev1.Node) {
	s.t.Helper()
	config, err := s.controlPlane.UserConfig("system:node:"+name, groups...)
	require.NoError(s.t, err)
	return s.newReadyClient(config), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: s.name(name), Labels: map[string]string{"kubernetes.io/hostname": name, "tenant": "a"},
	}}
}

// relabel changes a label of the registered Node, through a subresource or directly.
func (s systemScope) relabel(key, value string, isSubresource bool) error {
	patch := mergePatch(fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, key, value))
	if isSubresource {
		return s.kubelet.Status().Patch(s.t.Context(), s.registered.DeepCopy(), patch)
	}
	return s.kubelet.Patch(s.t.Context(), s.registered.DeepCopy(), patch)
}

func (s systemScope) evictPod(namespace, name string) error {
	return s.client.SubResource("eviction").Create(s.t.Context(), newPod(namespace, name),
		&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

func (s systemScope) deletePod(namespace, name string) error {
	return s.client.Delete(s.t.Context(), newPod(namespace, name))
}

func (s systemScope) updatePod(namespace string) error {
	return s.client.Patch(s.t.Context(), newPod(namespace, "updated"),
		mergePatch(`{"metadata": {"labels": {"app.kubernetes.io/name": "other"}}}`))
}

// expectDenials fails unless the requests are denied that are denied with and without the operator.
func (s systemScope) expectDenials(t *testing.T, attempt string) {
	t.Helper()
	for _, namespace := range append(slices.Clone(s.system), s.namespace) {
		require.Error(t, s.updatePod(namespace), namespace)
	}
	require.Error(t, s.evictPod(s.namespace, "evicted"))
	require.Error(t, s.deletePod(s.namespace, "deleted"))
	require.Error(t, s.relabel("tenant", "b", false))
	require.Error(t, s.relabel("tenant", "b", true))
	require.NoError(t, s.relabel("kubernetes.io/hostname", attempt, true))
	require.NoError(t, s.relabel("kubernetes.io/hostname", "again-"+attempt, false))
	_, another := s.newNode("another-"+attempt, "system:nodes")
	require.NoError(t, s.kubelet.Create(t.Context(), another))
	impostor, forged := s.newNode("forged-"+attempt, s.allVerbsGroup())
	require.Error(t, impostor.Create(t.Context(), forged))
}

// Without the operator, pods of its namespace and of kube-system can be replaced and nodes can register, even if their
// attributes are protected.
func TestAttributesAllowSystemPodsAndNodesWithoutOperator(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newSystemScope(t)

	t.Run("attributes are protected with the operator", func(t *testing.T) {
		s.expectDenials(t, "with-operator")
	})

	t.Run("the same requests are denied without the operator", func(t *testing.T) {
		require.NoError(t, s.operator.Kill())
		s.expectDenials(t, "without-operator")
	})

	t.Run("system pods can be evicted and deleted without the operator", func(t *testing.T) {
		for _, namespace := range s.system {
			require.NoError(t, s.evictPod(namespace, "evicted"), namespace)
			require.NoError(t, s.deletePod(namespace, "deleted"), namespace)
		}
	})
}

// These are the two examples of the source document "Protected attributes", as manifests/samples contains them.
func TestAttributeSamplesRestrictImagesAndServices(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t)
	s := newScope(t, cluster)
	ns := s.createNamespace("a").Name
	samples := []string{"../../manifests/samples/trusted-images.yaml", "../../manifests/samples/external-services.yaml"}
	for _, sample := range samples {
		_, err := cluster.kubectl(t.Context(), "", "apply", "--filename", sample)
		require.NoError(t, err)
	}
	_, err := cluster.kubectl(t.Context(), "", "wait", "--for=condition=Enforced", "clusterprotectedattributes",
		"--all")
	require.NoError(t, err)
	dev, deployer, publisher := s.newAllVerbsClient("dev"), s.newAllVerbsClient("deployer"),
		s.newAllVerbsClient("publisher")
	s.bindRole(ns, v1alpha1.ClusterRoleKind, "prod-deployer", userSubject("deployer"))
	s.bindRole(ns, v1alpha1.ClusterRoleKind, "external-publisher", userSubject("publisher"))
	pod := func(env, image string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Namespace: ns, Labels: map[string]string{"env": env}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: image}}},
		}
	}

	t.Run("trusted images in production", func(t *testing.T) {
		s := s.withT(t)
		const trusted, untrusted = "registry.example.com/a", "docker.io/a"
		s.eventually(func(c *assert.CollectT) { // until the API server enforces the bindings and the policy
			assert.NoError(c, deployer.Create(t.Context(), pod("prod", trusted), client.DryRunAll))
			assert.ErrorContains(c, deployer.Create(t.Context(), pod("prod", untrusted), client.DryRunAll),
				"registry.example.com only")
		})
		require.ErrorContains(t, dev.Create(t.Context(), pod("prod", trusted)),
			"ask for a binding to ClusterRole prod-deployer")
		require.NoError(t, dev.Create(t.Context(), pod("staging", untrusted)))
		require.ErrorContains(t, dev.Create(t.Context(), pod("other", untrusted)), "no rule allows this value")
		web := newDeployment(ns, "web", 1, map[string]string{"env": "prod"})
		require.ErrorContains(t, dev.Create(t.Context(), web.DeepCopy()), "in spec.template of Deployment")
		require.NoError(t, deployer.Create(t.Context(), web))
		s.eventually(func(c *assert.CollectT) { assert.Len(c, s.listPods(ns, "web"), 1) })
	})

	t.Run("external services", func(t *testing.T) {
		s := s.withT(t)
		service := func(labels map[string]string) *corev1.Service {
			return &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "s-", Namespace: ns, Labels: labels},
				Spec: corev1.ServiceSpec{
					Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
				},
			}
		}
		external := map[string]string{"allowExternal": "true"}
		s.eventually(func(c *assert.CollectT) {
			assert.ErrorContains(c, dev.Create(t.Context(), service(nil), client.DryRunAll),
				"needs the label allowExternal")
			assert.NoError(c, publisher.Create(t.Context(), service(external), client.DryRunAll))
		})
		require.ErrorContains(t, dev.Create(t.Context(), service(external)),
			"ask for a binding to ClusterRole external-publisher")
		open := service(external)
		require.NoError(t, publisher.Create(t.Context(), open))
		// Other users may change everything but the label.
		open.Spec.Ports[0].Port = 8080
		require.NoError(t, dev.Update(t.Context(), open))
		open.Labels, open.Spec.Type = nil, corev1.ServiceTypeClusterIP
		require.ErrorContains(t, dev.Update(t.Context(), open), "remove label allowExternal")
	})
}

// The webhooks contain the names of all rules. A namespace has a share of them, so that its rules cannot keep those of
// the cluster from being enforced.
func TestRulesOfANamespaceAreLimited(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("a")
	user := s.newTemplateAuthor("owner", policyRule("*", v1alpha1.GroupVersion.Group, "protectedattributes"))
	rule := func(i int) *v1alpha1.ProtectedAttribute {
		// A label has a domain and a name.
		name := fmt.Sprintf("%s.%s.%s/n%d", strings.Repeat("a", 63), strings.Repeat("b", 63), strings.Repeat("c", 63), i)
		return &v1alpha1.ProtectedAttribute{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: fmt.Sprintf("r%d", i)},
			AttributeRule: v1alpha1.AttributeRule{
				AttributeKind: v1alpha1.LabelAttribute, AttributeName: name,
				RoleRef: v1alpha1.RoleReference{Kind: v1alpha1.ClusterRoleKind, Name: "admin"},
			},
		}
	}
	const fit = 8 << 10 / 194
	for i := range fit {
		require.NoError(t, user.Create(t.Context(), rule(i)))
	}
	s.eventually(func(c *assert.CollectT) { // until the operator's cache has them
		assert.ErrorContains(c, user.Create(t.Context(), rule(fit), client.DryRunAll),
			"the names that ProtectedAttributes of namespace "+ns.Name+" protect have more than 8 KiB")
	})
	require.NoError(t, s.client.Create(t.Context(), rule(fit)))
	require.NoError(t, s.client.DeleteAllOf(t.Context(), &v1alpha1.ProtectedAttribute{}, client.InNamespace(ns.Name)))
}
