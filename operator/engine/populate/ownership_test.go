package populate

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// fields decodes an object given in YAML into the types that decoding JSON gives.
func fields(t testing.TB, text string) map[string]any {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	var object map[string]any
	require.NoError(t, utiljson.Unmarshal(data, &object))
	return object
}

func entryOf(fieldsV1 string) *metav1.ManagedFieldsEntry {
	return &metav1.ManagedFieldsEntry{
		Manager: "nstpl", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(fieldsV1),
	}
}

func TestIsOwnEntry(t *testing.T) {
	tests := []struct {
		name  string
		entry metav1.ManagedFieldsEntry
		want  bool
	}{
		{
			"applied by nstpl",
			metav1.ManagedFieldsEntry{Manager: "nstpl", Operation: metav1.ManagedFieldsOperationApply}, true,
		},
		{
			"updated under the name of nstpl",
			metav1.ManagedFieldsEntry{Manager: "nstpl", Operation: metav1.ManagedFieldsOperationUpdate}, false,
		},
		{
			"applied by another client",
			metav1.ManagedFieldsEntry{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply}, false,
		},
		{
			"the status",
			metav1.ManagedFieldsEntry{
				Manager: "nstpl", Operation: metav1.ManagedFieldsOperationApply, Subresource: "status",
			},
			false,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, IsOwnEntry(&test.entry))
			object := &metav1.PartialObjectMetadata{
				ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
					{Manager: "other"}, test.entry,
				}},
			}
			require.Nil(t, ownEntry(object), "every user may apply an object without a template's label")
			object.Labels = map[string]string{v1alpha1.TemplateNameLabel: "a"}
			require.Equal(t, test.want, ownEntry(object) != nil)
		})
	}
}

