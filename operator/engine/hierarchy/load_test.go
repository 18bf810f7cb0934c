package hierarchy_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/encoding/unicode"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/test/marks"
)

// files returns a tree. Each text is "path: content", and a path that ends with / is an empty directory.
func files(texts ...string) fstest.MapFS {
	tree := fstest.MapFS{}
	for _, text := range texts {
		path, content, _ := strings.Cut(text, ": ")
		if directory, ok := strings.CutSuffix(path, "/"); ok {
			tree[directory] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
			continue
		}
		tree[path] = &fstest.MapFile{Data: []byte(content), Mode: 0o644}
	}
	return tree
}

func namespace(name string) string {
	return "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: " + name + "\n"
}

func binding(name string) string {
	return "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata:\n  name: " + name +
		"\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\nsubjects:\n- {kind: Group, name: a, apiGroup: rbac.authorization.k8s.io}\n"
}

func role(kind, name string) string {
	return "apiVersion: rbac.authorization.k8s.io/v1\nkind: " + kind + "\nmetadata:\n  name: " + name +
		"\nrules:\n- {apiGroups: [''], resources: [pods], verbs: [get]}\n"
}

func quota(name string) string {
	return "apiVersion: v1\nkind: ResourceQuota\nmetadata:\n  name: " + name + "\nspec:\n  hard: {pods: 3}\n"
}

func load(t *testing.T, tree fs.FS) *hierarchy.Result {
	t.Helper()
	result, err := hierarchy.Load(tree, "foo-corp")
	require.NoError(t, err)
	return result
}

const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"

func utf16(text string) string {
	encoded, err := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewEncoder().String(text)
	if err != nil {
		panic(err)
	}
	return encoded
}

// fooCorp is a tree with all kinds of objects.
func fooCorp() fstest.MapFS {
	const at = "online/shipping-app-backend/"
	return files(
		"audit/namespace.yaml: "+namespace("audit"),
		at+"shipping-dev/job-creator-rolebinding.yaml: "+binding("job-creators"),
		at+"shipping-dev/job-creator-role.yaml: "+role("Role", "job-creator"),
		at+"shipping-dev/namespace.yaml: "+namespace("shipping-dev"),
		at+"shipping-dev/quota.yaml: "+quota("quota"),
		at+"shipping-prod/namespace.yaml: "+namespace("shipping-prod"),
		at+"shipping-staging/namespace.yaml: "+namespace("shipping-staging"),
		at+"pod-creator-rolebinding.yaml: "+binding("pod-creators"),
		at+"quota.yaml: "+strings.Replace(quota("pod-quota"), "  name: pod-quota\n",
			"  name: pod-quota\n  namespace:\n", 1),
		"namespace-reader-clusterrole.yaml: "+role("ClusterRole", "namespace-reader"),
		"pod-security-policy.yaml: apiVersion: extensions/v1beta1\nkind: PodSecurityPolicy\nmetadata:\n  name: psp\nspec:\n  privileged: false\n",
		"viewers-rolebinding.yaml: "+binding("viewers"),
		"OWNERS: - alice\n- bob\n",
		".github/workflows/x.yaml: {", "README.md: # Policies\nkind: of\n",
	)
}

func TestLoadReadsAValidTree(t *testing.T) {
	t.Parallel()
	result := load(t, fooCorp())
	require.Empty(t, result.Violations)
	require.Len(t, result.Warnings, 1)
	require.Contains(t, result.Warnings[0].Message, "PodSecurityPolicy")
	require.Len(t, result.Tree.Cluster, 2)
	root := result.Tree.Root
	require.Equal(t, "foo-corp", root.Name)
	require.Nil(t, root.Namespace)
	require.Len(t, root.RoleBindings, 1)
	backend := root.Children[1].Children[0]
	require.Equal(t, "foo-corp/online/shipping-app-backend", backend.Path)
	require.Equal(t, "pod-quota", backend.Quota.Name)
	dev := backend.Children[0]
	require.Equal(t, "shipping-dev", dev.Namespace.Name)
	require.Len(t, dev.Roles, 1)
	require.NotNil(t, dev.Quota)
}

