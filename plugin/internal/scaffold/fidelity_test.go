package scaffold

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/plugin/internal/source"
)

// The tests in this file compare conversions with what the other tools do.

// converted returns what a command writes for objects in YAML, and what it prints.
func converted(t *testing.T, flag string, objects ...string) (*draft, string) {
	t.Helper()
	text := strings.NewReader(strings.Join(objects, "\n---\n"))
	found, _, err := source.Objects(source.Filenames{Paths: []string{"-"}}, text)
	require.NoError(t, err)
	require.Len(t, found, len(objects))
	d := toolOf(t, flag).convert(t.Context(), found, nil)
	require.NotNil(t, d)
	for _, template := range decode(t, d) {
		selectorOf(t, template)
	}
	return d, printed(t, d)
}

// namesOf returns the names of the documents of a draft of some kind.
func namesOf(d *draft, kind string) []string {
	names := []string{}
	for _, doc := range d.documents {
		if doc.object["kind"] == kind {
			names = append(names, at[string](doc.object, "metadata", "name"))
		}
	}
	return names
}

// labelsIn returns the labels that templates set on a namespace with some labels: of two templates with a label, the one
// with the later name wins.
func labelsIn(t *testing.T, d *draft, ns labels.Set) map[string]string {
	t.Helper()
	set, winners := map[string]string{}, map[string]string{}
	for _, template := range decode(t, d) {
		selector, err := match.Selector(template.Spec.Namespaces)
		require.NoError(t, err)
		if isDisabled(template) || !selector.Matches(ns) || template.Spec.NamespaceMetadata == nil {
			continue
		}
		for key, value := range template.Spec.NamespaceMetadata.Labels {
			if template.Name > winners[key] {
				set[key], winners[key] = value, template.Name
			}
		}
	}
	return set
}

// A tool leaves a namespace alone that exists with another parent, whatever a SubNamespace or an anchor says.
func TestSubnamespacesInConflict(t *testing.T) {
	t.Parallel()
	const (
		sub = `{apiVersion: accurate.cybozu.com/v2, kind: SubNamespace, metadata: {name: stolen, namespace: thief},
			spec: {labels: {owner: thief}}`
		owned  = `{apiVersion: v1, kind: Namespace, metadata: {name: stolen, labels: {accurate.cybozu.com/parent: owner}}}`
		anchor = `{apiVersion: hnc.x-k8s.io/v1alpha2, kind: SubnamespaceAnchor, metadata: {name: stolen, namespace: thief},
			spec: {labels: [{key: owner, value: thief}]}`
		hierarchy = `{apiVersion: hnc.x-k8s.io/v1alpha2, kind: HierarchyConfiguration, ` +
			`metadata: {name: hierarchy, namespace: stolen}, spec: {parent: owner}}`
		other = `{apiVersion: hnc.x-k8s.io/v1alpha2, kind: HierarchyConfiguration, ` +
			`metadata: {name: hierarchy, namespace: child}, spec: {parent: owner}}`
	)
	withStatus := func(status string) string { return anchor + ", status: {status: " + status + "}}" }
	for name, test := range map[string]struct {
		flag    string
		objects []string
	}{
		"another parent of Accurate": {"from-accurate", []string{sub + "}", owned}},
		"a root of Accurate": {"from-accurate", []string{
			sub + "}", `{apiVersion: v1, kind: Namespace, metadata: {name: stolen, labels: {accurate.cybozu.com/type: root}}}`,
			strings.Replace(owned, "stolen", "child", 1),
		}},
		"a condition of Accurate": {"from-accurate", []string{
			sub + `, status: {conditions: [{type: Stalled, status: "True", reason: Conflict}]}}`,
			strings.Replace(owned, "stolen", "child", 1),
		}},
		"a state of Accurate": {"from-accurate", []string{
			sub + `, status: conflict}`, strings.Replace(owned, "stolen", "child", 1),
		}},
		"another parent of HNC": {"from-hnc", []string{withStatus(""), hierarchy}},
		"a conflict of HNC":     {"from-hnc", []string{withStatus("Conflict"), hierarchy}},
		"a forbidden name":      {"from-hnc", []string{withStatus("Forbidden"), other}},
		"a namespace without an annotation": {"from-hnc", []string{
			withStatus(""), other, `{apiVersion: v1, kind: Namespace, metadata: {name: stolen}}`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, text := converted(t, test.flag, test.objects...)
			require.Equal(t, []string{"owner"}, namesOf(d, "PolicySpace"))
			require.Empty(t, namesOf(d, "NamespaceTemplate"))
			require.Contains(t, text, "needs you: namespace/thief: sub")
			require.Contains(t, text, "is in conflict with a namespace that exists, so it is not converted\n")
		})
	}
}

