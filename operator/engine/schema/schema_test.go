package schema

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/manifests/crd"
	"nstpl.dev/nstpl/operator/engine/quantities"
)

// objectOf returns an object of a kind, such as v1 ConfigMap, with fields in YAML.
func objectOf(t *testing.T, kind, fields string) map[string]any {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(fields))
	require.NoError(t, err)
	object := map[string]any{}
	require.NoError(t, utiljson.Unmarshal(data, &object))
	object["apiVersion"], object["kind"], _ = strings.Cut(kind, " ")
	if object["metadata"] == nil {
		object["metadata"] = map[string]any{"name": "a"}
	}
	return object
}

// lines returns problems as lines.
func lines(problems []Problem) []string {
	var all []string
	for _, p := range problems {
		all = append(all, strings.TrimSuffix(p.Path+": "+p.Message+": "+p.Remedy, ": "))
	}
	return all
}

const (
	quotaKind     = "v1 ResourceQuota"
	limitKind     = "v1 LimitRange"
	policyKind    = "networking.k8s.io/v1 NetworkPolicy"
	roleKind      = "rbac.authorization.k8s.io/v1 Role"
	bindingKind   = "rbac.authorization.k8s.io/v1 RoleBinding"
	budgetKind    = "policy/v1 PodDisruptionBudget"
	configMapKind = "v1 ConfigMap"
	roleRef       = "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\n"
)