func TestLoadFindsEveryViolation(t *testing.T) {
	t.Parallel()
	ns := "a/namespace.yaml: " + namespace("a")
	for name, test := range map[string]struct {
		tree []string
		want string
	}{
		"a directory in a namespace directory":        {[]string{ns, "a/b/OWNERS: x"}, "ns-leaf foo-corp/a/b:0"},
		"an empty directory in a namespace directory": {[]string{ns, "a/b/"}, "ns-leaf foo-corp/a/b:0"},
		"a Namespace with another name than its directory": {
			[]string{"a/ns.yaml: " + namespace("b")}, "ns-name-match foo-corp/a/ns.yaml:4",
		},
		"metadata.namespace with another name than the directory": {[]string{
			ns, "a/q.yaml: " + strings.Replace(quota("q"), "name: q", "name: q\n  namespace: b", 1),
		}, "ns-name-match foo-corp/a/q.yaml:5"},
		"metadata.namespace with the name of the directory": {[]string{
			ns, "a/q.yaml: " + strings.Replace(quota("q"), "name: q", "name: q\n  namespace: a", 1),
		}, ""},
		"a kind that is not allowed in a namespace": {[]string{
			ns, "a/c.yaml: apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n",
		}, "ns-kind foo-corp/a/c.yaml:1"},
		"two quotas": {
			[]string{ns, "a/q.yaml: " + quota("q") + "---\n" + quota("r")}, "multi-quota foo-corp/a/q.yaml:8",
		},
		"two quotas of a policyspace": {
			[]string{"p/q.yaml: " + quota("q"), "p/r.yaml: " + quota("r")}, "multi-quota foo-corp/p/r.yaml:1",
		},
		"a Namespace with a policyspace label": {[]string{"a/namespace.yaml: " + namespace("a") +
			"  labels: {policy.nstpl.dev/policyspace: b}\n"}, "ns-label foo-corp/a/namespace.yaml:5"},
		"a Namespace with a label of its depth": {[]string{"a/namespace.yaml: " + namespace("a") +
			"  labels: {foo-corp.tree.policy.nstpl.dev/depth: '1'}\n"}, "ns-label foo-corp/a/namespace.yaml:5"},
		"a Namespace with the label of initialization": {[]string{"a/namespace.yaml: " + namespace("a") +
			"  labels: {policy/namespace-initializing: 'true'}\n"}, "schema foo-corp/a/namespace.yaml:5"},
		"a Namespace with the record of a tree": {[]string{"a/namespace.yaml: " + namespace("a") +
			"  annotations:\n    policy.nstpl.dev/in-tree: 'true'\n"}, "schema foo-corp/a/namespace.yaml:6"},
		"a Namespace with user IDs": {[]string{"a/namespace.yaml: " + namespace("a") +
			"  annotations:\n    a: b\n    policy.nstpl.dev/scc.uid-range: 1000410000-1999999999\n"},
			"schema foo-corp/a/namespace.yaml:7"},
		"a Namespace with the records of the operator": {[]string{"a/namespace.yaml: " + namespace("a") +
			"  annotations:\n    policy.nstpl.dev/scc.mcs: s0\n    policy.nstpl.dev/tree-metadata: a\n" +
			"    policy.nstpl.dev/namespace-metadata: '{}'\n    policy/namespace-initializers-pending: a\n"},
			"schema foo-corp/a/namespace.yaml:6 schema foo-corp/a/namespace.yaml:7 " +
				"schema foo-corp/a/namespace.yaml:8 schema foo-corp/a/namespace.yaml:9"},
		"a Namespace with what users may set": {[]string{"a/namespace.yaml: " + namespace("a") +
			"  labels: {policy.nstpl.dev/hints: enabled, policy.nstpl.dev/metrics: enabled}\n" +
			"  annotations: {policy.nstpl.dev/adopt: 'true', policy.nstpl.dev/expires: never, " +
			"policy.nstpl.dev/deletion-protection: 'true', " +
			"policy/namespace-template-opt-out: logging, authorization.k8s.io/creator: jane}\n"}, ""},
		"a Namespace with an end, and the consent to its deletion": {[]string{"a/namespace.yaml: " + namespace("a") +
			"  annotations:\n    policy.nstpl.dev/expires: '2020-01-01T00:00:00Z'\n" +
			"    policy.nstpl.dev/delete-when-expired: 'true'\n"},
			"schema foo-corp/a/namespace.yaml:6 schema foo-corp/a/namespace.yaml:7"},
		"a Namespace with an invalid protection": {[]string{"a/namespace.yaml: " + namespace("a") +
			"  annotations: {policy.nstpl.dev/deletion-protection: maybe}\n"}, "schema foo-corp/a/namespace.yaml:5"},
		"a quota with scopes": {
			[]string{"p/q.yaml: " + quota("q") + "  scopes: [BestEffort]\n"}, "ps-quota-scopes foo-corp/p/q.yaml:7",
		},
		"a quota of an unknown resource": {
			[]string{"p/q.yaml: " + strings.Replace(quota("q"), "pods", "podz", 1)}, "schema foo-corp/p/q.yaml:6",
		},
		"a quota of half a pod": {
			[]string{"p/q.yaml: apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {pods: 1.5}}\n"},
			"schema foo-corp/p/q.yaml:4",
		},
		"quotas of all types of resources": {
			[]string{
				"p/q.yaml: apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {cpu: 1.5, count/jobs.batch: 3, requests.nvidia.com/gpu: 1, requests.hugepages-2Mi: 1Gi, gold.storageclass.storage.k8s.io/requests.storage: 1Ti}}\n",
			},
			"",
		},
		"two objects of one kind and name": {
			[]string{ns, "a/r.yaml: " + binding("b"), "a/s.yaml: " + binding("b")}, "dup-name foo-corp/a/s.yaml:1",
		},
		"one name in two directories": {[]string{ns, "a/r.yaml: " + binding("b"), "b.yaml: " + binding("b")}, ""},
		"one name of two kinds": {
			[]string{ns, "a/r.yaml: " + binding("b"), "a/s.yaml: " + role("Role", "b")}, "",
		},
		"a role of a policyspace": {[]string{"p/r.yaml: " + role("Role", "r")}, "ps-role foo-corp/p/r.yaml:1"},
		"a role of the root":      {[]string{"r.yaml: " + role("Role", "r")}, "ps-role foo-corp/r.yaml:1"},
		"a kind that is not allowed in a policyspace": {
			[]string{"p/s.yaml: apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"}, "ps-kind foo-corp/p/s.yaml:1",
		},
		"metadata.namespace in a policyspace": {[]string{"p/q.yaml: " +
			strings.Replace(quota("q"), "name: q", "name: q\n  namespace: b", 1)},
			"ps-namespace-field foo-corp/p/q.yaml:5"},
		"a cluster role in a policyspace": {
			[]string{"p/r.yaml: " + role("ClusterRole", "r")}, "root-only foo-corp/p/r.yaml:1",
		},
		"a cluster role in a namespace": {
			[]string{ns, "a/r.yaml: " + role("ClusterRole", "r")}, "root-only foo-corp/a/r.yaml:1",
		},
		"a name with capitals": {[]string{"Team/OWNERS: x"}, "name-dns foo-corp/Team:0"},
		"a name with a dot":    {[]string{"a.b/OWNERS: x"}, "name-dns foo-corp/a.b:0"},
		"a long name": {
			[]string{strings.Repeat("x", 64) + "/OWNERS: x"}, "name-dns foo-corp/" + strings.Repeat("x", 64) + ":0",
		},
		"a directory named default":                {[]string{"default/OWNERS: x"}, "name-reserved foo-corp/default:0"},
		"a directory whose name begins with kube-": {[]string{"kube-x/OWNERS: x"}, "name-reserved foo-corp/kube-x:0"},
		"a directory named nomos-system": {
			[]string{"nomos-system/OWNERS: x"}, "name-reserved foo-corp/nomos-system:0",
		},
		"directories named as the operator's namespaces": {
			[]string{"nstpl-system/OWNERS: x", "a/nstpl-trial/namespace.yaml: " + namespace("nstpl-trial")},
			"name-reserved foo-corp/a/nstpl-trial:0 name-reserved foo-corp/nstpl-system:0",
		},
		"names that are similar to reserved names": {[]string{
			"kube/OWNERS: x", "kubeflow/OWNERS: x", "default-x/OWNERS: x", "nomos-systems/OWNERS: x", "1/OWNERS: x",
		}, ""},
		"two directories of one name": {
			[]string{"a/dev/OWNERS: x", "b/dev/namespace.yaml: " + namespace("dev")}, "name-unique foo-corp/b/dev:0",
		},
		"a directory with the name of the root": {
			[]string{"a/foo-corp/OWNERS: x"}, "name-unique foo-corp/a/foo-corp:0",
		},
		"invalid YAML": {[]string{"a.yaml: a: b\nc: [\n"}, "parse foo-corp/a.yaml:2"},
		"invalid YAML in a file without an extension": {
			[]string{"quota: kind: ResourceQuota\napiVersion: [\n"}, "parse foo-corp/quota:2",
		},
		"invalid JSON": {[]string{`a.json: {"kind": "Namespace"`}, "parse foo-corp/a.json:1"},
		"a duplicate key": {
			[]string{"a.yaml: apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nmetadata: {name: r}\n"},
			"parse foo-corp/a.yaml:4",
		},
		"an unknown field": {
			[]string{"q.yaml: " + quota("q") + "  soft: {}\n"}, "schema foo-corp/q.yaml:7",
		},
		"a number for a name": {[]string{"q.yaml: " + quota("123")}, "schema foo-corp/q.yaml:4"},
		"an invalid quantity": {[]string{"q.yaml: " +
			strings.Replace(quota("q"), "pods: 3", "pods: many", 1)}, "schema foo-corp/q.yaml:6"},
		"no name": {
			[]string{"q.yaml: apiVersion: v1\nkind: ResourceQuota\nmetadata: {}\n"}, "schema foo-corp/q.yaml:3",
		},
		"no kind": {
			[]string{"q.yaml: apiVersion: v1\nmetadata: {name: q}\n"}, "schema foo-corp/q.yaml:1",
		},
		"another version": {
			[]string{"q.yaml: " + strings.Replace(quota("q"), "v1", "v2", 1)}, "schema foo-corp/q.yaml:1",
		},
		"a binding without the name of a role": {[]string{"b.yaml: " +
			strings.Replace(binding("b"), "name: view", "name: ''", 1)}, "schema foo-corp/b.yaml:5"},
		"a binding of a role whose name is too long": {[]string{"b.yaml: " +
			strings.Replace(binding("b"), "name: view", "name: "+strings.Repeat("x", 254), 1)},
			"schema foo-corp/b.yaml:5"},
		"a binding of a role whose name has several lines": {[]string{"b.yaml: " +
			strings.Replace(binding("b"), "name: view", `name: "x\nNamespace"`, 1)}, ""},
		"a binding of a Role with a long name": {[]string{ns, "a/b.yaml: " + strings.Replace(binding("b"),
			"kind: ClusterRole, name: view", "kind: Role, name: "+strings.Repeat("x", 254), 1)}, ""},
		"a role with a name of those that trees are compiled to": {
			[]string{"r.yaml: " + role("ClusterRole", "nstpl-operator-tree-other.edit")},
			"name-reserved foo-corp/r.yaml:4",
		},
		"a rule without verbs": {[]string{"r.yaml: " +
			strings.Replace(role("ClusterRole", "r"), "[get]", "[]", 1)}, "schema foo-corp/r.yaml:6"},
		"aliases that expand exponentially": {[]string{"a.yaml: a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" +
			"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n"}, "parse foo-corp/a.yaml:1"},
		"a file that is too large": {
			[]string{"a.yaml: " + strings.Repeat("# x\n", 1<<19)}, "parse foo-corp/a.yaml:0",
		},
		"files that are not manifests": {[]string{
			"values.yaml: replicas: 3\n", "list.yaml: - a\n", "text.yaml: just text\n", "empty.yaml: ",
			"comment.yaml: # nothing\n---\n", "big.bin: " + strings.Repeat("x", 1<<21),
		}, ""},
		"a List": {[]string{"a/list.yaml: apiVersion: v1\nkind: List\nitems:\n- " +
			strings.ReplaceAll(strings.TrimSpace(namespace("b")), "\n", "\n  ") + "\n"},
			"ns-name-match foo-corp/a/list.yaml:7"},
		"Windows' line ends": {[]string{"a/ns.yaml: " +
			strings.ReplaceAll(namespace("a")+"---\n"+quota("q")+"---\n"+quota("r"), "\n", "\r\n")},
			"multi-quota foo-corp/a/ns.yaml:13"},
		"a byte order mark": {[]string{"a/ns.yaml: \ufeff" + namespace("a")}, ""},
		"a JSON file": {
			[]string{`a/ns.json: {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}`}, "",
		},
		"a manifest in a file without an extension": {
			[]string{"a/NAMESPACE: " + namespace("b")}, "ns-name-match foo-corp/a/NAMESPACE:4",
		},
		"several objects in one file": {[]string{"a/all: " + namespace("a") + "---\n" +
			role("Role", "r") + "---\n" + binding("b") + "---\n" + quota("q")}, ""},
		"a NamespaceList": {
			[]string{"a/n.yaml: apiVersion: v1\nkind: NamespaceList\nitems:\n- metadata: {name: a}\n"}, "",
		},
		"an empty tree": {[]string{}, ""},
		"a ServiceAccount with an API group": {[]string{"b.yaml: " +
			strings.Replace(binding("b"), "kind: Group, name: a, apiGroup: rbac.authorization.k8s.io",
				"kind: ServiceAccount, name: a", 1)}, "schema foo-corp/b.yaml:7"},
		"an old version of RBAC": {[]string{"b.yaml: " +
			strings.Replace(binding("b"), "k8s.io/v1", "k8s.io/v1beta1", 1)}, ""},
		"two JSON values in one file": {[]string{"a/n.yaml: " +
			`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}` + "\n" +
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}` + "\n"}, "ns-kind foo-corp/a/n.yaml:2"},
		"invalid content after a JSON value": {[]string{"a/n.yaml: " +
			`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}` + "\n}}} x\n"},
			"parse foo-corp/a/n.yaml:2"},
		"a document after an end marker": {
			[]string{"a/n.yaml: " + namespace("a") + "...\n" + secret}, "ns-kind foo-corp/a/n.yaml:6",
		},
		"a document on the marker's line": {
			[]string{"a/n: --- {apiVersion: v1, kind: Namespace, metadata: {name: b}}\n"},
			"ns-name-match foo-corp/a/n:1",
		},
		"old line ends": {[]string{"a/n.yaml: " +
			strings.ReplaceAll(namespace("a")+"---\n"+secret, "\n", "\r")}, "ns-kind foo-corp/a/n.yaml:6"},
		"UTF-16": {
			[]string{"a/n.yaml: " + utf16(namespace("a")+"---\n"+secret)}, "ns-kind foo-corp/a/n.yaml:6",
		},
		"a Role without an API group": {[]string{
			ns, "a/r.yaml: " + strings.Replace(role("Role", "r"), "rbac.authorization.k8s.io/v1", "v1", 1),
		}, "schema foo-corp/a/r.yaml:1"},
		"a PodSecurityPolicy without an API group": {
			[]string{"p.yaml: apiVersion: v1\nkind: PodSecurityPolicy\nmetadata: {name: p}\n"},
			"schema foo-corp/p.yaml:1",
		},
		"a version that does not exist": {[]string{"b.yaml: " +
			strings.Replace(binding("b"), "k8s.io/v1", "k8s.io/v2", 1)}, "schema foo-corp/b.yaml:1"},
		"a PodSecurityPolicy of another version": {
			[]string{"p.yaml: apiVersion: policy/v1\nkind: PodSecurityPolicy\nmetadata: {name: p}\n"},
			"schema foo-corp/p.yaml:1",
		},
		"a PodSecurityPolicy with an unknown field": {
			[]string{"p.yaml: apiVersion: policy/v1beta1\nkind: PodSecurityPolicy\nmetadata: {name: p}\nfoo: 1\n"},
			"schema foo-corp/p.yaml:4",
		},
		"a PodSecurityPolicy whose spec is a list": {
			[]string{"p.yaml: apiVersion: policy/v1beta1\nkind: PodSecurityPolicy\nmetadata: {name: p}\nspec: [x]\n"},
			"schema foo-corp/p.yaml:4",
		},
		"items without a kind in a typed list": {[]string{
			ns,
			"a/l.yaml: apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBindingList\nitems:\n- metadata: {name: x}\n",
		}, "schema foo-corp/a/l.yaml:4 schema foo-corp/a/l.yaml:4"},
		"items without a kind in a List": {[]string{
			ns, "a/l.yaml: apiVersion: v1\nkind: List\nitems:\n- metadata: {name: x}\n",
		}, "schema foo-corp/a/l.yaml:4"},
		"an item that is null": {[]string{
			ns, "a/l.yaml: apiVersion: v1\nkind: List\nitems:\n- null\n",
		}, "schema foo-corp/a/l.yaml:4"},
		"an item that is a string": {[]string{
			ns, "a/l.yaml: apiVersion: v1\nkind: List\nitems:\n- foo\n",
		}, "schema foo-corp/a/l.yaml:4"},
		"items that are not a list": {[]string{
			ns, "a/l.yaml: apiVersion: v1\nkind: List\nitems: {}\n",
		}, "schema foo-corp/a/l.yaml:3"},
		"a List without items": {
			[]string{ns, "a/l.yaml: apiVersion: v1\nkind: List\n"}, "schema foo-corp/a/l.yaml:1",
		},
		"an empty List": {[]string{
			ns, "a/l.yaml: apiVersion: v1\nkind: List\nitems: []\n",
		}, ""},
		"lists that are nested too deep": {[]string{
			ns,
			"a/l.json: " + strings.Repeat(`{"apiVersion":"v1","kind":"List","items":[`, 20) + strings.Repeat("]}", 20),
		}, "schema foo-corp/a/l.json:1"},
		"a YAML list of manifests": {
			[]string{ns, "a/l.yaml: - apiVersion: v1\n  kind: Secret\n"}, "schema foo-corp/a/l.yaml:1",
		},
		"a manifest in a file whose name begins with a dot": {
			[]string{ns, "a/.s.yaml: " + secret}, "ns-kind foo-corp/a/.s.yaml:1",
		},
		"a manifest that follows another field": {
			[]string{"foo.txt: rules: []\n" + role("Role", "r")}, "parse foo-corp/foo.txt:6",
		},
		"a manifest whose first field is not apiVersion": {
			[]string{
				"foo.txt: roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: b}\n",
			},
			"ps-role foo-corp/foo.txt:1 schema foo-corp/foo.txt:1",
		},
		"texts that contain a manifest": {[]string{"README.md: # Roles\nLike this:\n```\n" +
			role("Role", "r") + "```\n", "notes: Note: this\n---\n" + role("Role", "r")}, ""},
		"a namespace whose name is a number": {[]string{
			"123/n.yaml: " + namespace("123"), "123/r.yaml: " + role("Role", "r"),
		}, "schema foo-corp/123/n.yaml:4"},
		"a Namespace with a syntax error": {[]string{
			"a/n.yaml: " + namespace("a") + "  labels: [x\n", "a/r.yaml: " + role("Role", "r"),
		}, "parse foo-corp/a/n.yaml:5"},
		"a Namespace of another version": {[]string{"a/n.yaml: " +
			strings.Replace(namespace("a"), "v1", "v2", 1), "a/r.yaml: " + role("Role", "r")},
			"schema foo-corp/a/n.yaml:1"},
		"a Namespace without a name": {
			[]string{"a/n.yaml: apiVersion: v1\nkind: Namespace\nmetadata: {}\n"}, "schema foo-corp/a/n.yaml:3",
		},
		"a directory in the directory of an invalid Namespace": {[]string{"a/n.yaml: " +
			strings.Replace(namespace("a"), "v1", "v1\nspec: [x]", 1), "a/b/OWNERS: x"},
			"ns-leaf foo-corp/a/b:0 schema foo-corp/a/n.yaml:2"},
		"a quota with the name of the operator's": {
			[]string{ns, "a/q.yaml: " + quota("nstpl-policyspace")}, "name-reserved foo-corp/a/q.yaml:4",
		},
		"an invalid label": {[]string{"a/n.yaml: " + namespace("a") +
			"  labels:\n    b: c\n    e: f g\n"}, "schema foo-corp/a/n.yaml:7"},
		"an annotation that is reserved for kustomize": {[]string{"b.yaml: " +
			strings.Replace(binding("b"), "name: b",
				"name: b\n  annotations: {config.kubernetes.io/local-config: 'true'}", 1)}, "schema foo-corp/b.yaml:5"},
		"a quota of half a device": {[]string{"q.yaml: " +
			strings.Replace(quota("q"), "pods: 3", "nvidia.com/gpu: 500m", 1)}, "schema foo-corp/q.yaml:6"},
		"a limit that takes long to parse": {[]string{"q.yaml: " +
			strings.Replace(quota("q"), "pods: 3", "cpu: 1e-100", 1)}, "schema foo-corp/q.yaml:6"},
		"a limit that takes long to compare": {[]string{"q.yaml: " +
			strings.Replace(quota("q"), "pods: 3", "pods: '1e100'", 1)}, "schema foo-corp/q.yaml:6"},
		"a usage that takes long to parse": {[]string{"q.yaml: " + quota("q") +
			"status:\n  used:\n    pods: '1e-100'\n"}, "schema foo-corp/q.yaml:9"},
		"one invalid limit among others": {[]string{"q.yaml: " +
			strings.Replace(quota("q"), "  hard: {pods: 3}", "  hard:\n    services: 3\n    pods: -3", 1)},
			"schema foo-corp/q.yaml:8"},
		"an unknown field of a rule": {[]string{"r.yaml: " +
			strings.Replace(role("ClusterRole", "r"), "verbs: [get]}",
				"verbs: [get]}\n- {apiGroups: [''], resources: [pods], verbs: [get], verbz: [get]}", 1)},
			"schema foo-corp/r.yaml:7"},
		"a ClusterRole in a root that is a namespace": {[]string{
			"n.yaml: " + namespace("foo-corp"), "r.yaml: " + role("ClusterRole", "r"),
		}, "root-only foo-corp/r.yaml:1"},
		"a key that overrides a merged key": {[]string{"a/n.yaml: x: &x {name: b}\n---\n" +
			"apiVersion: v1\nkind: Namespace\nmetadata:\n  labels: &l {a: b}\n  name: a\n  annotations:\n    <<: *l\n    a: c\n"}, ""},
		"aliases that expand to a large document": {[]string{"a.yaml: a: &a " + strings.Repeat("x", 4000) +
			"\nb: [" + strings.Repeat("*a,", 3000) + "*a]\n"}, "parse foo-corp/a.yaml:1"},
		"an alias that contains itself": {
			[]string{"a.yaml: a: &a\n  b: *a\n"}, "parse foo-corp/a.yaml:1",
		},
		"an alias without an anchor": {[]string{"a.yaml: a: b\nc: *d\n"}, "parse foo-corp/a.yaml:2"},
		"a tab in the indentation": {
			[]string{"a.yaml: a:\n  b: c\n\td: e\n"}, "parse foo-corp/a.yaml:3",
		},
		"a control character": {
			[]string{"a.yaml: a: b\nc: \x00\n"}, "parse foo-corp/a.yaml:2",
		},
		"a file that is not UTF-8": {
			[]string{"a.yaml: a: b\nc: \xff\n"}, "parse foo-corp/a.yaml:2",
		},
		"all ways to write quantities": {
			[]string{
				"q.yaml: apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {pods: 0x10, services: 1_000, secrets: 0b11, configmaps: ' 3 ', cpu: .5, memory: 1e3, requests.cpu: ~}}\n",
			},
			"",
		},
		"keys that are merged or of different types": {
			[]string{"v.yaml: a: &a {b: c}\nd: &d {e: f}\ng: {<<: *a, <<: *d, b: x}\n1: x\n\"1\": y\n"}, "",
		},
		"many equal keys": {
			[]string{"v.yaml: {" + strings.Repeat("a,", 6000) + "}\n"}, "parse foo-corp/v.yaml:1",
		},
		"texts that show manifests": {[]string{"README.md: Example:\n```yaml\n" + role("Role", "r") +
			"```\n", "Makefile: all: ns\ndefine NS\n" + namespace("a") + "endef\n"}, ""},
		"settings files of tools": {[]string{
			".drone.yml: kind: pipeline\n", ".eslintrc.json: {\n// comment\n}\n", "._n.yaml: \x00\x05\x16\x07",
			".pre-commit-config.yaml: repos: []\n",
		}, ""},
		"JSON that is not valid YAML": {
			[]string{
				`a/n.json: {"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","annotations":{"a":"\ud83d\ude00\/` + "\x7f" + `","b"` + "\n" + `:"c"}}}`,
			},
			"",
		},
		"a duplicate key in JSON": {
			[]string{
				`a/n.json: {"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"},"metadata":{"name":"a"}}`,
			},
			"parse foo-corp/a/n.json:1",
		},
		"very many JSON values": {[]string{
			"x.json: " + strings.Repeat("{}\n", 300000), "y.yaml: " + strings.Repeat("1\n", 400000),
		}, ""},
		"a Helm template": {
			[]string{"a/ns.yaml: {{ .Values.namespace }}\n"}, "parse foo-corp/a/ns.yaml:1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := load(t, files(test.tree...))
			if test.want == "" {
				require.Empty(t, result.Violations)
				return
			}
			var got []string
			for _, one := range result.Violations {
				got = append(got, fmt.Sprintf("%s %s:%d", one.Rule, one.Path, one.Line))
				require.NotEmpty(t, one.Message)
				require.NotEmpty(t, one.Remedy)
			}
			slices.Sort(got)
			require.Equal(t, test.want, strings.Join(got, " "), "%v", result.Violations)
		})
	}
}