// If all SubNamespaces are in conflict, nothing is written, and the result says why.
func TestOnlySubNamespacesInConflict(t *testing.T) {
	t.Parallel()
	d := fromAccurate(t.Context(), []*unstructured.Unstructured{
		{Object: map[string]any{
			"apiVersion": "accurate.cybozu.com/v2", "kind": "SubNamespace",
			"metadata": map[string]any{"name": "stolen", "namespace": "thief"},
		}},
		{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "stolen"}}},
	}, nil)
	require.NotNil(t, d)
	require.Len(t, d.item("namespace/thief").needs, 1)
}

// A sub-namespace in conflict keeps the template to which its namespace refers.
func TestTemplateOfNamespaceInConflict(t *testing.T) {
	t.Parallel()
	d, _ := converted(t, "from-accurate",
		`{apiVersion: accurate.cybozu.com/v2, kind: SubNamespace, metadata: {name: batch, namespace: thief}}`,
		`{apiVersion: v1, kind: Namespace, metadata: {name: batch, labels: {accurate.cybozu.com/template: common}}}`,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: common,
			annotations: {accurate.cybozu.com/propagate: update}}}`,
	)
	require.Equal(t, []string{"common"}, namesOf(d, "NamespaceTemplate"))
}

const kyvernoGenerate = `{generateExisting: true, apiVersion: v1, kind: ConfigMap, name: c,
	namespace: "{{request.object.metadata.name}}", data: {data: {}}}`

func kyvernoPolicyOf(spec, rule string) string {
	return `{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: p}, spec: {` + spec +
		`rules: [{name: r, match: {any: [{resources: {kinds: [Namespace]}}]}, ` + rule + `}, {name: other, validate: {}}]}}`
}

func generatingPolicyOf(spec, objects string) string {
	return `{apiVersion: policies.kyverno.io/v1, kind: GeneratingPolicy, metadata: {name: p}, spec: {` + spec + `
		matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE],
		resources: [namespaces]}]}, generate: [{expression: "generator.apply(object.metadata.name, [` + objects + `
		{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'c'}, 'data': {'a': 'b'}}])"}]}}`
}

