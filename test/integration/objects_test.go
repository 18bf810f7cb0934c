package integration_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/test/operator"
)

// documents joins YAML texts.
func documents(objects ...string) string {
	return strings.Join(objects, "\n---\n")
}

// configMap returns a ConfigMap with a value of the field "key".
func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\ndata:\n  key: %q\n", name, value)
}

// podQuota returns a ResourceQuota of 100 pods.
func podQuota(name string) string {
	return "\napiVersion: v1\nkind: ResourceQuota\nmetadata: {name: " + name + "}\nspec: {hard: {pods: \"100\"}}\n"
}

// readerRole returns a Role that grants get on a resource.
func readerRole(name, resource string) string {
	return "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: " + name + "}\n" +
		"rules: [{apiGroups: [\"\"], resources: [" + resource + "], verbs: [get]}]\n"
}

// roleWithRules returns a Role with the YAML field rules.
func roleWithRules(name, rules string) string {
	return "\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: " + name + "}\n" + rules + "\n"
}

// bindingToRole returns a RoleBinding that binds a Role to a user.
func bindingToRole(name, role, user string) string {
	return "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: " + name + "}\n" +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: " + role + "}\n" +
		"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: " + user + "}]\n"
}

// bindingToClusterRole returns a RoleBinding that binds a ClusterRole to a group.
func bindingToClusterRole(name, clusterRole, group string) string {
	return "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: " + name + "}\n" +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: " + clusterRole + "}\n" +
		"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: " + group + "}]\n"
}

// viewer is the user of viewerBinding.
const viewer = "jane-the-viewer"

// viewerBinding returns a RoleBinding that lets viewer read ConfigMaps.
func viewerBinding(name string) string {
	return `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: ` + name + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + viewer + `}]
`
}

// failingObject is a ResourceQuota that rejectingPolicy denies.
const failingObject = "apiVersion: v1\nkind: ResourceQuota\nmetadata:\n  name: bad\nspec:\n  hard:\n    pods: \"1\"\n"

// rejection is a part of the message with which failingObject is denied.
const rejection = "no ResourceQuota is named bad"

// rejectingPolicy denies failingObject in the namespaces that templates populate, but not when a template is tried.
const rejectingPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: integration-rejects}
spec:
  matchConstraints:
    namespaceSelector:
      matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [nstpl-trial]}]
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [resourcequotas]}
  validations:
  - {expression: "object.metadata.name != 'bad'", message: "` + rejection + `", reason: Invalid}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: integration-rejects}
spec: {policyName: integration-rejects, validationActions: [Deny]}
`

// policyKinds has one object of each kind that platform teams use for policies.
const policyKinds = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: default-deny
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
  egress:
  - ports:
    - {protocol: UDP, port: 53}
    - {port: 5353}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: owner
rules:
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [$(NAMESPACE)]
  verbs: [get, delete]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: owner
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: owner}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: "team:$(NAMESPACE)"}
- {kind: ServiceAccount, name: deployer}
---
apiVersion: v1
kind: ResourceQuota
metadata:
  name: budget
spec:
  hard: {pods: "10", requests.cpu: 1500m, limits.memory: 4096Mi}
---
apiVersion: v1
kind: LimitRange
metadata:
  name: limits
spec:
  limits:
  - type: Container
    default: {memory: 256Mi}
    defaultRequest: {cpu: 100m, memory: 128Mi}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: deployer
automountServiceAccountToken: false
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  labels: {team: platform}
  annotations: {example.com/doc: "see https://example.com/$(NAMESPACE)"}
data:
  namespace: $(NAMESPACE)
  literal: $$(NAMESPACE) and ${NAMESPACE}
---
apiVersion: v1
kind: Secret
metadata:
  name: pull
type: Opaque
stringData:
  token: secret of $(NAMESPACE)
data:
  raw: AAEC
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: budget
spec:
  minAvailable: 1
  selector:
    matchLabels: {app: web}
`

// storedPolicyKinds is policyKinds as it is stored in a namespace.
func storedPolicyKinds(ns string) string {
	return strings.NewReplacer(
		"$$(NAMESPACE)", "$(NAMESPACE)", "$(NAMESPACE)", ns,
		"kind: ServiceAccount, name: deployer", "kind: ServiceAccount, name: deployer, namespace: "+ns,
		"4096Mi", "4Gi",
		"\nstringData:\n  token: secret of $(NAMESPACE)\ndata:", "\ndata:",
	).Replace(policyKinds)
}

// widgetDefinition is the CustomResourceDefinition of Widget.example.com.
const widgetDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
spec:
  group: example.com
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
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
              size: {type: integer}
              color: {type: string, default: red}
`

func newConfigMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func newPod(namespace, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}
	for _, do := range change {
		do(p)
	}
	return p
}

// makesPrivileged has a pod run a privileged container.
func makesPrivileged(p *corev1.Pod) {
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
}

// newDeployment returns a Deployment whose pods have the label app, with its name as the value, and other labels.
func newDeployment(namespace, name string, replicas int32, labels map[string]string) *appsv1.Deployment {
	all := map[string]string{"app": name}
	maps.Copy(all, labels)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: all},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "a", Image: "registry.example.com/a",
				}}},
			},
		},
	}
}

// resourceList returns a list of pairs of a resource and its quantity.
func resourceList(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// rawObjects returns the objects of a YAML text as JSON.
func rawObjects(t *testing.T, objects string) []runtime.RawExtension {
	t.Helper()
	var all []runtime.RawExtension
	for _, object := range parseYAML(t, objects) {
		data, err := json.Marshal(object.Object)
		require.NoError(t, err)
		all = append(all, runtime.RawExtension{Raw: data})
	}
	return all
}

// applyYAML applies the documents of a YAML text with kubectl, and deleteYAML deletes their objects.
func (s *testScope) applyYAML(text string) {
	s.t.Helper()
	_, err := s.kubectl(s.t.Context(), text, "apply", "--filename", "-")
	require.NoError(s.t, err)
}

func (s *testScope) deleteYAML(text string) {
	s.t.Helper()
	_, err := s.kubectl(s.t.Context(), text, "delete", "--filename", "-")
	require.NoError(s.t, err)
}

// parseYAML decodes the documents of a YAML text.
func parseYAML(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := operator.Decode(text)
	require.NoError(t, err)
	return objects
}

// differences returns the paths at which a stored value differs from the declared one. Fields that are not declared do
// not count.
func differences(declared, stored any) []string {
	switch declared := declared.(type) {
	case map[string]any:
		found, ok := stored.(map[string]any)
		if !ok && len(declared) > 0 { // the API server may omit empty fields
			return []string{fmt.Sprintf(" is %v, not %v", stored, declared)}
		}
		var paths []string
		for key, value := range declared {
			for _, path := range differences(value, found[key]) {
				paths = append(paths, "."+key+path)
			}
		}
		return paths
	case []any:
		found, ok := stored.([]any)
		if len(found) != len(declared) || !ok && len(declared) > 0 {
			return []string{fmt.Sprintf(" is %v, not %v", stored, declared)}
		}
		var paths []string
		for i, value := range declared {
			for _, path := range differences(value, found[i]) {
				paths = append(paths, fmt.Sprintf("[%d]%s", i, path))
			}
		}
		return paths
	}
	if assert.ObjectsAreEqual(declared, stored) {
		return nil
	}
	return []string{fmt.Sprintf(" is %#v, not %#v", stored, declared)}
}