func TestLoadReportsAllViolationsInOrder(t *testing.T) {
	t.Parallel()
	tree := fooCorp()
	tree["audit/default/x.yaml"] = &fstest.MapFile{Data: []byte("a: [")}
	tree["audit/link"] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("/etc/passwd")}
	tree["online/role.yaml"] = &fstest.MapFile{Data: []byte(role("Role", "r"))}
	var rules []string
	for _, one := range load(t, tree).Violations {
		rules = append(rules, one.Rule)
	}
	require.Equal(t, []string{"ns-leaf", "name-reserved", "parse", "symlink", "ps-role"}, rules)
}

// An fs.FS cannot open such files.
func TestLoadReportsFileNamesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"caf\xe9.txt", "caf\xe9.yaml", "caf\xe9/x"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(secret), 0o600))
	}
	result := load(t, os.DirFS(dir))
	require.Len(t, result.Violations, 2)
	require.Equal(t, "name-dns foo-corp/caf\ufffd", result.Violations[0].Rule+" "+result.Violations[0].Path)
	require.Equal(t, "parse foo-corp/caf\ufffd.yaml", result.Violations[1].Rule+" "+result.Violations[1].Path)
	require.Len(t, result.Warnings, 1)
	require.Equal(t, "foo-corp/caf\ufffd.txt", result.Warnings[0].Path)
}