func TestLostFields(t *testing.T) {
	tests := []struct {
		name, declared, owned string
		want                  []string
	}{
		{"every field is owned", "{data: {a: b}, metadata: {labels: {x: y}}}",
			`{"f:data":{"f:a":{}},"f:metadata":{"f:labels":{"f:x":{}}}}`, nil},
		{"nodes that own themselves", "{data: {a: b}, metadata: {labels: {x: y}}}",
			`{"f:data":{".":{},"f:a":{}},"f:metadata":{"f:labels":{".":{},"f:x":{}}}}`, nil},
		{"fields that identify an object never have an owner", `
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: b, creationTimestamp: null, uid: c, resourceVersion: "1", generation: 1, selfLink: d}
status: {}`, `{}`, nil},
		{"a field", "{data: {a: b, c: d}}", `{"f:data":{"f:a":{}}}`, []string{"data.c"}},
		{"a label", "{metadata: {labels: {a: b, c: d}, annotations: {e: f}}}",
			`{"f:metadata":{"f:labels":{"f:a":{}},"f:annotations":{"f:e":{}}}}`, []string{"metadata.labels.c"}},
		{
			"all labels", "{metadata: {labels: {a: b}}}", `{"f:metadata":{"f:annotations":{"f:e":{}}}}`,
			[]string{"metadata.labels.a"},
		},
		{"everything", "{data: {a: b}, immutable: true}", `{}`, []string{"data.a", "immutable"}},
		{"sorted", "{z: 1, a: 1, m: {d: 1, b: 1}}", `{}`, []string{"a", "m.b", "m.d", "z"}},
		{"an atomic list", "{rules: [{verbs: [get]}]}", `{"f:rules":{}}`, nil},
		{
			"an atomic list set by another client", "{rules: [{verbs: [get]}]}",
			`{"f:metadata":{"f:labels":{"f:a":{}}}}`,
			[]string{"rules"},
		},
		{"an atomic map", "{roleRef: {kind: Role, name: a}}", `{"f:roleRef":{}}`, nil},
		{"an empty map", "{spec: {podSelector: {}}}", `{"f:spec":{"f:podSelector":{}}}`, nil},
		{
			"an empty map set by another client", "{spec: {podSelector: {}, policyTypes: [Ingress]}}",
			`{"f:spec":{"f:policyTypes":{}}}`, []string{"spec.podSelector"},
		},
		{"an empty atomic list", "{spec: {ingress: []}}", `{"f:spec":{"f:ingress":{}}}`, nil},
		{
			"an empty atomic list filled by another client", "{spec: {ingress: [], podSelector: {}}}",
			`{"f:spec":{"f:podSelector":{}}}`, []string{"spec.ingress"},
		},
		{"null", "{spec: {a: null}}", `{"f:spec":{"f:a":{}}}`, nil},
		{"null set by another client", "{spec: {a: null, b: 1}}", `{"f:spec":{"f:b":{}}}`, []string{"spec.a"}},
		{"fields that are not declared", "{data: {a: b}}", `{"f:data":{"f:a":{},"f:z":{}},"f:immutable":{}}`, nil},
		{"keys that look like paths", `{data: {a.b/c: d, "1": e, "": f, "漢字": g, "f:a": h, ".": i}}`,
			`{"f:data":{"f:a.b/c":{},"f:1":{},"f:":{},"f:漢字":{},"f:f:a":{},"f:.":{}}}`, nil},
		{"a unicode key", `{data: {"漢字": a}}`, `{"f:data":{"f:\u6f22":{}}}`, []string{"data.漢字"}},

		{"a list with a key", "{containers: [{name: a, image: b}]}",
			`{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:name":{},"f:image":{}}}}`, nil},
		{"a field of an item", "{containers: [{name: a, image: b}, {name: c, image: d}]}",
			`{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:name":{},"f:image":{}},"k:{\"name\":\"c\"}":{".":{},"f:name":{}}}}`,
			[]string{`containers[{"name":"c"}].image`}},
		{"an item", "{containers: [{name: a}, {name: c}]}",
			`{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}}}}`,
			[]string{`containers[{"name":"c"}]`}},
		{"a large item", "{containers: [{name: a, image: an-image-with-quite-a-long-name}]}",
			`{"f:containers":{"k:{\"name\":\"b\"}":{"f:name":{}}}}`,
			[]string{"containers[…]"}},
		{"a key that is a number", "{ports: [{containerPort: 80, protocol: TCP}]}",
			`{"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}}}`, nil},
		{"a defaulted key", "{ports: [{containerPort: 80}]}",
			`{"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}`, nil},
		{"a defaulted key beside one that is not",
			"{ports: [{port: 53, targetPort: 8053}, {port: 53, protocol: SCTP}]}",
			`{"f:ports":{"k:{\"port\":53,\"protocol\":\"SCTP\"}":{".":{},"f:port":{},"f:protocol":{}},"k:{\"port\":53,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:targetPort":{}}}}`, nil},
		{"an item with a defaulted key beside one that is not", "{ports: [{port: 53}, {port: 53, protocol: SCTP}]}",
			`{"f:ports":{"k:{\"port\":53,\"protocol\":\"SCTP\"}":{".":{},"f:port":{},"f:protocol":{}}}}`,
			[]string{`ports[{"port":53}]`}},
		{
			"two items with the same key", "{env: [{name: A, value: a}, {name: A, value: b}]}",
			`{"f:env":{"k:{\"name\":\"A\"}":{}}}`, nil,
		},
		{
			"a set", "{metadata: {finalizers: [a, b]}}", `{"f:metadata":{"f:finalizers":{"v:\"a\"":{},"v:\"b\"":{}}}}`,
			nil,
		},
		{
			"an item of a set", "{metadata: {finalizers: [a, b]}}",
			`{"f:metadata":{"f:finalizers":{".":{},"v:\"a\"":{}}}}`, []string{`metadata.finalizers["b"]`},
		},
		{"a set of numbers", "{set: [1, 2.5, true]}", `{"f:set":{"v:1":{},"v:2.5":{},"v:true":{}}}`, nil},
		{
			"a number is not the string with the same digits", "{set: ['1']}", `{"f:set":{"v:1":{}}}`,
			[]string{`set["1"]`},
		},
		{"a list where the entry has a map", "{a: [b]}", `{"f:a":{"f:b":{}}}`, []string{`a["b"]`}},
		{"keys that can't be read", "{a: [b]}", `{"f:a":{"k:{":{},"v:":{},"x":{}}}`, []string{`a["b"]`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			lost, err := lostFields(fields(t, test.declared), entryOf(test.owned))
			require.NoError(t, err)
			require.Equal(t, test.want, lost)
		})
	}
}

func TestLostFieldsOfAnEntryThatCannotBeRead(t *testing.T) {
	_, err := lostFields(fields(t, "{data: {a: b}}"), entryOf("{"))
	require.Error(t, err)
	lost, err := lostFields(fields(t, "{data: {a: b}}"), &metav1.ManagedFieldsEntry{})
	require.NoError(t, err)
	require.Equal(t, []string{"data.a"}, lost)
}

