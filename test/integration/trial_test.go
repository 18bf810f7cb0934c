package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

func TestTrialFindsAllMistakesAtOnce(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	mistakes := []struct{ object, want string }{
		{configMap("fine", "v"), ""},
		{
			"{apiVersion: v1, kind: ResourceQuota, metadata: {name: budget}, spec: {hards: {pods: '5'}, scope: []}}",
			"spec.templates[1].spec.hards: resourcequota/budget: unknown field: did you mean hard?",
		},
		{
			"{apiVersion: v1, kind: ResourceQuota, metadata: {name: five}, spec: {hard: {pods: five}}}",
			"spec.templates[2].spec.hard[pods]: resourcequota/five: ",
		},
		{
			"{apiVersion: v1, kind: ResourceQuota, metadata: {name: negative}, spec: {hard: {pods: '-5'}}}",
			"spec.templates[3].spec.hard[pods]: resourcequota/negative: ",
		},
		{
			"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny}," +
				" spec: {podSelector: {}, policyType: [Ingress]}}",
			"spec.templates[4].spec.policyType: networkpolicy.networking.k8s.io/deny: unknown field: " +
				"did you mean policyTypes?",
		},
		{
			"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: lower}," +
				" spec: {podSelector: {}, policyTypes: [ingress]}}",
			"spec.templates[5].spec.policyTypes[0]: networkpolicy.networking.k8s.io/lower: ",
		},
		{
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: numbers}, data: {a: 5, b: true}}",
			"spec.templates[6].data",
		},
		{
			"{apiVersion: v1, kind: Secret, metadata: {name: plain}, data: {a: 'not base64!'}}",
			"spec.templates[7].data",
		},
		{
			"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: verbs}," +
				" rules: [{apiGroups: [''], resources: [pods]}]}",
			"spec.templates[8].rules[0].verbs: role.rbac.authorization.k8s.io/verbs: ",
		},
		{
			bindingToClusterRole("everything", "cluster-admin", "a"),
			`the operator may not bind ClusterRole "cluster-admin"`,
		},
		{
			"{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: web}}",
			"the operator may not list, watch, create, patch, delete daemonsets.apps",
		},
		{
			"{apiVersion: v1, kind: LimitRange, metadata: {name: $(NAMESPACE)-limits}," +
				" spec: {limits: [{type: Container, max: {cpu: 1}, default: {cpu: 2}}]}}",
			"spec.templates[11].spec.limits[0].default[cpu]: limitrange/$(NAMESPACE)-limits: ",
		},
		{"{apiVersion: batch/v3, kind: Job, metadata: {name: version}}", "batch/v3"},
	}
	var objects []string
	for _, mistake := range mistakes {
		objects = append(objects, mistake.object)
	}
	err := s.vet(documents(objects...))
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	for _, mistake := range mistakes {
		assert.ErrorContains(t, err, mistake.want)
	}
	assert.Equal(t, 1, strings.Count(err.Error(), "spec.templates[6].data[a]"))
	for _, noise := range []string{v1alpha1.TrialNamespace, "nnnn", "typed patch", "valueUnstructured", "fine", "data.a"} {
		assert.NotContains(t, err.Error(), noise)
	}
}

// Most users have names that are not valid everywhere, and most namespaces have short names.
func TestTrialDecidesByTypicalNames(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	policy := func(value string) string {
		return "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: own}," +
			" spec: {podSelector: {matchLabels: {of: " + value + "}}}}"
	}
	err := s.vet(policy("$(CREATOR)"))
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "spec.templates[0].spec.podSelector.matchLabels")
	require.ErrorContains(t, err, "if the creator is such a user")
	require.NoError(t, s.vet(policy("$(NAMESPACE)")))
	require.NoError(t, s.vet(policy("long-$(NAMESPACE)")), "too long with 63 characters only")
}

func TestTrialRefusesPastedObjects(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("source")
	s.createObjects(ns.Name, podQuota("budget"))
	pasted, err := s.kubectl(t.Context(), "", "get", "resourcequota", "budget", "-n", ns.Name, "-o", "json",
		"--show-managed-fields")
	require.NoError(t, err)
	refused := s.vet(pasted)
	require.True(t, apierrors.IsForbidden(refused), "%v", refused)
	require.ErrorContains(t, refused, "metadata.namespace")
	quota := parseYAML(t, pasted)[0]
	quota.SetNamespace("")
	unstructured.RemoveNestedField(quota.Object, "metadata", "managedFields")
	body, err := quota.MarshalJSON()
	require.NoError(t, err)
	refused = s.vet(string(body))
	require.True(t, apierrors.IsForbidden(refused), "%v", refused)
	require.ErrorContains(t, refused, "spec.templates[0].metadata")
}