func TestLoadWarnsOfLimitsOnNamespacesThatCannotHold(t *testing.T) {
	t.Parallel()
	limits := func(namespaces string) string {
		return "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec:\n  hard:\n    count/namespaces: " + namespaces
	}
	two := []string{"a/x/ns.yaml: " + namespace("x"), "a/z/ns.yaml: " + namespace("z")}
	require.Empty(t, load(t, files(append(two, "a/q.yaml: "+limits("2"))...)).Warnings)
	for file, want := range map[string]string{
		"a/q.yaml":   "ResourceQuota q limits namespaces to 1, but the tree has 2 below a: the others cannot be created",
		"q.yaml":     "ResourceQuota q limits namespaces to 1, but the tree has 2 below foo-corp: the others cannot be created",
		"a/x/q.yaml": "ResourceQuota q limits count/namespaces, which has no effect in a namespace: move the limit to a policyspace directory",
	} {
		result := load(t, files(append(slices.Clone(two), file+": "+limits("1"))...))
		require.Empty(t, result.Violations)
		require.Len(t, result.Warnings, 1, file)
		require.Equal(t, want, result.Warnings[0].Message)
		require.Equal(t, 1, result.Warnings[0].Line)
	}
}

func TestLoadLimitsTheSizeOfTemplates(t *testing.T) {
	t.Parallel()
	many := func(n int) []string {
		var texts []string
		for i := range n {
			texts = append(texts, fmt.Sprintf("b%d.yaml: %s", i, binding(fmt.Sprint("b", i))))
		}
		return texts
	}
	var roles []string
	for i := range 5000 {
		roles = append(roles,
			fmt.Sprintf("r%d.yaml: %s", i, role("ClusterRole", fmt.Sprint("r", i)+strings.Repeat("x", 200))))
	}
	result := load(t, files(roles...))
	require.Empty(t, result.Violations, "cluster-scoped objects are not part of a template")
	require.Empty(t, result.Warnings)
	for n, want := range map[int][2]int{100: {0, 0}, 1500: {0, 1}, 8000: {1, 0}} {
		result := load(t, files(many(n)...))
		require.Equal(t, want, [2]int{len(result.Violations), len(result.Warnings)}, "%d: %v %v", n, result.Violations,
			result.Warnings)
	}
}