// What keeps a policy from generating objects in some namespaces disables the template.
func TestKyvernoPoliciesWithConditions(t *testing.T) {
	t.Parallel()
	policy := kyvernoPolicyOf("", "generate: "+kyvernoGenerate)
	generating := func(spec string) string { return generatingPolicyOf(spec, "") }
	exception := func(spec string) string {
		return `{apiVersion: kyverno.io/v2, kind: PolicyException, metadata: {name: e, namespace: x}, spec: {` + spec + `}}`
	}
	const inCEL = `{apiVersion: policies.kyverno.io/v1, kind: PolicyException, metadata: {name: e, namespace: x},
		spec: {policyRefs: [{name: p, kind: GeneratingPolicy}]}}`
	for name, test := range map[string]struct {
		objects []string
		need    string
	}{
		"none":                  {objects: []string{policy}},
		"none, in CEL":          {objects: []string{generating("")}},
		"webhookTimeoutSeconds": {objects: []string{kyvernoPolicyOf("webhookTimeoutSeconds: 5, ", "generate: "+kyvernoGenerate)}},
		"an exception": {
			[]string{policy, exception("exceptions: [{policyName: p, ruleNames: [r]}]")}, "PolicyException x/e has no counterpart",
		},
		"an exception by a pattern": {
			[]string{policy, exception("exceptions: [{policyName: p, ruleNames: ['*']}]")}, "PolicyException x/e has no counterpart",
		},
		"an exception for another rule":   {objects: []string{policy, exception("exceptions: [{policyName: p, ruleNames: [x]}]")}},
		"an exception for another policy": {objects: []string{policy, exception("exceptions: [{policyName: q, ruleNames: [r]}]")}},
		"an exception in CEL":             {[]string{generating(""), inCEL}, "PolicyException x/e has no counterpart"},
		"an exception for another kind":   {objects: []string{policy, inCEL}},
		"no admission": {
			[]string{kyvernoPolicyOf("admission: false, ", "generate: "+kyvernoGenerate)}, "admission: false has no counterpart",
		},
		"no admission in CEL": {
			[]string{generating("evaluation: {admission: {enabled: false}},")}, "admission: false has no counterpart",
		},
		"one rule": {
			[]string{kyvernoPolicyOf("applyRules: One, ", "generate: "+kyvernoGenerate)}, "applyRules: One has no counterpart",
		},
		"conditions of the webhook": {
			[]string{kyvernoPolicyOf("webhookConfiguration: {matchConditions: [{name: c}]}, ", "generate: "+kyvernoGenerate)},
			"webhookConfiguration.matchConditions has no counterpart",
		},
		"another field": {[]string{kyvernoPolicyOf("later: x, ", "generate: "+kyvernoGenerate)}, "later has no counterpart"},
		"an empty condition in CEL": {
			[]string{generating("matchConditions: [{}],")}, "matchConditions have no counterpart",
		},
		"another field in CEL":  {[]string{generating("later: x,")}, "later has no counterpart"},
		"another field of rule": {[]string{kyvernoPolicyOf("", "later: x, generate: "+kyvernoGenerate)}, "later have no counterpart"},
		"another field of generate": {
			[]string{kyvernoPolicyOf("", "generate: "+strings.Replace(kyvernoGenerate, "{", "{later: x, ", 1))},
			"later have no counterpart",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, text := converted(t, "from-kyverno-generate", test.objects...)
			templates := decode(t, d)
			require.Len(t, templates, 1)
			require.Equal(t, test.need != "", isDisabled(templates[0]))
			require.Contains(t, text, test.need+"\n")
		})
	}
}

// A rule generates objects in namespaces that exist if it says so, or if it says nothing and its policy does.
func TestKyvernoExistingNamespaces(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spec, generate string
		isNeeded       bool
	}{
		"nothing":         {"", "", true},
		"the policy":      {"generateExisting: true, ", "", false},
		"before 1.10":     {"generateExistingOnPolicyUpdate: true, ", "", false},
		"the rule":        {"", "generateExisting: true, ", false},
		"another":         {"generateExisting: true, ", "generateExisting: false, ", true},
		"another of 1.10": {"generateExistingOnPolicyUpdate: true, ", "generateExisting: false, ", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			generate := strings.Replace(kyvernoGenerate, "generateExisting: true, ", test.generate, 1)
			_, text := converted(t, "from-kyverno-generate", kyvernoPolicyOf(test.spec, "generate: "+generate))
			const need = "needs you: clusterpolicy/p rule r: generateExisting: Kyverno generates objects only in new namespaces"
			require.Equal(t, test.isNeeded, strings.Contains(text, need), text)
		})
	}
}

// A policy needs the same decision once, whatever the number of its rules and objects.
func TestExistingNamespacesOncePerPolicy(t *testing.T) {
	t.Parallel()
	generate := strings.Replace(kyvernoGenerate, "generateExisting: true, ", "", 1)
	for _, policy := range []string{
		strings.Replace(kyvernoPolicyOf("", "generate: "+generate), "validate: {}",
			"match: {any: [{resources: {kinds: [Namespace]}}]}, generate: "+generate, 1),
		generatingPolicyOf("", `{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'd'}},`),
	} {
		d, text := converted(t, "from-kyverno-generate", policy)
		require.Len(t, namesOf(d, "NamespaceTemplate"), 2)
		require.Equal(t, 1, strings.Count(text, "policy/p: generateExisting: "), text)
		require.Equal(t, 2, strings.Count(text, "# needs you: generateExisting: "), text)
	}
}