func TestCheckKindsOfKubernetes(t *testing.T) {
	tests := map[string]struct {
		kind, fields string
		want         []string
	}{
		"valid": {
			quotaKind, "spec: {hard: {pods: 5, cpu: 500m, example.com/gpu: '1', count/jobs.batch: '3'}}", nil,
		},
		"null is valid":   {quotaKind, "spec: {hard: null}", nil},
		"an unknown kind": {"example.com/v1 Thing", "specs: 1", nil},
		"a similar name": {
			quotaKind, "spec: {hards: {pods: 5}}", []string{"spec.hards: unknown field: did you mean hard?"},
		},
		"another case": {
			quotaKind, "spec: {Hard: {pods: 5}}", []string{"spec.Hard: unknown field: did you mean hard?"},
		},
		"a field too far out": {
			policyKind, "podSelector: {}\nspec: {}",
			[]string{"podSelector: unknown field: move it to spec.podSelector"},
		},
		"a field too far in": {
			policyKind, "spec: {podSelector: {}, ingress: [{policyTypes: [Ingress]}]}",
			[]string{"spec.ingress[0].policyTypes: unknown field: move it to spec.policyTypes"},
		},
		"a typo too far out": {quotaKind, "hards: {}", []string{"hards: unknown field: did you mean spec.hard?"}},
		"nothing similar": {
			quotaKind, "spec: {zzzzzz: 1}",
			[]string{"spec.zzzzzz: unknown field: remove it: only hard, scopeSelector and scopes are known here"},
		},
		"metadata": {
			configMapKind, "metadata: {name: a, label: {a: b}, annotations: [a]}",
			[]string{
				"metadata.annotations: must be an object, not a list",
				"metadata.label: unknown field: did you mean labels?",
			},
		},
		"a label": {
			configMapKind, "metadata: {name: a, labels: {a: true}}",
			[]string{`metadata.labels[a]: must be a string, not true: write it in quotes: "true"`},
		},
		"a number in data": {
			configMapKind, "data: {a: 5}",
			[]string{`data[a]: must be a string, not the number 5: write it in quotes: "5"`},
		},
		"a nested object": {
			configMapKind, "data: {a: {b: c}}", []string{"data[a]: must be a string, not an object"},
		},
		"an invalid key": {
			configMapKind, "data: {a b: c}",
			[]string{"data[a b]: is not a valid key: use only letters, digits, dashes, underscores and dots"},
		},
		"not base64": {
			"v1 Secret", "data: {a: hello world}",
			[]string{"data[a]: must be encoded as base64: encode it, or declare the text in stringData"},
		},
		"a boolean in quotes": {
			"v1 ServiceAccount", "automountServiceAccountToken: 'no'",
			[]string{
				`automountServiceAccountToken: must be true or false, not the string "no": write false, without quotes`,
			},
		},
		"a string for an item": {"v1 ServiceAccount", "imagePullSecrets: [registry]",
			[]string{`imagePullSecrets[0]: must be an object, not the string "registry"`}},
		"quantities that take long to parse or to compare": {
			quotaKind, "spec: {hard: {cpu: 1e-100, memory: '1e100', pods: '1e-100', secrets: e100}}", []string{
				"spec.hard[cpu]: must be a quantity, not the number 1e-100: " + quantityForms,
				`spec.hard[memory]: must be a quantity, not the string "1e100": ` + quantities.Forms,
				`spec.hard[pods]: must be a quantity, not the string "1e-100": ` + quantities.Forms,
				`spec.hard[secrets]: must be a quantity, not the string "e100": ` + quantities.Forms,
			},
		},
		"a quantity": {
			quotaKind, "spec: {hard: {pods: five}}",
			[]string{
				`spec.hard[pods]: must be a quantity, not the string "five": write a number with an optional suffix, such as 10, 500m or 2Gi`,
			},
		},
		"a unit of bytes": {
			quotaKind, "spec: {hard: {memory: 2GB}}",
			[]string{`spec.hard[memory]: must be a quantity, not the string "2GB": did you mean 2G?`},
		},
		"a space": {
			quotaKind, "spec: {hard: {memory: 2 gib}}",
			[]string{`spec.hard[memory]: must be a quantity, not the string "2 gib": did you mean 2Gi?`},
		},
		"half a pod": {
			quotaKind, "spec: {hard: {pods: 1500m}}", []string{"spec.hard[pods]: must be a whole number"},
		},
		"a negative limit": {
			quotaKind, "spec: {hard: {cpu: -1}}", []string{"spec.hard[cpu]: must not be negative"},
		},
		"an unknown resource": {
			quotaKind, "spec: {hard: {pod: 1}}", []string{"spec.hard[pod]: unknown resource: did you mean pods?"},
		},
		"a kind to count": {
			quotaKind, "spec: {hard: {deployments: 1}}",
			[]string{
				"spec.hard[deployments]: unknown resource: use count/RESOURCE.GROUP to count objects, such as count/deployments.apps",
			},
		},
		"a scope": {
			quotaKind, "spec: {scopes: [Besteffort]}",
			[]string{`spec.scopes[0]: "Besteffort" is not a supported value: did you mean BestEffort?`},
		},
		"a policy type": {
			policyKind, "spec: {podSelector: {}, policyTypes: [ingress, Both]}",
			[]string{
				`spec.policyTypes[0]: "ingress" is not a supported value: did you mean Ingress?`,
				`spec.policyTypes[1]: "Both" is not a supported value: must be Egress or Ingress`,
			},
		},
		"a port in quotes": {
			policyKind, "spec: {ingress: [{ports: [{port: '80'}]}]}",
			[]string{`spec.ingress[0].ports[0].port: "80" is not the name of a port: remove the quotes: 80`},
		},
		"a named port": {policyKind, "spec: {ingress: [{ports: [{port: http, protocol: TCP}]}]}", nil},
		"a port in a Service": {
			"v1 Service", "spec: {ports: [{port: 80a, protocol: Tcp, targetPort: 8080}]}",
			[]string{
				`spec.ports[0].port: must be a whole number, not the string "80a"`,
				`spec.ports[0].protocol: "Tcp" is not a supported value: did you mean TCP?`,
			},
		},
		"a large number": {
			"apps/v1 Deployment", "spec: {replicas: 3000000000, selector: {}, template: {}}",
			[]string{"spec.replicas: 3000000000 is out of range"},
		},
		"a number in quotes": {
			"apps/v1 Deployment", "spec: {replicas: '3', selector: {}, template: {}}",
			[]string{`spec.replicas: must be a whole number, not the string "3": remove the quotes: 3`},
		},
		"a Pod without containers": {
			"v1 Pod", "spec: {restartPolicy: Never}", []string{"spec.containers: is required: add it"},
		},
		"an empty list of containers": {
			"v1 Pod", "spec: {containers: []}", []string{"spec.containers: is required: add it"},
		},
		"a container without a name": {
			"v1 Pod", "spec: {containers: [{image: a, ports: [{name: http}]}]}",
			[]string{
				"spec.containers[0].name: is required: add it",
				"spec.containers[0].ports[0].containerPort: is required: add it",
			},
		},
		"workloads without fields": {
			"apps/v1 DaemonSet", "spec: {}",
			[]string{"spec.selector: is required: add it", "spec.template: is required: add it"},
		},
		"a CronJob": {
			"batch/v1 CronJob", "spec: {jobTemplate: {spec: {}}}",
			[]string{"spec.jobTemplate.spec.template: is required: add it", "spec.schedule: is required: add it"},
		},
		"a required list that may be missing": {limitKind, "spec: {}", nil},
		"status, which is ignored":            {"v1 Pod", "spec: {containers: [{name: a}]}\nstatus: {conditions: [{}]}", nil},
		"a metric": {
			"autoscaling/v2 HorizontalPodAutoscaler",
			"spec: {maxReplicas: 1, scaleTargetRef: {kind: Deployment, name: a}, metrics: [{type: resource}]}",
			[]string{`spec.metrics[0].type: "resource" is not a supported value: did you mean Resource?`},
		},
		"a peer": {
			policyKind, "spec: {ingress: [{from: [{}, {ipBlock: {cidr: 10.0.0.1}}]}]}",
			[]string{
				"spec.ingress[0].from[0]: selects nothing: add podSelector, namespaceSelector or ipBlock",
				`spec.ingress[0].from[1].ipBlock.cidr: "10.0.0.1" is not a range of IP addresses: did you mean 10.0.0.1/32?`,
			},
		},
		"an object for a list": {policyKind, "spec: {ingress: {from: []}}",
			[]string{"spec.ingress: must be a list, not an object: write it as an item of a list, after a dash"}},
		"a role reference": {
			bindingKind, "roleref: {}",
			[]string{"roleRef: is required: add it", "roleref: unknown field: did you mean roleRef?"},
		},
		"a role's kind": {
			bindingKind, "roleRef: {kind: clusterrole, name: a, apiGroup: rbac.authorization.k8s.io/v1}",
			[]string{
				`roleRef.apiGroup: "rbac.authorization.k8s.io/v1" is not a supported value: did you mean rbac.authorization.k8s.io?`,
				`roleRef.kind: "clusterrole" is not a supported value: did you mean ClusterRole?`,
			},
		},
		"a subject": {
			bindingKind,
			roleRef + "subjects: [{kind: Users, name: a}, {kind: ServiceAccount, apiGroup: rbac.authorization.k8s.io}]",
			[]string{
				`subjects[0].kind: "Users" is not a supported value: did you mean User?`,
				`subjects[1].apiGroup: "rbac.authorization.k8s.io" is not the API group of ServiceAccounts: remove it`,
				"subjects[1].name: is required: add it",
			},
		},
		"a rule": {
			roleKind, "rules: [{apiGroup: [''], resources: [pods], verbs: get}]",
			[]string{
				"rules[0].apiGroup: unknown field: did you mean apiGroups?", "rules[0].apiGroups: is required: add it",
				`rules[0].verbs: must be a list, not the string "get": write it as an item of a list, after a dash`,
			},
		},
		"a limit": {
			limitKind,
			"spec: {limits: [{type: Containers, default: {cpus: 1}}, {type: Container, default: {cpus: 1}}]}",
			[]string{
				`spec.limits[0].type: "Containers" is not a supported value: did you mean Container?`,
				"spec.limits[1].default[cpus]: unknown resource: did you mean cpu?",
			},
		},
		"a default above max": {
			limitKind, "spec: {limits: [{type: Container, default: {cpu: 2}, max: {cpu: 1}}]}",
			[]string{"spec.limits[0].default[cpu]: 2 is more than the 1 in max"},
		},
		"a budget": {
			budgetKind, "spec: {minAvailable: '50', selector: {matchLabels: {a: b}}}",
			[]string{`spec.minAvailable: "50" is not a percentage: remove the quotes: 50`},
		},
		"an operator": {
			budgetKind, "spec: {selector: {matchExpressions: [{key: a, operator: in}]}}",
			[]string{`spec.selector.matchExpressions[0].operator: "in" is not a supported value: did you mean In?`},
		},
		"a time": {
			configMapKind, "metadata: {name: a, creationTimestamp: yesterday}",
			[]string{
				`metadata.creationTimestamp: must be a time, not the string "yesterday": write it as 2006-01-02T15:04:05Z`,
			},
		},
		"an IntOrString": {
			budgetKind, "spec: {minAvailable: 1.5}",
			[]string{"spec.minAvailable: must be a whole number or a string, not the number 1.5"},
		},
	}
	catalog, err := New()
	require.NoError(t, err)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			object := objectOf(t, test.kind, test.fields)
			require.Equal(t, test.want, lines(catalog.Check(object)))
		})
	}
}