// The API server stores the permission to bind all of them in one object, whichever directories name them.
func TestLoadLimitsTheNumberOfBoundClusterRoles(t *testing.T) {
	t.Parallel()
	tree := files("admins.yaml: " + strings.Replace(binding("a"), "name: view", "name: admin", 1))
	for i := range 500 {
		for _, in := range []string{"p", "q"} {
			tree[fmt.Sprintf("%s/%d.yaml", in, i)] = &fstest.MapFile{
				Data: []byte(strings.Replace(binding(fmt.Sprint("b", i)), "name: view", fmt.Sprint("name: r", i), 1)),
			}
		}
	}
	require.Empty(t, load(t, tree).Violations)
	tree["more.yaml"] = &fstest.MapFile{Data: []byte(strings.Replace(binding("more"), "name: view", "name: more", 1))}
	require.Equal(t, []hierarchy.Violation{{
		Rule: "size", Path: "foo-corp", Remedy: "bind fewer ClusterRoles",
		Message: "its RoleBindings name 501 ClusterRoles besides admin, edit and view, more than the allowed 500",
	}}, load(t, tree).Violations)
}

// The output of kubectl get contains them.
func TestLoadIgnoresFieldsThatTheAPIServerSets(t *testing.T) {
	t.Parallel()
	const own = "  uid: u\n  resourceVersion: '1'\n  generation: 2\n  creationTimestamp: 2026-01-01T00:00:00Z\n  selfLink: x\n" +
		"  managedFields: []\n  ownerReferences:\n  - {apiVersion: v1, kind: Pod, name: p, uid: v}\n" +
		"  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{}', a: b}\n"
	result := load(t,
		files("a/n.yaml: "+namespace("a")+own+"status: {phase: Active}\n",
			"a/b.yaml: "+strings.Replace(binding("b"), "name: b\n", "name: b\n"+own, 1)))
	require.Empty(t, result.Violations)
	require.Len(t, result.Warnings, 2)
	a := result.Tree.Root.Children[0]
	require.Equal(t, metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"a": "b"}}, a.Namespace.ObjectMeta)
	require.Empty(t, a.Namespace.Status)
	require.Equal(t, metav1.ObjectMeta{Name: "b", Annotations: map[string]string{"a": "b"}},
		a.RoleBindings[0].ObjectMeta)
}