// Since Kyverno 1.18, the functions of CEL have names in lower case.
func TestKyvernoFunctionsInLowerCase(t *testing.T) {
	t.Parallel()
	d, _ := converted(t, "from-kyverno-generate", `{apiVersion: policies.kyverno.io/v1, kind: GeneratingPolicy,
		metadata: {name: p}, spec: {matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1],
		operations: [CREATE], resources: [namespaces]}]}, generate: [{expression:
		'generator.apply(object.metadata.name, [resource.get("v1", "secrets", "default", "registry")])'}]}}`)
	templates := decode(t, d)
	require.Len(t, templates, 1)
	require.Equal(t, []v1alpha1.Source{{APIVersion: "v1", Kind: "Secret", Namespace: "default", Name: "registry"}},
		templates[0].Spec.Sources)
}

// HNC does not propagate objects of other programs, and those that an annotation excludes.
func TestObjectsThatHNCDoesNotPropagate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		metadata, more string
		isPropagated   bool
	}{
		"nothing":             {"", "", true},
		"the default mode":    {"", "", true},
		"none is false":       {`, annotations: {propagate.hnc.x-k8s.io/none: "f"}`, "", true},
		"none is true":        {`, annotations: {propagate.hnc.x-k8s.io/none: "true"}`, "", false},
		"none is 1":           {`, annotations: {propagate.hnc.x-k8s.io/none: "1"}`, "", false},
		"none is t":           {`, annotations: {propagate.hnc.x-k8s.io/none: "t"}`, "", false},
		"none is invalid":     {`, annotations: {propagate.hnc.x-k8s.io/none: "yes"}`, "", false},
		"all is invalid":      {`, annotations: {propagate.hnc.x-k8s.io/all: "yes"}`, "", false},
		"of Rancher":          {`, labels: {cattle.io/creator: norman}`, "", false},
		"of another creator":  {`, labels: {cattle.io/creator: jane}`, "", true},
		"with a finalizer":    {`, finalizers: [example.com/x]`, "", false},
		"of OpenShift":        {`, annotations: {openshift.io/description: x}`, "", false},
		"a token":             {"", ", type: kubernetes.io/service-account-token", false},
		"a release of Helm":   {"", ", type: helm.sh/release.v1", false},
		"a Secret for images": {"", ", type: kubernetes.io/dockerconfigjson", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mode := "Propagate"
			if name == "the default mode" {
				mode = ""
			}
			d, _ := converted(t, "from-hnc",
				`{apiVersion: hnc.x-k8s.io/v1alpha2, kind: HierarchyConfiguration,
					metadata: {name: hierarchy, namespace: child}, spec: {parent: acme}}`,
				`{apiVersion: hnc.x-k8s.io/v1alpha2, kind: HNCConfiguration, metadata: {name: config},
					spec: {resources: [{resource: secrets, mode: `+mode+`}]}}`,
				`{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: acme`+test.metadata+`}`+test.more+`}`)
			require.Equal(t, test.isPropagated, len(namesOf(d, "NamespaceTemplate")) == 1)
		})
	}
}

// A distance in HNC is another one in policy spaces, so an object that selects by distances disables its template.
func TestDistancesOfHNCInExpressions(t *testing.T) {
	t.Parallel()
	for operator, isConverted := range map[string]bool{
		`Exists`: true, `DoesNotExist`: true, `NotIn, values: ["0"]`: false, `In, values: ["1"]`: false,
	} {
		for annotations, name := range map[string]string{
			"": "acme", "annotations: {propagate.hnc.x-k8s.io/select: a=b},": "acme-deny",
		} {
			d, _ := converted(t, "from-hnc",
				`{apiVersion: hnc.x-k8s.io/v1alpha2, kind: HierarchyConfiguration,
					metadata: {name: hierarchy, namespace: child}, spec: {parent: acme}}`,
				`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r, namespace: acme}}`,
				`{apiVersion: hnc.x-k8s.io/v1alpha2, kind: HNCConfiguration, metadata: {name: config},
					spec: {resources: [{group: networking.k8s.io, resource: networkpolicies, mode: Propagate}]}}`,
				`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {`+annotations+`name: deny, namespace: acme},
					spec: {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchExpressions: [
					{key: acme.tree.hnc.x-k8s.io/depth, operator: `+operator+`}]}}]}]}}`)
			for _, template := range decode(t, d) {
				require.Equal(t, template.Name == name && !isConverted, isDisabled(template), "%s %s", operator, template.Name)
				for _, object := range template.Spec.Templates {
					isRenamed := strings.Contains(string(object.Raw), "acme.tree.policy.nstpl.dev/depth")
					require.Equal(t, isConverted && strings.Contains(string(object.Raw), "NetworkPolicy"), isRenamed, operator)
				}
			}
		}
	}
}