func TestCheckUsesTheVersionOfKubernetes(t *testing.T) {
	for _, version := range Versions() {
		catalog := &Catalog{KubernetesVersion: version}
		kind := schema.GroupVersionKind{Group: "certificates.k8s.io", Version: "v1", Kind: "ClusterTrustBundle"}
		require.Equal(t, version == "1.37", catalog.Knows(kind), "ClusterTrustBundle v1 is new in 1.37")
		object := objectOf(t, "v1 Pod", "spec: {containers: []}")
		require.Equal(t, []string{"spec.containers: is required: add it"}, lines(catalog.Check(object)), version)
	}
	require.Equal(t, "1.37", Newest())
}

func TestKnows(t *testing.T) {
	definitions, err := crd.All()
	require.NoError(t, err)
	catalog, err := New(definitions...)
	require.NoError(t, err)
	for kind, want := range map[schema.GroupVersionKind]bool{
		{Version: "v1", Kind: "ConfigMap"}:                                           true,
		{Version: "v1", Kind: "ListOptions"}:                                         false,
		{Version: "v1", Kind: "List"}:                                                false,
		{Group: "policy.nstpl.dev", Version: "v1alpha1", Kind: "NamespaceTemplate"}:  true,
		{Group: "policy.nstpl.dev", Version: "v1alpha1", Kind: "NamespaceTemplates"}: false,
		{Group: "example.com", Version: "v1", Kind: "Thing"}:                         false,
	} {
		require.Equal(t, want, catalog.Knows(kind), "%s", kind)
	}
}

