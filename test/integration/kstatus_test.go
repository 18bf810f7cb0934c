package integration_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// everyKind has an object of each kind of nstpl whose status is derived from the object itself.
const everyKind = `
apiVersion: policy.nstpl.dev/v1alpha1
kind: PolicySpace
metadata: {name: kstatus}
---
apiVersion: policy.nstpl.dev/v1alpha1
kind: ProtectedAttribute
metadata: {name: kstatus, namespace: default}
attributeKind: Label
attributeName: kstatus.example.com/namespaced
protectedValues: ["true"]
roleRef: {kind: Role, name: kstatus}
---
apiVersion: policy.nstpl.dev/v1alpha1
kind: ClusterProtectedAttribute
metadata: {name: kstatus}
attributeKind: Label
attributeName: kstatus.example.com/everywhere
protectedValues: ["true"]
roleRef: {kind: ClusterRole, name: kstatus}
---
apiVersion: policy.nstpl.dev/v1alpha1
kind: NamespaceInitializationConfiguration
metadata: {name: kstatus}
initializers: [{name: kstatus.example.com, namespaceSelector: {matchLabels: {kstatus: "true"}}}]
---
apiVersion: policy.nstpl.dev/v1alpha1
kind: SecurityContextConstraints
metadata: {name: kstatus}
runAsUser: {type: RunAsAny}
seLinuxContext: {type: RunAsAny}
`

// changesOfKinds are merge patches that change the generation of the objects of everyKind.
var changesOfKinds = map[string]string{
	"PolicySpace":                          `{"spec": {"quota": {"hard": {"pods": "3"}}}}`,
	"ProtectedAttribute":                   `{"protectedValues": ["true", "false"]}`,
	"ClusterProtectedAttribute":            `{"protectedValues": ["true", "false"]}`,
	"NamespaceInitializationConfiguration": `{"initializers": []}`,
	"SecurityContextConstraints":           `{"priority": 7}`,
}

// readObject returns an object of everyKind as it is stored, and its conditions.
func readObject(s *testScope,
	c assert.TestingT, object *unstructured.Unstructured,
) (*unstructured.Unstructured, map[string]metav1.Condition) {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(object.GroupVersionKind())
	var status struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	conditions := map[string]metav1.Condition{}
	if assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(object), found)) &&
		assert.NoError(c, runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, &status)) {
		for _, condition := range status.Status.Conditions {
			conditions[condition.Type] = condition
		}
	}
	return found, conditions
}

// waitKstatusCurrent waits until an object has the status Current by the rules of kstatus, for its present generation.
func waitKstatusCurrent(s *testScope, object *unstructured.Unstructured) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		found, conditions := readObject(s, c, object)
		observed, _, _ := unstructured.NestedInt64(found.Object, "status", "observedGeneration")
		assert.Equal(c, found.GetGeneration(), observed, object.GetKind())
		ready := conditions[v1alpha1.ConditionReady]
		assert.Equal(c, metav1.ConditionTrue, ready.Status, "%s: %s", object.GetKind(), ready.Message)
		assert.Equal(c, found.GetGeneration(), ready.ObservedGeneration)
		assert.NotContains(c, conditions, v1alpha1.ConditionReconciling)
		assert.NotContains(c, conditions, v1alpha1.ConditionStalled)
	})
}

// waitKstatusAbnormal waits until an object is not ready, and has another condition that says so with a message.
func waitKstatusAbnormal(s *testScope, object *unstructured.Unstructured, abnormal, message string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		_, conditions := readObject(s, c, object)
		assert.Equal(c, metav1.ConditionFalse, conditions[v1alpha1.ConditionReady].Status)
		assert.Contains(c, conditions[v1alpha1.ConditionReady].Message, message)
		assert.Equal(c, metav1.ConditionTrue, conditions[abnormal].Status)
		assert.Contains(c, conditions[abnormal].Message, message)
	})
}

func patchObject(s *testScope, object *unstructured.Unstructured, patch string) {
	s.t.Helper()
	_, err := s.kubectl(s.t.Context(), "", "patch", object.GetKind(), object.GetName(), "--namespace=default",
		"--type=merge", "--patch", patch)
	require.NoError(s.t, err)
}

// Tools that know kstatus, such as kubectl wait, Flux and Argo CD, understand every kind alike.
func TestEveryKindHasKstatus(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	s.applyYAML(everyKind)
	objects := parseYAML(t, everyKind)
	require.Len(t, objects, len(changesOfKinds))
	for _, object := range objects {
		_, err := s.kubectl(t.Context(), "", "wait", "--for=condition=Ready", "--timeout=1m", "--namespace=default",
			fmt.Sprintf("%s/%s", object.GetKind(), object.GetName()))
		require.NoError(t, err)
		waitKstatusCurrent(s, object)
	}
	_, err := s.kubectl(t.Context(), "", "wait", "--for=condition=Ready", "--timeout=1m", "scc/kstatus")
	require.NoError(t, err)

	position := s.auditPosition()
	for _, object := range objects {
		patchObject(s, object, changesOfKinds[object.GetKind()])
		waitKstatusCurrent(s, object)
	}
	for _, object := range objects {
		writes := s.writesSince(position, func(r request) bool {
			return r.ObjectRef.Subresource == "status" && r.ObjectRef.Name == object.GetName() &&
				r.ObjectRef.Resource == resourceOf(s, object)
		})
		require.Len(t, writes, 1, "one write for a change of %s", object.GetKind())
	}

	s.expectRestartWritesNothing("sccstatus")

	// A status is not taken for that of an object that was changed while no operator was running.
	require.NoError(t, s.operator.Kill())
	constraint := objects[len(objects)-1]
	patchObject(s, constraint, `{"priority": 8, "status": {"observedGeneration": 9}}`)
	found, conditions := readObject(s, t, constraint)
	observed, _, _ := unstructured.NestedInt64(found.Object, "status", "observedGeneration")
	require.Less(t, observed, found.GetGeneration())
	require.Equal(t, observed, conditions[v1alpha1.ConditionReady].ObservedGeneration)
	require.NoError(t, s.startOperator(t.Context()))
	waitKstatusCurrent(s, constraint)
}