// In HNC, the value of the farthest ancestor wins.
func TestLabelsOfAncestorsWinAsInHNC(t *testing.T) {
	t.Parallel()
	configuration := func(namespace, parent, set string) string {
		return `{apiVersion: hnc.x-k8s.io/v1alpha2, kind: HierarchyConfiguration, metadata: {name: hierarchy, namespace: ` +
			namespace + `}, spec: {parent: "` + parent + `", labels: [` + set + `]}}`
	}
	d, text := converted(t, "from-hnc",
		configuration("a", "", "{key: stage, value: a}"),
		configuration("b", "a", "{key: stage, value: b}, {key: team, value: b}"),
		configuration("c", "b", "{key: stage, value: c}, {key: team, value: c}, {key: own, value: c}"),
	)
	const depth = ".tree.policy.nstpl.dev/depth"
	ns := labels.Set{"kubernetes.io/metadata.name": "c", "a" + depth: "2", "b" + depth: "1"}
	require.Equal(t, map[string]string{"stage": "a", "team": "b", "own": "c"}, labelsIn(t, d, ns))
	require.Contains(t, text, "label stage of the namespaces: the value of an ancestor wins\n")
}

// In Capsule, the first value of a label wins.
func TestFirstLabelsWinAsInCapsule(t *testing.T) {
	t.Parallel()
	d, text := converted(t, "from-capsule", `
apiVersion: capsule.clastix.io/v1beta2
kind: Tenant
metadata: {name: oil}
spec:
  nodeSelector: {pool: oil}
  namespaceOptions:
    additionalMetadata: {labels: {a: additional}}
    additionalMetadataList:
    - labels: {a: list, b: list}
    - namespaceSelector: {matchLabels: {profile: low}}
      labels: {a: low, b: low, c: low, level: low}
      annotations: {scheduler.alpha.kubernetes.io/node-selector: pool=low}
    - namespaceSelector: {matchLabels: {profile: high}}
      labels: {level: high}
    - labels: {c: later}
    - namespaceSelector: {matchLabels: {zone: x}}
      labels: {level: x, d: x}
`)
	const depth = "oil.tree.policy.nstpl.dev/depth"
	require.Equal(t, map[string]string{"a": "additional", "b": "list", "c": "later"}, labelsIn(t, d, labels.Set{depth: "1"}))
	require.Equal(t, map[string]string{"a": "additional", "b": "list", "c": "low", "level": "low", "d": "x"},
		labelsIn(t, d, labels.Set{depth: "1", "profile": "low", "zone": "x"}))
	require.Equal(t, map[string]string{"a": "additional", "b": "list", "c": "later", "level": "high"},
		labelsIn(t, d, labels.Set{depth: "1", "profile": "high"}))
	require.NotContains(t, text, "pool=low")
	require.NotContains(t, text, "needs you: tenant/oil: namespaceOptions")
}

// The first value also wins if there are many, and if the name of the tenant is as long as it can be.
func TestFirstOfManyLabelsWinsAsInCapsule(t *testing.T) {
	t.Parallel()
	name, list := strings.Repeat("z", maxName), ""
	for i := range 12 {
		list += fmt.Sprintf("{namespaceSelector: {matchExpressions: [{key: k%d, operator: NotIn, values: [x]}]}, "+
			"labels: {level: v%[1]d}}, ", i)
	}
	d, _ := converted(t, "from-capsule", `{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: {name: `+name+`},
		spec: {namespaceOptions: {additionalMetadata: {labels: {a: b}}, additionalMetadataList: [`+list+`]}}}`)
	ns := labels.Set{name + v1alpha1.DepthLabelSuffix: "1"}
	for i := range 12 {
		require.Equal(t, map[string]string{"a": "b", "level": fmt.Sprint("v", i)}, labelsIn(t, d, ns))
		ns[fmt.Sprint("k", i)] = "x"
	}
}