func TestTrialFindsMistakesOfOverlays(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	patches := func(name, patch string) func(*v1alpha1.NamespaceTemplate) {
		return func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Overlays = append(template.Spec.Overlays, v1alpha1.Overlay{
				Name: name, Namespaces: selectLabel("tier", name), Patches: []v1alpha1.Patch{{Patch: patch}},
			})
		}
	}
	quota := "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: budget}\nspec: "
	err := s.vet(podQuota("budget"), patches("good", quota+"{hard: {pods: '200'}}"),
		patches("typo", quota+"{hards: {pods: '200'}}"), patches("value", quota+"{hard: {pods: '-1'}}"))
	require.ErrorContains(t, err,
		"spec.overlays[1]: resourcequota/budget: spec.hards: unknown field: did you mean hard?")
	require.ErrorContains(t, err, "spec.overlays[2]: resourcequota/budget: spec.hard[pods]: ")
	require.ErrorContains(t, err, "has 2 problems")

	// A mistake of the object itself is reported once, and not for each overlay.
	err = s.vet("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: budget}\nspec: {hards: {pods: '5'}}\n",
		patches("good", quota+"{hard: {pods: '200'}}"))
	require.ErrorContains(t, err, "vetted: spec.templates[0].spec.hards: resourcequota/budget: unknown field")
}

func TestTrialAsksAdmissionPolicies(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	denied := s.name("denied")
	s.applyYAML(strings.NewReplacer("NAME", denied).Replace(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  validations:
  - {expression: "!object.metadata.name.startsWith('NAME')", message: "ask the security team first"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME, validationActions: [Deny]}
`))
	s.eventually(func(c *assert.CollectT) {
		err := s.vet(documents(configMap("fine", "v"), configMap(denied+"-$(NAMESPACE)", "v")))
		assert.ErrorContains(c, err, fmt.Sprintf("vetted: spec.templates[1]: configmap/%s-$(NAMESPACE): "+
			"ValidatingAdmissionPolicy %q denies it: ask the security team first", denied, denied))
	})
}

func TestTrialOfCustomObjects(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	const plural = "trialbackups"
	typo := "{apiVersion: example.com/v1, kind: TrialBackup, metadata: {name: daily}, " +
		"spec: {schedul: '0 2 * * *', keep: many, targets: [{nam: a}]}}"
	require.NoError(t, s.vet(typo), "a kind that is not installed yet")
	s.applyYAML(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ` + plural + `.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: TrialBackup, plural: ` + plural + `, singular: trialbackup}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              schedule: {type: string}
              keep: {type: integer, minimum: 1}
              targets: {type: array, items: {type: object, properties: {name: {type: string}}}}
`)
	s.eventually(func(c *assert.CollectT) {
		err := s.vet(typo)
		assert.ErrorContains(c, err, "spec.templates[0].spec.schedul: trialbackup.example.com/daily: unknown field: "+
			"did you mean schedule?")
		assert.ErrorContains(c, err, "spec.templates[0].spec.keep: ")
		assert.ErrorContains(c, err, "spec.templates[0].spec.targets[0].nam: ")
	})
	require.NoError(t, s.vet("{apiVersion: example.com/v1, kind: TrialBackup, metadata: {name: daily}, "+
		"spec: {schedule: '0 2 * * *', keep: 3, targets: [{name: a}]}}"))
}

// A user who may write everywhere cannot make the API server reject the templates of others by what is in the trial
// namespace, because nothing can be stored there. Templates do not populate it.
func TestNothingIsStoredInTheTrialNamespace(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	user := s.newUserWithRules("writer", policyRule("*", "*", "*"))
	admin := s.client
	for _, writer := range []client.Client{user, admin} {
		for _, object := range parseYAML(t,
			documents(configMap("trial", "v"), bindingToClusterRole("trial", "view", "a"),
				"apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: none}\nspec: {hard: {count/configmaps: '0'}}\n")) {
			object.SetNamespace(v1alpha1.TrialNamespace)
			err := writer.Create(t.Context(), object.DeepCopy())
			require.True(t, apierrors.IsForbidden(err), "%v", err)
			require.ErrorContains(t, err, "nothing can be stored in the namespace nstpl-trial")
			require.NoError(t, writer.Create(t.Context(), object, client.DryRunAll))
		}
	}
	s.createTemplate("everywhere", configMap("trial", "v"), func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Namespaces = selectLabel(corev1.LabelMetadataName, v1alpha1.TrialNamespace)
	})
	s.createTemplate("here", configMap("trial", "v"))
	s.createPopulatedNamespace("a") // after the trial namespace, had that been populated
	namespace := &corev1.Namespace{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: v1alpha1.TrialNamespace}, namespace))
	require.NotContains(t, namespace.Labels, v1alpha1.InitializingLabel)
	for _, list := range []client.ObjectList{
		&corev1.ConfigMapList{}, &corev1.ResourceQuotaList{}, &rbacv1.RoleBindingList{},
	} {
		require.NoError(t, s.client.List(t.Context(), list, client.InNamespace(v1alpha1.TrialNamespace)))
		if configMaps, ok := list.(*corev1.ConfigMapList); ok {
			require.LessOrEqual(t, len(configMaps.Items), 1, "only kube-root-ca.crt")
			continue
		}
		require.Zero(t, apimeta.LenList(list))
	}
}