// resourceOf returns the resource of an object's kind.
func resourceOf(s *testScope, object *unstructured.Unstructured) string {
	s.t.Helper()
	mapping, err := s.client.RESTMapper().RESTMapping(object.GroupVersionKind().GroupKind(), "v1alpha1")
	require.NoError(s.t, err)
	return mapping.Resource.Resource
}

// Objects that are not in force say whether the operator still works on them, or a person must act.
func TestKindsThatAreNotReadyShowWhoActs(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	objects := parseYAML(t, everyKind)
	s.applyYAML(everyKind)
	for _, object := range objects {
		waitKstatusCurrent(s, object)
	}
	space, namespaced, everywhere, initializers, constraint := objects[0], objects[1], objects[2], objects[3],
		objects[4]

	createParent := func() {
		parent := &v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{Name: "parent"}}
		require.NoError(t, s.client.Create(t.Context(), parent))
	}
	createParent()
	patchObject(s, space, `{"spec": {"parent": "parent"}}`)
	waitKstatusCurrent(s, space)
	_, err := s.kubectl(t.Context(), "", "delete", "policyspace", "parent")
	require.NoError(t, err)
	waitKstatusAbnormal(s, space, v1alpha1.ConditionReconciling, "policyspace parent, which does not exist")
	createParent()
	waitKstatusCurrent(s, space)

	patchObject(s, initializers, `{"initializers": [{"name": "a.example.com", "namespaceSelector":
		{"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}}]}`)
	waitKstatusAbnormal(s, initializers, v1alpha1.ConditionStalled, "initializer a.example.com: namespaceSelector: ")
	patchObject(s, initializers, changesOfKinds["NamespaceInitializationConfiguration"])
	waitKstatusCurrent(s, initializers)

	patchObject(s, space, `{"spec": {"quota": {"hard": {"pods": "3", "count/namespaces": "3"}}}}`)
	waitKstatusCurrent(s, space)
	const selfService = `
apiVersion: policy.nstpl.dev/v1alpha1
kind: PolicySpace
metadata: {name: rules}
spec: {selfService: {namePattern: "rules-*"}}
`
	s.applyYAML(selfService)
	rules := parseYAML(t, selfService)[0]
	waitKstatusCurrent(s, rules)
	for name, kinds := range map[string][]*unstructured.Unstructured{
		v1alpha1.WebhookName:          {space, rules},
		v1alpha1.AttributeWebhookName: {namespaced, everywhere}, v1alpha1.ConstraintWebhookName: {constraint},
	} {
		stored, err := s.kubectl(t.Context(), "", "get", "validatingwebhookconfiguration", name, "-o", "json")
		require.NoError(t, err)
		_, err = s.kubectl(t.Context(), "", "delete", "validatingwebhookconfiguration", name)
		require.NoError(t, err)
		for _, object := range kinds {
			waitKstatusAbnormal(s, object, v1alpha1.ConditionStalled, "apply the manifests again")
		}
		configuration := &unstructured.Unstructured{}
		require.NoError(t, configuration.UnmarshalJSON([]byte(stored)))
		configuration.SetResourceVersion("")
		require.NoError(t, s.client.Create(t.Context(), configuration))
	}
	for _, object := range append(objects, rules) {
		waitKstatusCurrent(s, object)
	}

	// While no replica answers, admission does not deny limits that no ResourceQuota can have.
	require.NoError(t, s.operator.Kill())
	patchObject(s, space, `{"spec": {"quota": {"hard": {"podz": "1"}}}}`)
	require.NoError(t, s.startOperator(t.Context()))
	waitKstatusAbnormal(s, space, v1alpha1.ConditionStalled, "kstatus has limits that no ResourceQuota can have: ")
	patchObject(s, space, `{"spec": {"quota": {"hard": {"podz": null}}}}`)
	waitKstatusCurrent(s, space)
}

// The first status of a template that selects no namespace is complete, so that ten thousand templates cost one write
// each.
func TestStatusOfATemplateThatSelectsNothingIsWrittenOnce(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	position := s.auditPosition()
	var templates []*v1alpha1.NamespaceTemplate
	for _, short := range []string{"selects-nothing", "later"} { // the operator reconciles them one after the other
		template := s.newTemplate(short, configMap("a", "v"))
		require.NoError(t, s.client.Create(t.Context(), template))
		s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
			for _, name := range []string{
				v1alpha1.TemplateAccepted, v1alpha1.TemplatePopulated, v1alpha1.ConditionReady,
			} {
				assert.Equal(c, metav1.ConditionTrue, templateCondition(status, name).Status, name)
			}
			if assert.Len(c, status.Revisions, 1) {
				assert.Equal(c, v1alpha1.RolloutComplete, status.Revisions[0].State)
			}
			assert.Equal(c, template.Generation, status.ObservedGeneration)
		})
		templates = append(templates, template)
	}
	for _, template := range templates {
		require.Len(t, s.writesSince(position, func(r request) bool {
			return r.ObjectRef.Subresource == "status" && r.ObjectRef.Name == template.Name &&
				r.ObjectRef.Resource == v1alpha1.NamespaceTemplates.Resource
		}), 1)
	}
}