// The owners of a tenant are also those of TenantOwners, of the configuration, and ServiceAccounts.
func TestOwnersOfTenantsByStatus(t *testing.T) {
	t.Parallel()
	d, text := converted(t, "from-capsule", `
apiVersion: capsule.clastix.io/v1beta2
kind: Tenant
metadata:
  name: oil
  annotations: {quota.resources.capsule.clastix.io/foos.example.com_v1: "3", used.resources.capsule.clastix.io/foos: "1"}
spec:
  owners:
  - {kind: User, name: alice}
  - {kind: User, name: carol, clusterRoles: [edit], labels: {a: b}, later: x}
  additionalRoleBindings:
  - {clusterRoleName: view, subjects: [{kind: User, name: x, apiGroup: rbac.authorization.k8s.io}], annotations: {a: b}}
  permissions: {allowOwnerPromotion: true, matchOwners: [{matchLabels: {a: b}}]}
status:
  owners:
  - {kind: User, name: alice, clusterRoles: [admin, capsule-namespace-deleter]}
  - {kind: User, name: carol, clusterRoles: [edit, admin]}
  - {kind: Group, name: admins, clusterRoles: [cluster-admin, capsule-namespace-provisioner]}
`)
	bindings := map[string]string{}
	for _, template := range decode(t, d) {
		for _, object := range template.Spec.Templates {
			binding := rbacv1.RoleBinding{}
			require.NoError(t, json.Unmarshal(object.Raw, &binding))
			for _, subject := range binding.Subjects {
				bindings[binding.RoleRef.Name] += subject.Name + " "
			}
		}
	}
	require.Equal(t, map[string]string{"admin": "alice carol ", "edit": "carol ", "cluster-admin": "admins ", "view": "x "}, bindings)
	for _, want := range []string{
		"lost: tenant/oil: owners: ClusterRole capsule-namespace-deleter is removed with Capsule\n",
		"lost: tenant/oil: owners: ClusterRole capsule-namespace-provisioner is removed with Capsule\n",
		"needs you: tenant/oil: owners: User carol: labels: write them into the RoleBinding\n",
		"lost: tenant/oil: owners: User carol: later: it is not known to this command\n",
		"needs you: tenant/oil: additionalRoleBindings[0].annotations: write them into the RoleBinding\n",
		"needs you: tenant/oil: annotation quota.resources.capsule.clastix.io/foos.example.com_v1: limit the objects by ",
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "permissions")
	require.NotContains(t, text, "used.resources")
	_, text = converted(t, "from-capsule", `{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: {name: oil},
		spec: {permissions: {allowOwnerPromotion: true, matchOwners: [{matchLabels: {a: b}}]}}}`)
	require.Contains(t, text, "needs you: tenant/oil: permissions.matchOwners: read the Tenant from the cluster, where its "+
		"status has these owners\n")
}

// Fields that are empty, and what Capsule sets in each Tenant, are not named.
func TestFieldsThatAreNotSet(t *testing.T) {
	t.Parallel()
	d, _ := converted(t, "from-capsule", `
apiVersion: capsule.clastix.io/v1beta2
kind: Tenant
metadata: {name: oil}
spec:
  cordoned: false
  containerRegistries: {}
  gatewayOptions: {}
  imagePullPolicies: []
  ingressOptions: {hostnameCollisionScope: Disabled}
  permissions: {allowOwnerPromotion: true}
  runtimeClasses: null
`)
	require.Empty(t, d.items[0].needs)
	require.Empty(t, d.items[0].lost)
	for _, options := range []string{"hostnameCollisionScope: Cluster", "hostnameCollisionScope: Disabled, allowedClasses: {}"} {
		d, _ = converted(t, "from-capsule", `{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: {name: oil},
			spec: {ingressOptions: {`+options+`}}}`)
		require.Len(t, d.items[0].needs, 1, options)
	}
}