// realObjects contain every kind of list and map that is common in policy objects.
var realObjects = []string{`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: a, labels: {a: b, "1": c}, annotations: {d: "", e: f}}
spec:
  podSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: Exists}]}
  policyTypes: [Ingress, Egress]
  ingress: []
  egress: [{to: [{namespaceSelector: {}}], ports: [{port: 53, protocol: UDP}, {port: 53}]}]
`, `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: a, finalizers: [example.dev/a, example.dev/b]}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}, {apiGroups: [apps], resources: ["*"], verbs: ["*"]}]
`, `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: a}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: "a\"b"}, {kind: ServiceAccount, name: a, namespace: b}]
`, `
apiVersion: v1
kind: ConfigMap
metadata: {name: a, labels: {}, annotations: {}}
immutable: false
data: {a: b, "": c, "漢字": d, "1": e, a.b/c: "f\ng"}
binaryData: {h: aGVsbG8=}
`, `
apiVersion: v1
kind: ResourceQuota
metadata: {name: a}
spec: {hard: {pods: "10", requests.cpu: 4, limits.memory: 8Gi}, scopes: [NotTerminating], scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [a]}]}}
`, `
apiVersion: v1
kind: LimitRange
metadata: {name: a}
spec: {limits: [{type: Container, default: {cpu: 1, memory: 1Gi}, defaultRequest: {cpu: 100m}}, {type: Pod, max: {cpu: 2}}]}
`, `
apiVersion: v1
kind: Service
metadata: {name: a}
spec:
  type: ClusterIP
  selector: {a: b}
  externalIPs: [10.0.0.1]
  ipFamilies: [IPv4]
  ports: [{name: dns, port: 53, targetPort: dns}, {name: dns-udp, port: 53, protocol: UDP, targetPort: 53}, {name: web, port: 80, appProtocol: http}]
`, `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: a}
spec:
  ingressClassName: a
  tls: [{hosts: [a.example.dev], secretName: a}]
  rules: [{host: a.example.dev, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}]}}]
`, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: a}
automountServiceAccountToken: false
secrets: [{name: a}, {name: b}]
imagePullSecrets: [{name: a}]
`, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
spec:
  replicas: 0
  selector: {matchLabels: {a: b}}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 25%}}
  template:
    metadata: {creationTimestamp: null, labels: {a: b}}
    spec:
      serviceAccountName: a
      securityContext: {runAsNonRoot: true, supplementalGroups: [1, 2], seccompProfile: {type: RuntimeDefault}}
      nodeSelector: {a: b}
      tolerations: [{key: a, operator: Exists}]
      imagePullSecrets: [{name: a}]
      topologySpreadConstraints: [{topologyKey: zone, whenUnsatisfiable: DoNotSchedule, maxSkew: 1, labelSelector: {matchLabels: {a: b}}}]
      volumes: [{name: a, emptyDir: {}}, {name: b, configMap: {name: b, items: [{key: a, path: b}]}}]
      containers:
      - name: a
        image: b
        command: [sh, -c, "exit 0"]
        env: [{name: A, value: ""}, {name: B, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
        ports: [{containerPort: 80}, {containerPort: 53, protocol: UDP}, {containerPort: 53, name: dns}]
        resources: {limits: {cpu: 1}, requests: {}}
        volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b, readOnly: true}]
        securityContext: {capabilities: {drop: [ALL]}, allowPrivilegeEscalation: false}
        readinessProbe: {httpGet: {path: /, port: 80}, periodSeconds: 5}
      - {name: c, image: d}
`}

// required lists fields without which an object is malformed, such as the keys of lists.
var required = []string{
	"apiVersion", "kind", "metadata", "name", "containerPort", "port", "topologyKey", "whenUnsatisfiable", "mountPath",
	"key", "type", "protocol",
}

// prune removes random fields and items of a value. It keeps at least one item of each list.
func prune(random *rand.Rand, value any) any {
	switch value := value.(type) {
	case map[string]any:
		pruned := map[string]any{}
		for key, field := range value {
			if slices.Contains(required, key) || random.Intn(4) > 0 {
				pruned[key] = prune(random, field)
			}
		}
		return pruned
	case []any:
		pruned := []any{}
		for i, item := range value {
			if random.Intn(4) > 0 || i == len(value)-1 && len(pruned) == 0 {
				pruned = append(pruned, prune(random, item))
			}
		}
		return pruned
	}
	return value
}