func TestRulesAreOfTypesOfEachVersion(t *testing.T) {
	for _, version := range Versions() {
		known := versions()[version]()
		names := slices.Concat(slices.Collect(maps.Keys(rules)), slices.Collect(maps.Keys(enums)),
			slices.Collect(maps.Keys(scalars)), []string{objectMeta})
		for _, name := range names {
			if isFormat := name == kubernetesTypes+"byte" || name == kubernetesTypes+"int32"; !isFormat {
				require.NotNil(t, known.published[name], "%s %s", version, name)
			}
		}
	}
}

func TestVersionsAreEmbedded(t *testing.T) {
	files, err := documents.ReadDir("kubernetes")
	require.NoError(t, err)
	var names []string
	for _, file := range files {
		names = append(names, strings.TrimSuffix(file.Name(), extension))
	}
	require.Equal(t, names, Versions())
	for _, version := range Versions() {
		require.NoError(t, versions()[version]().err)
	}
}

func TestObjectsOfAVersionWithoutSchemasAreNotCalledValid(t *testing.T) {
	catalog := &Catalog{KubernetesVersion: "1.20"}
	require.True(t, catalog.Knows(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}))
	problems := catalog.Check(map[string]any{"apiVersion": "v1", "kind": "Pod"})
	require.Len(t, problems, 1)
	require.Contains(t, problems[0].Message, `the schemas of Kubernetes "1.20" are unknown: use 1.35`)
}

func TestVersions(t *testing.T) {
	for version, isKnown := range map[string]bool{
		"1.35": true, Newest(): true, "1.38": true, "1.100": true,
		"": false, "1": false, "1.34": false, "1.9": false, "1.38.1": false, "2.0": false, "v1.37": false, "1.-1": false,
	} {
		require.Equal(t, isKnown, CheckVersion(version) == nil, version)
	}
}

// Of a version that is later than all schemas, what these do not have is not checked, and all else is.
func TestFieldsOfALaterVersionAreNotChecked(t *testing.T) {
	object := map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "a"},
		"spec": map[string]any{"type": "Tunnel", "route": "x", "ports": []any{map[string]any{"port": "many"}}},
	}
	for version, unchecked := range map[string]bool{Newest(): false, "1.38": true} {
		found := map[string]bool{}
		for _, problem := range (&Catalog{KubernetesVersion: version}).Check(object) {
			found[problem.Path] = problem.Unchecked
		}
		require.Equal(t, map[string]bool{
			"spec.type": unchecked, "spec.route": unchecked, "spec.ports[0].port": false,
		}, found, version)
	}
}