// Objects of a tool that are not converted are named.
func TestObjectsThatAreNotConverted(t *testing.T) {
	t.Parallel()
	const need = ": this kind is not converted: decide what replaces the object\n"
	_, text := converted(t, "from-capsule",
		`{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: {name: oil}}`,
		`{apiVersion: capsule.clastix.io/v1beta2, kind: ResourcePool, metadata: {name: pool}}`,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}`)
	require.Contains(t, text, "needs you: resourcepool.capsule.clastix.io/pool"+need)
	require.NotContains(t, text, "other")
	_, text = converted(t, "from-kyverno-generate", kyvernoPolicyOf("", "generate: "+kyvernoGenerate),
		`{apiVersion: policies.kyverno.io/v1, kind: NamespacedGeneratingPolicy, metadata: {name: g, namespace: x}}`)
	require.Contains(t, text, "needs you: namespacedgeneratingpolicy.policies.kyverno.io/g"+need)
	for flag, object := range map[string]string{
		"from-hnc": `{apiVersion: hnc.x-k8s.io/v1alpha2, kind: HierarchyConfiguration,
			metadata: {name: hierarchy, namespace: child}, spec: {parent: acme, later: x}}`,
		"from-accurate": `{apiVersion: accurate.cybozu.com/v2, kind: SubNamespace, metadata: {name: child, namespace: acme},
			spec: {later: x}}`,
		"from-openshift-project-template": `{apiVersion: template.openshift.io/v1, kind: Template, metadata: {name: t}, later: x,
			objects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}]}`,
	} {
		_, text := converted(t, flag, object)
		require.Contains(t, text, "later: it is not known to this command\n", flag)
	}
}

// A resource of Capsule that is paused, or whose objects are not created in each namespace, becomes a disabled template.
func TestResourcesOfCapsuleThatAreNotConverted(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"scope: Namespace":           "",
		"scope: Tenant":              "scope Tenant: each object is created in a namespace of its own",
		"scope: None":                "scope None: each object is created in a namespace of its own",
		"cordoned: true":             "cordoned: it is paused",
		"serviceAccount: {name: x}":  "serviceAccount: the operator creates the objects with its own rights, ",
		"dependsOn: [{name: other}]": "dependsOn: it has no counterpart",
		"later: x":                   "later: it is not known to this command",
	} {
		d, text := converted(t, "from-capsule",
			`{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: {name: oil}}`,
			`{apiVersion: capsule.clastix.io/v1beta2, kind: GlobalTenantResource, metadata: {name: g}, spec: {`+spec+`,
				settings: {adopt: false}, resyncPeriod: 60s, resources: [{later: x, rawItems: [{apiVersion: v1, kind: ConfigMap,
				metadata: {name: c, namespace: fixed}}]}]}}`)
		templates := decode(t, d)
		require.Len(t, templates, 1)
		isDisabling := strings.HasPrefix(spec, "cordoned") || want != "" && strings.HasPrefix(spec, "scope")
		require.Equal(t, isDisabling, isDisabled(templates[0]), spec)
		require.Contains(t, text, want, spec)
		require.Contains(t, text, "globaltenantresource/g: tenantSelector: the templates select the tenants of today: ")
		require.Contains(t, text, "lost: globaltenantresource/g: later: it is not known to this command\n")
	}
}

// The labels of OpenShift's template are also those of the project.
func TestLabelsOfOpenShiftTemplates(t *testing.T) {
	t.Parallel()
	d, _ := converted(t, "from-openshift-project-template", `
apiVersion: template.openshift.io/v1
kind: Template
metadata: {name: t}
labels: {team: "${PROJECT_NAME}", stage: live}
objects:
- apiVersion: project.openshift.io/v1
  kind: Project
  metadata: {name: "${PROJECT_NAME}", labels: {stage: own, more: x}}
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: c}
`)
	templates := decode(t, d)
	require.Equal(t, map[string]string{"team": "$(NAMESPACE)", "stage": "live", "more": "x"},
		templates[0].Spec.NamespaceMetadata.Labels)
	object := &unstructured.Unstructured{}
	require.NoError(t, object.UnmarshalJSON(templates[0].Spec.Templates[0].Raw))
	require.Equal(t, map[string]string{"team": "$(NAMESPACE)", "stage": "live"}, object.GetLabels())
}