func entryOfSet(t testing.TB, set *fieldpath.Set) *metav1.ManagedFieldsEntry {
	t.Helper()
	data, err := set.ToJSON()
	require.NoError(t, err)
	return entryOf(string(data))
}

// isListKey reports whether a path ends in a field that is a key of its list item.
func isListKey(path fieldpath.Path) bool {
	if len(path) < 2 || path[len(path)-1].FieldName == nil || path[len(path)-2].Key == nil {
		return false
	}
	for _, field := range *path[len(path)-2].Key {
		if field.Name == *path[len(path)-1].FieldName {
			return true
		}
	}
	return false
}

// The fields that an apply owns come from the algorithm of the API server. None of them is lost, and every one that is
// removed from the entry is.
func TestLostFieldsAgreesWithTheAPIServer(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	converter := applyconfigurations.NewTypeConverter(scheme.Scheme)
	identity := fieldpath.NewSet(fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"),
		fieldpath.MakePathOrDie("metadata", "name"))
	for _, text := range realObjects {
		object := fields(t, text)
		t.Run(object["kind"].(string), func(t *testing.T) {
			for range 30 {
				object := prune(random, object).(map[string]any)
				value, err := converter.ObjectToTyped(&unstructured.Unstructured{Object: object})
				require.NoError(t, err)
				owned, err := value.ToFieldSet()
				require.NoError(t, err)
				owned = owned.Difference(identity)
				lost, err := lostFields(object, entryOfSet(t, owned))
				require.NoError(t, err)
				require.Empty(t, lost, "%v", object)

				owned.Leaves().Iterate(func(path fieldpath.Path) {
					if isListKey(path) {
						return // an item with another key is another item
					}
					left := owned.Difference(fieldpath.NewSet(path))
					lost, err := lostFields(object, entryOfSet(t, left))
					require.NoError(t, err)
					require.NotEmpty(t, lost, "%s of %v", path, object)
				})
				owned.Iterate(func(path fieldpath.Path) {
					if isListKey(path) {
						return
					}
					left := fieldpath.NewSet()
					owned.Iterate(func(other fieldpath.Path) {
						if len(other) < len(path) || !other[:len(path)].Equals(path) {
							left.Insert(other.Copy())
						}
					})
					lost, err := lostFields(object, entryOfSet(t, left))
					require.NoError(t, err)
					require.NotEmpty(t, lost, "all of %s of %v", path, object)
				})
			}
		})
	}
}

func FuzzLostFields(f *testing.F) {
	f.Add([]byte(`{"spec": {"a": [{"name": "b"}], "c": {}}}`), []byte(`{"f:spec":{"f:a":{"k:{\"name\":\"b\"}":{}}}}`))
	f.Add([]byte(`{"metadata": {"labels": null, "finalizers": ["a"]}}`),
		[]byte(`{"f:metadata":{"f:finalizers":{"v:\"a\"":{}}}}`))
	f.Add([]byte(`{"metadata": [], "a": 1e3}`), []byte(`{"f:metadata":null,"f:a":{".":{}}}`))
	f.Fuzz(func(t *testing.T, declaredJSON, fieldsV1 []byte) {
		var declared map[string]any
		if utiljson.Unmarshal(declaredJSON, &declared) != nil {
			return
		}
		first, firstErr := lostFields(declared, entryOf(string(fieldsV1)))
		second, secondErr := lostFields(declared, entryOf(string(fieldsV1)))
		require.Equal(t, first, second, "the result is deterministic")
		require.Equal(t, fmt.Sprint(firstErr), fmt.Sprint(secondErr))

		// Without a schema every list is atomic, and everything that is declared is owned.
		data, err := json.Marshal(declared)
		require.NoError(t, err)
		value, err := typed.DeducedParseableType.FromYAML(typed.YAMLObject(data))
		if err != nil {
			return
		}
		owned, err := value.ToFieldSet()
		if err != nil {
			return
		}
		lost, err := lostFields(declared, entryOfSet(t, owned))
		require.NoError(t, err)
		require.Empty(t, lost)
	})
}