// The answer does not contain what its reader may not read: the API server tells the operator the rules of a
// ClusterRole that the operator may not bind.
func TestTrialHidesTheRulesOfClusterRoles(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	author := s.newUserWithRules("author",
		policyRule("*", v1alpha1.GroupVersion.Group, "namespacetemplates"),
		policyRule("create patch", "", "configmaps"),
		policyRule("create patch bind escalate", rbacv1.GroupName, "roles rolebindings clusterroles"))
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: s.name("hidden")}, Rules: []rbacv1.PolicyRule{
		policyRule("impersonate", "secret.example.com", "payrolls"),
	}}
	require.NoError(t, s.client.Create(t.Context(), role))
	err := author.Create(t.Context(), s.newTemplate("curious",
		documents(bindingToClusterRole("curious", role.Name, "a"),
			bindingToClusterRole("absent", s.name("absent"), "a"))), client.DryRunAll)
	require.ErrorContains(t, err, fmt.Sprintf("the operator may not bind ClusterRole %q", role.Name))
	require.ErrorContains(t, err, fmt.Sprintf("the operator may not bind ClusterRole %q", s.name("absent")))
	require.NotContains(t, err.Error(), "payrolls")
	require.NotContains(t, err.Error(), "not found", "whether a ClusterRole exists")
}

// A template of 60 objects costs one dry run for each object, and one more for an object with tokens.
func TestTrialRequestsEachObjectOnce(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	var objects []string
	want := 0
	for i := range 60 {
		name := fmt.Sprintf("object-%02d", i)
		if want++; i%6 == 0 {
			want++
			name += "-$(NAMESPACE)"
		}
		objects = append(objects, configMap(s.name(name), "v"))
	}
	overlays := func(template *v1alpha1.NamespaceTemplate) {
		for _, tier := range []string{"a", "b"} { // each changes one object without tokens
			template.Spec.Overlays = append(template.Spec.Overlays, v1alpha1.Overlay{
				Name: tier, Namespaces: selectLabel("tier", tier),
				Patches: []v1alpha1.Patch{{Patch: configMap(s.name("object-01"), tier)}},
			})
			want++
		}
	}
	position := s.auditPosition()
	begin := time.Now()
	require.NoError(t, s.vet(documents(objects...), overlays))
	t.Logf("vetted a template of %d objects in %v", len(objects), time.Since(begin).Round(time.Millisecond))
	requests, err := s.audit.Read()
	require.NoError(t, err)
	trials := 0
	for _, r := range requests[position:] {
		if r.Stage == "RequestReceived" && r.User.Username == operatorUser &&
			r.ObjectRef.Namespace == v1alpha1.TrialNamespace && strings.HasPrefix(r.ObjectRef.Name, s.name("object-")) {
			require.Equal(t, "patch", r.Verb)
			require.Contains(t, r.RequestURI, "dryRun=All")
			trials++
		}
	}
	require.Equal(t, want, trials)
}

// If the API server cannot decide about an object, the request is denied and can be repeated. A template can always be
// disabled and deleted.
func TestTrialThatCannotBeMade(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	template := s.createTemplate("stored", configMap("stored", "v"))
	url, timeout := "https://127.0.0.1:1/", int32(1)
	webhooks := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "down"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "down.example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"limitranges"},
				},
			}},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: &timeout,
		}},
	}
	const limits = "{apiVersion: v1, kind: LimitRange, metadata: {name: limits}, spec: {limits: [{type: Container}]}}"
	require.NoError(t, s.client.Create(t.Context(), webhooks))
	s.eventually(func(c *assert.CollectT) {
		err := s.vet(limits)
		assert.ErrorContains(c, err, "cannot try limitrange/limits: ")
		assert.ErrorContains(c, err, "down.example.com")
		assert.ErrorContains(c, err, "try again")
	})
	s.delete(webhooks)
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, s.vet(limits)) })

	trial := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TrialNamespace}}
	s.delete(trial)
	s.waitDeleted(trial)
	err := s.vet(limits)
	require.ErrorContains(t, err,
		"the namespace nstpl-trial, in which the API server tries the objects of templates by "+
			"dry runs, does not exist or is being deleted")
	require.ErrorContains(t, err, "kubectl create namespace nstpl-trial")
	disabled := mergePatch(`{"metadata": {"annotations": {"` + v1alpha1.TemplateApplyAnnotation + `": "` +
		v1alpha1.TemplateApplyDisable + `"}}}`)
	require.NoError(t, s.client.Patch(t.Context(), template.DeepCopy(), disabled))
	s.delete(template)
	_, err = s.kubectl(t.Context(), "", "create", "namespace", v1alpha1.TrialNamespace)
	require.NoError(t, err)
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, s.vet(limits)) })
}