// Load returns no error and valid positions, whatever a file contains.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		namespace("a"), binding("b"), quota("q") + "---\n" + role("Role", "r"),
		"kind: List\napiVersion: v1\nitems: [1, null, {}]\n", "{", "&a [*a]", "? a\n: b\n", "\r\r\"",
		"a: &a b\nc: *d\n", "{} {}", "a\n...\nb: \t",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		result, err := hierarchy.Load(fstest.MapFS{"a/x.yaml": &fstest.MapFile{Data: []byte(content)}}, "root")
		require.NoError(t, err)
		for _, one := range result.Violations {
			require.NotEmpty(t, one.Message)
			require.LessOrEqual(t, one.Line, strings.Count(content, "\n")+strings.Count(content, "\r")+1)
		}
	})
}

// A file of a mebibyte can break hundreds of thousands of rules, and quote itself in each message.
func TestLoadListsTheFirstFindings(t *testing.T) {
	t.Parallel()
	invalid := binding("b") + strings.Repeat("- {}\n", 30_000)
	tree := files("z.yaml: "+invalid, "p/y.yaml: "+invalid,
		"a.yaml: "+strings.Replace(binding("a"), "kind: ClusterRole", "kind: "+strings.Repeat("é", 400_000), 1))
	result := load(t, tree)
	require.Len(t, result.Violations, 1000)
	require.Equal(t, 60_001, result.ViolationCount)
	require.Equal(t, "foo-corp/a.yaml", result.Violations[0].Path)
	require.Less(t, len(result.Violations[0].Message), 1100)
	require.Equal(t, "foo-corp/p/y.yaml", result.Violations[1].Path)
	require.Equal(t, 8, result.Violations[1].Line)
	require.Equal(t, 1006, result.Violations[999].Line)
	for range 3 {
		require.Equal(t, result.Violations, load(t, tree).Violations, "the order of parsing does not matter")
	}
}

