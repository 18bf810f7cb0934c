package hierarchy_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/engine/hierarchy"
)

// files are a tree in one text: "path: content" in lines, where a / in the content begins a new line.
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
	return "apiVersion: rbac.authorization.k8s.io/v1\nkind: " + kind + "\nmetadata:\n  name: " + name + "\nrules:\n- {apiGroups: [''], resources: [pods], verbs: [get]}\n"
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

// fooCorp is the example of the source.
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
		at+"quota.yaml: "+strings.Replace(quota("pod-quota"), "  name: pod-quota\n", "  name: pod-quota\n  namespace:\n", 1),
		"namespace-reader-clusterrole.yaml: "+role("ClusterRole", "namespace-reader"),
		"pod-security-policy.yaml: apiVersion: extensions/v1beta1\nkind: PodSecurityPolicy\nmetadata:\n  name: psp\nspec:\n  privileged: false\n",
		"viewers-rolebinding.yaml: "+binding("viewers"),
		"OWNERS: - alice\n- bob\n",
		".github/workflows/x.yaml: {", "README.md: # Policies\nkind: of\n",
	)
}

func TestLoadTheSourcesExample(t *testing.T) {
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
		"a child of a namespace":          {[]string{ns, "a/b/OWNERS: x"}, "ns-leaf foo-corp/a/b:0"},
		"an empty child of one":           {[]string{ns, "a/b/"}, "ns-leaf foo-corp/a/b:0"},
		"another name":                    {[]string{"a/ns.yaml: " + namespace("b")}, "ns-name-match foo-corp/a/ns.yaml:4"},
		"another namespace":               {[]string{ns, "a/q.yaml: " + strings.Replace(quota("q"), "name: q", "name: q\n  namespace: b", 1)}, "ns-name-match foo-corp/a/q.yaml:5"},
		"its own namespace":               {[]string{ns, "a/q.yaml: " + strings.Replace(quota("q"), "name: q", "name: q\n  namespace: a", 1)}, ""},
		"a kind that no namespace has":    {[]string{ns, "a/c.yaml: apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"}, "ns-kind foo-corp/a/c.yaml:1"},
		"two quotas":                      {[]string{ns, "a/q.yaml: " + quota("q") + "---\n" + quota("r")}, "multi-quota foo-corp/a/q.yaml:8"},
		"two quotas of a policyspace":     {[]string{"p/q.yaml: " + quota("q"), "p/r.yaml: " + quota("r")}, "multi-quota foo-corp/p/r.yaml:1"},
		"a label that says where it is":   {[]string{"a/namespace.yaml: " + namespace("a") + "  labels: {policy.nstpl.dev/policyspace: b}\n"}, "ns-label foo-corp/a/namespace.yaml:5"},
		"a quota with scopes":             {[]string{"p/q.yaml: " + quota("q") + "  scopes: [BestEffort]\n"}, "ps-quota-scopes foo-corp/p/q.yaml:7"},
		"a quota of nothing":              {[]string{"p/q.yaml: " + strings.Replace(quota("q"), "pods", "podz", 1)}, "schema foo-corp/p/q.yaml:6"},
		"half a pod":                      {[]string{"p/q.yaml: apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {pods: 1.5}}\n"}, "schema foo-corp/p/q.yaml:4"},
		"other things to limit":           {[]string{"p/q.yaml: apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {cpu: 1.5, count/jobs.batch: 3, requests.nvidia.com/gpu: 1, requests.hugepages-2Mi: 1Gi, gold.storageclass.storage.k8s.io/requests.storage: 1Ti}}\n"}, ""},
		"one name twice":                  {[]string{ns, "a/r.yaml: " + binding("b"), "a/s.yaml: " + binding("b")}, "dup-name foo-corp/a/s.yaml:1"},
		"one name at two levels":          {[]string{ns, "a/r.yaml: " + binding("b"), "b.yaml: " + binding("b")}, ""},
		"one name of two kinds":           {[]string{ns, "a/r.yaml: " + binding("b"), "a/s.yaml: " + role("Role", "b")}, ""},
		"a role of a policyspace":         {[]string{"p/r.yaml: " + role("Role", "r")}, "ps-role foo-corp/p/r.yaml:1"},
		"a role of the root":              {[]string{"r.yaml: " + role("Role", "r")}, "ps-role foo-corp/r.yaml:1"},
		"a kind that no policyspace has":  {[]string{"p/s.yaml: apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"}, "ps-kind foo-corp/p/s.yaml:1"},
		"a namespace in a policyspace":    {[]string{"p/q.yaml: " + strings.Replace(quota("q"), "name: q", "name: q\n  namespace: b", 1)}, "ps-namespace-field foo-corp/p/q.yaml:5"},
		"a cluster role in a policyspace": {[]string{"p/r.yaml: " + role("ClusterRole", "r")}, "root-only foo-corp/p/r.yaml:1"},
		"a cluster role in a namespace":   {[]string{ns, "a/r.yaml: " + role("ClusterRole", "r")}, "root-only foo-corp/a/r.yaml:1"},
		"a name with capitals":            {[]string{"Team/OWNERS: x"}, "name-dns foo-corp/Team:0"},
		"a name with a dot":               {[]string{"a.b/OWNERS: x"}, "name-dns foo-corp/a.b:0"},
		"a long name":                     {[]string{strings.Repeat("x", 64) + "/OWNERS: x"}, "name-dns foo-corp/" + strings.Repeat("x", 64) + ":0"},
		"default":                         {[]string{"default/OWNERS: x"}, "name-reserved foo-corp/default:0"},
		"kube-":                           {[]string{"kube-x/OWNERS: x"}, "name-reserved foo-corp/kube-x:0"},
		"nomos-system":                    {[]string{"nomos-system/OWNERS: x"}, "name-reserved foo-corp/nomos-system:0"},
		"nearly reserved":                 {[]string{"kube/OWNERS: x", "kubeflow/OWNERS: x", "default-x/OWNERS: x", "nomos-systems/OWNERS: x", "1/OWNERS: x"}, ""},
		"a name in two places":            {[]string{"a/dev/OWNERS: x", "b/dev/namespace.yaml: " + namespace("dev")}, "name-unique foo-corp/b/dev:0"},
		"the root's name":                 {[]string{"a/foo-corp/OWNERS: x"}, "name-unique foo-corp/a/foo-corp:0"},
		"broken YAML":                     {[]string{"a.yaml: a: b\nc: [\n"}, "parse foo-corp/a.yaml:"},
		"broken YAML by another name":     {[]string{"quota: kind: ResourceQuota\napiVersion: [\n"}, "parse foo-corp/quota:"},
		"broken JSON":                     {[]string{`a.json: {"kind": "Namespace"`}, "parse foo-corp/a.json:"},
		"a key twice":                     {[]string{"a.yaml: apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nmetadata: {name: r}\n"}, "parse foo-corp/a.yaml:4"},
		"an unknown field":                {[]string{"q.yaml: " + quota("q") + "  soft: {}\n"}, "schema foo-corp/q.yaml:7"},
		"a number for a name":             {[]string{"q.yaml: " + quota("123")}, "schema foo-corp/q.yaml:4"},
		"a broken quantity":               {[]string{"q.yaml: " + strings.Replace(quota("q"), "pods: 3", "pods: many", 1)}, "schema foo-corp/q.yaml:1"},
		"no name":                         {[]string{"q.yaml: apiVersion: v1\nkind: ResourceQuota\nmetadata: {}\n"}, "schema foo-corp/q.yaml:3"},
		"no kind":                         {[]string{"q.yaml: apiVersion: v1\nmetadata: {name: q}\n"}, "schema foo-corp/q.yaml:1"},
		"another version":                 {[]string{"q.yaml: " + strings.Replace(quota("q"), "v1", "v2", 1)}, "schema foo-corp/q.yaml:1"},
		"no role in a binding":            {[]string{"b.yaml: " + strings.Replace(binding("b"), "name: view", "name: ''", 1)}, "schema foo-corp/b.yaml:5"},
		"a rule without verbs":            {[]string{"r.yaml: " + strings.Replace(role("ClusterRole", "r"), "[get]", "[]", 1)}, "schema foo-corp/r.yaml:5"},
		"aliases without end": {[]string{"a.yaml: a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" +
			"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n"}, "parse foo-corp/a.yaml:1"},
		"a large file":         {[]string{"a.yaml: " + strings.Repeat("# x\n", 1<<19)}, "parse foo-corp/a.yaml:0"},
		"what is no manifest":  {[]string{"values.yaml: replicas: 3\n", "list.yaml: - a\n", "text.yaml: just text\n", "empty.yaml: ", "comment.yaml: # nothing\n---\n", "big.bin: " + strings.Repeat("x", 1<<21)}, ""},
		"a list":               {[]string{"a/list.yaml: apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(namespace("b")), "\n", "\n  ") + "\n"}, "ns-name-match foo-corp/a/list.yaml:7"},
		"Windows' line ends":   {[]string{"a/ns.yaml: " + strings.ReplaceAll(namespace("a")+"---\n"+quota("q")+"---\n"+quota("r"), "\n", "\r\n")}, "multi-quota foo-corp/a/ns.yaml:13"},
		"a byte order mark":    {[]string{"a/ns.yaml: \ufeff" + namespace("a")}, ""},
		"JSON":                 {[]string{`a/ns.json: {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}`}, ""},
		"a file of any name":   {[]string{"a/NAMESPACE: " + namespace("b")}, "ns-name-match foo-corp/a/NAMESPACE:4"},
		"several in one file":  {[]string{"a/all: " + namespace("a") + "---\n" + role("Role", "r") + "---\n" + binding("b") + "---\n" + quota("q")}, ""},
		"a namespace's list":   {[]string{"a/n.yaml: apiVersion: v1\nkind: NamespaceList\nitems:\n- metadata: {name: a}\n"}, ""},
		"nothing":              {[]string{}, ""},
		"a service account":    {[]string{"b.yaml: " + strings.Replace(binding("b"), "kind: Group, name: a, apiGroup: rbac.authorization.k8s.io", "kind: ServiceAccount, name: a", 1)}, "schema foo-corp/b.yaml:6"},
		"an older version":     {[]string{"b.yaml: " + strings.Replace(binding("b"), "k8s.io/v1", "k8s.io/v1beta1", 1)}, ""},
		"a template of labels": {[]string{"a/ns.yaml: {{ .Values.namespace }}\n"}, "parse foo-corp/a/ns.yaml:1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := load(t, files(test.tree...))
			if test.want == "" {
				require.Empty(t, result.Violations)
				return
			}
			require.Len(t, result.Violations, 1, "%v", result.Violations)
			one := result.Violations[0]
			require.True(t, strings.HasPrefix(fmt.Sprintf("%s %s:%d", one.Rule, one.Path, one.Line), test.want), "%+v", one)
			require.NotEmpty(t, one.Message)
			require.NotEmpty(t, one.Remedy)
		})
	}
}

func TestLoadSaysEverythingAtOnce(t *testing.T) {
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

// Whatever is in a file, there is a verdict.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{namespace("a"), binding("b"), quota("q") + "---\n" + role("Role", "r"), "kind: List\napiVersion: v1\nitems: [1, null, {}]\n", "{", "&a [*a]", "? a\n: b\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		result, err := hierarchy.Load(fstest.MapFS{"a/x.yaml": &fstest.MapFile{Data: []byte(content)}}, "root")
		require.NoError(t, err)
		for _, one := range result.Violations {
			require.NotEmpty(t, one.Message)
			require.LessOrEqual(t, one.Line, strings.Count(content, "\n")+2)
		}
	})
}