// Each file may have more violations than are listed.
func TestLoadCountsManyInvalidFields(t *testing.T) {
	t.Parallel()
	var limits, keys strings.Builder
	for i := range 30_000 {
		fmt.Fprintf(&limits, "    a%d: x\n", i)
		fmt.Fprintf(&keys, "a%d: x\n", i)
	}
	result := load(t, files(
		"q.yaml: "+strings.Replace(quota("q"), "  hard: {pods: 3}\n", "  hard:\n"+limits.String(), 1),
		"l.yaml: apiVersion: v1\nkind: List\n"+keys.String()+"items:\n"+strings.Repeat("- {}\n", 20_000)))
	require.Equal(t, 80_000, result.ViolationCount)
}

func TestLoadRefusesTreesThatNeedMuchMemory(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	withResources := func(count int) string {
		return role("ClusterRole", "r") + "- {apiGroups: [''], verbs: [get], resources: [" +
			strings.Repeat("a,", count) + "]}\n"
	}
	result := load(t, files("a.yaml: "+withResources(199_000)))
	require.Len(t, result.Violations, 1)
	require.Equal(t, "schema", result.Violations[0].Rule, "it is parsed, and too large for the API server")
	require.Equal(t, 199_030, result.Values)
	many := withResources(400_000)
	result = load(t, files("a/a.yaml: "+namespace("a")+"---\n"+many, "b.txt: "+many,
		"c.json: "+strings.Repeat("[1,2]", 200_000)))
	require.Len(t, result.Violations, 2)
	for i, at := range []hierarchy.Violation{{Path: "foo-corp/a/a.yaml", Line: 5}, {Path: "foo-corp/b.txt", Line: 1}} {
		at.Rule, at.Remedy = "parse", "divide it"
		at.Message = "its commas, colons and hyphens are those of up to 800043 values, of which a field has two, and " +
			"200000 are allowed"
		require.Equal(t, at, result.Violations[i])
	}
	// Annotations may have JSON, which is full of punctuation.
	note := strings.Repeat(`{"a":1},`, 239<<10/8)
	result = load(t, files("a/a.yaml: "+
		strings.Replace(namespace("a"), "metadata:", "metadata:\n  annotations: {a: '"+note+"'}", 1)))
	require.Empty(t, result.Violations)

	// Aliases make much of a small file.
	aliases := role("ClusterRole", "r") + "- &rule {apiGroups: [''], resources: [pods], verbs: [" +
		strings.Repeat("a,", 1000) + "]}\n"
	result = load(t, files("a.yaml: "+aliases+strings.Repeat("- *rule\n", 500)))
	require.Len(t, result.Violations, 1)
	require.Equal(t, "it has 505530 values, of which a field has two, and 200000 are allowed",
		result.Violations[0].Message)
	expanded := fstest.MapFS{}
	for i := range 25 {
		content := aliases + strings.Repeat("- *rule\n", 80)
		expanded[fmt.Sprintf("%d.yaml", i)] = &fstest.MapFile{Data: []byte(content)}
	}
	_, err := hierarchy.Load(expanded, "foo-corp")
	require.ErrorAs(t, err, new(*hierarchy.TooLargeError))

	tree := fstest.MapFS{}
	for i := range 21 {
		tree[fmt.Sprintf("%d.yaml", i)] = &fstest.MapFile{Data: []byte(withResources(100_000))}
	}
	_, err = hierarchy.Load(tree, "foo-corp")
	require.EqualError(t, err, "the manifests of the tree have more than 16 MiB, or more than 2000000 values, of "+
		"which a field has two, together: divide the tree")
	_, err = hierarchy.LoadWithin(files("a/namespace.yaml: "+namespace("a")), "foo-corp", 5)
	require.ErrorContains(t, err, "more than 5 values")
	for i := range 18 {
		content := secret + "data: " + strings.Repeat("a", 1<<20-100) + "\n"
		tree[fmt.Sprintf("%d.yaml", i)] = &fstest.MapFile{Data: []byte(content)}
	}
	_, err = hierarchy.Load(tree, "foo-corp")
	require.ErrorAs(t, err, new(*hierarchy.TooLargeError))
}
