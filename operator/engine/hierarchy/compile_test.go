package hierarchy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
)

func compile(t *testing.T, files fstest.MapFS) []*unstructured.Unstructured {
	t.Helper()
	objects, err := load(t, files).Tree.Compile(v1alpha1.AuthoritativeDelete)
	require.NoError(t, err)
	return objects
}

func TestCompileReturnsObjectsInTheOrderToApplyThem(t *testing.T) {
	t.Parallel()
	var got []string
	for _, object := range compile(t, fooCorp()) {
		require.Equal(t, "foo-corp", object.GetLabels()[v1alpha1.TreeLabel])
		got = append(got, object.GetKind()+" "+object.GetName())
	}
	first := slices.Index(got, "NamespaceTemplate shipping-app-backend")
	require.Positive(t, first, "cluster-scoped objects come first")
	require.Equal(t, []string{
		"NamespaceTemplate shipping-app-backend", "NamespaceTemplate shipping-dev", "NamespaceTemplate foo-corp",
		"PolicySpace foo-corp", "PolicySpace online", "PolicySpace shipping-app-backend",
		"Namespace audit", "Namespace shipping-dev", "Namespace shipping-prod", "Namespace shipping-staging",
	}, got[first:])
	require.NotContains(t, strings.Join(got, "\n"), "PodSecurityPolicy")
}

// Each bound ClusterRole has a bind role of its own, so that one that cannot be applied concerns no other.
func TestCompileAllowsTheOperatorToBindRoles(t *testing.T) {
	t.Parallel()
	bind := func(name string) string { return strings.Replace(binding("b"), "name: view", "name: "+name, 1) }
	bound := map[string]string{}
	for _, object := range compile(t, files("view.yaml: "+bind("edit"), "a/x.yaml: "+bind("x.y"),
		"b/x.yaml: "+bind("x.y"), "c/z.yaml: "+bind("system:z"))) {
		if object.GetKind() == "ClusterRole" {
			require.Equal(t, "true", object.GetLabels()[v1alpha1.AggregateLabel])
			bound[object.GetName()] = written(t, map[string]any{"rules": object.Object["rules"]})
			require.True(t, hierarchy.IsBindRole(object.GetName()))
		}
	}
	const rule = `{"rules":[{"apiGroups":["rbac.authorization.k8s.io"],"resourceNames":["NAME"],` +
		`"resources":["clusterroles"],"verbs":["bind"]}]}`
	require.Equal(t, map[string]string{
		"nstpl-operator-tree-foo-corp.x.y":      strings.Replace(rule, "NAME", "x.y", 1),
		"nstpl-operator-tree-foo-corp.system:z": strings.Replace(rule, "NAME", "system:z", 1),
	}, bound)
}

// The operator populates namespaces from the compiled objects with the same objects that Flatten returns.
func TestCompileAgreesWithFlatten(t *testing.T) {
	t.Parallel()
	files := fooCorp()
	files["online/tokens.yaml"] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(binding("tokens"), "name: view",
		"name: $(NAMESPACE)$$(CREATOR)"))}
	tree := load(t, files).Tree
	compiled := compile(t, files)

	var templates []*v1alpha1.NamespaceTemplate
	var spaces []*v1alpha1.PolicySpace
	var namespaces []*corev1.Namespace
	for _, object := range compiled {
		switch object.GetKind() {
		case "NamespaceTemplate":
			templates = append(templates, as[v1alpha1.NamespaceTemplate](t, object))
		case "PolicySpace":
			spaces = append(spaces, as[v1alpha1.PolicySpace](t, object))
		case "Namespace":
			namespaces = append(namespaces, as[corev1.Namespace](t, object))
		}
	}
	forest, index := hierarchy.NewForest(spaces), match.NewIndex(templates...)
	var populated []string
	for _, ns := range namespaces {
		ns, err := forest.Placed(ns)
		require.NoError(t, err)
		declared := populate.Declare(render.NewCache(), ns, index.Match(ns), populate.Inputs{})
		require.Empty(t, declared.Broken)
		for _, object := range declared.Objects {
			object.SetLabels(nil)
			populated = append(populated, written(t, object.Object))
		}
	}
	flat, err := tree.FlatObjects()
	require.NoError(t, err)
	var flattened []string
	for _, object := range flat {
		flattened = append(flattened, written(t, object.Object))
	}
	require.ElementsMatch(t, flattened, populated)
	require.Contains(t, strings.Join(populated, "\n"), "$(NAMESPACE)$$(CREATOR)")
}

func as[T any](t *testing.T, object *unstructured.Unstructured) *T {
	t.Helper()
	typed := new(T)
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed))
	return typed
}

func written(t *testing.T, fields map[string]any) string {
	t.Helper()
	data, err := json.Marshal(fields)
	require.NoError(t, err)
	return string(data)
}

func space(name, parent string) *v1alpha1.PolicySpace {
	return &v1alpha1.PolicySpace{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PolicySpaceSpec{Parent: parent},
	}
}

func TestForestFindsAncestorsAndDescendants(t *testing.T) {
	t.Parallel()
	forest := hierarchy.NewForest([]*v1alpha1.PolicySpace{
		space("root", ""), space("a", "root"), space("b", "a"), space("c", "a"),
		space("lost", "gone"), space("x", "y"), space("y", "z"), space("z", "x"), space("below-cycle", "x"),
	})
	for name, want := range map[string]struct{ path, err string }{
		"root":    {path: "root"},
		"b":       {path: "root/a/b"},
		"nothing": {err: "policyspace nothing does not exist: create it"},
		"lost": {
			err: "policyspace lost is below policyspace gone, which does not exist: create it, or choose another parent",
		},
		"y":           {err: "policyspace y is its own ancestor: change the parent of one of its ancestors"},
		"below-cycle": {err: "policyspace below-cycle is its own ancestor: change the parent of one of its ancestors"},
	} {
		lineage, err := forest.Lineage(name)
		if want.err != "" {
			require.EqualError(t, err, want.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want.path, hierarchy.Path(lineage))
	}
	require.Equal(t, map[string]bool{"a": true, "b": true, "c": true}, forest.Below("a"))
	require.Equal(t, map[string]bool{"x": true, "y": true, "z": true, "below-cycle": true}, forest.Below("x"))
}

func TestPlacedSetsTheDepthLabels(t *testing.T) {
	t.Parallel()
	forest := hierarchy.NewForest([]*v1alpha1.PolicySpace{space("root", ""), space("a", "root"), space("lost", "gone")})
	key := func(name string) string { return name + ".tree.policy.nstpl.dev/depth" }
	for name, test := range map[string]struct {
		labels, want map[string]string
		broken       bool
	}{
		"a namespace without a policyspace does not change": {
			labels: map[string]string{"x": "y"}, want: map[string]string{"x": "y"},
		},
		"a namespace in a policyspace gets a label for each ancestor": {
			labels: map[string]string{v1alpha1.PolicySpaceLabel: "a"},
			want:   map[string]string{v1alpha1.PolicySpaceLabel: "a", key("a"): "1", key("root"): "2"},
		},
		"a namespace that left its policyspace loses the labels": {labels: map[string]string{
			key("a"): "1", key("root"): "2",
		}, want: map[string]string{}},
		"a namespace that moves up loses the labels below": {labels: map[string]string{
			v1alpha1.PolicySpaceLabel: "root", key("a"): "1", key("root"): "2",
		}, want: map[string]string{v1alpha1.PolicySpaceLabel: "root", key("root"): "1"}},
		"a namespace keeps its labels while its policyspace does not exist": {
			labels: map[string]string{v1alpha1.PolicySpaceLabel: "gone", key("a"): "1"},
			want:   map[string]string{v1alpha1.PolicySpaceLabel: "gone", key("a"): "1"}, broken: true,
		},
		"a namespace keeps its labels while an ancestor does not exist": {
			labels: map[string]string{v1alpha1.PolicySpaceLabel: "lost", key("a"): "1"},
			want:   map[string]string{v1alpha1.PolicySpaceLabel: "lost", key("a"): "1"}, broken: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: test.labels}}
			before := fmt.Sprint(test.labels)
			placed, err := forest.Placed(ns)
			require.Equal(t, test.broken, err != nil)
			require.Equal(t, test.want, placed.Labels)
			require.Equal(t, before, fmt.Sprint(ns.Labels), "Placed does not change the namespace")
		})
	}
}

// Fields that the API server or a controller would change are compiled as they will be in the cluster.
func TestCompileSetsDefaults(t *testing.T) {
	t.Parallel()
	var got []string
	for _, object := range compile(t, fstest.MapFS{
		"role.yaml": {Data: []byte("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: all}, " +
			"aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}, rules: []}")},
		"binding.yaml": {Data: []byte("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, " +
			"metadata: {name: all}, roleRef: {kind: ClusterRole, name: all}, subjects: [{kind: User, name: ann}, " +
			"{kind: ServiceAccount, namespace: ns, name: sa}]}")},
	}) {
		if strings.HasPrefix(object.GetKind(), "Cluster") {
			object.SetLabels(nil)
			got = append(got, written(t, object.Object))
		}
	}
	require.Equal(t, []string{
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"all"},` +
			`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"all"},` +
			`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"ann"},` +
			`{"kind":"ServiceAccount","name":"sa","namespace":"ns"}]}`,
		`{"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]},` +
			`"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"all"}}`,
	}, got)
}

// The output of kubectl get has a spec of namespaces, which the API server sets.
func TestCompileDropsTheSpecOfNamespaces(t *testing.T) {
	t.Parallel()
	for _, object := range compile(t, fstest.MapFS{
		"a/namespace.yaml": {Data: []byte("{apiVersion: v1, kind: Namespace, metadata: {name: a, uid: x}, " +
			"spec: {finalizers: [kubernetes]}, status: {phase: Active}}")},
	}) {
		if object.GetKind() == "Namespace" {
			require.NotContains(t, object.Object, "spec")
			require.NotContains(t, object.Object, "status")
			require.Empty(t, object.GetUID())
		}
	}
}

// An apply does not change a field that is not declared, so an existing object would keep what it grants.
func TestCompileDeclaresThatNothingIsGranted(t *testing.T) {
	t.Parallel()
	const group = "apiVersion: rbac.authorization.k8s.io/v1, metadata: {name: ops}"
	const toView = group + ", roleRef: {kind: ClusterRole, name: view}"
	for name, test := range map[string]struct{ path, file, field string }{
		"no rules":            {"a.yaml", "{kind: ClusterRole, " + group + "}", "rules"},
		"null rules":          {"a.yaml", "{kind: ClusterRole, " + group + ", rules: null}", "rules"},
		"empty rules":         {"a.yaml", "{kind: ClusterRole, " + group + ", rules: []}", "rules"},
		"no subjects":         {"a.yaml", "{kind: ClusterRoleBinding, " + toView + "}", "subjects"},
		"empty subjects":      {"a.yaml", "{kind: ClusterRoleBinding, " + toView + ", subjects: []}", "subjects"},
		"a Role":              {"n/a.yaml", "{kind: Role, " + group + "}", "rules"},
		"a RoleBinding":       {"n/a.yaml", "{kind: RoleBinding, " + toView + ", subjects: []}", "subjects"},
		"an inherited object": {"a.yaml", "{kind: RoleBinding, " + toView + "}", "subjects"},
	} {
		files := fstest.MapFS{
			"n/n.yaml": {Data: []byte("{apiVersion: v1, kind: Namespace, metadata: {name: n}}")},
			test.path:  {Data: []byte(test.file)},
		}
		declared := compile(t, files)
		for _, template := range declared {
			for _, raw := range as[v1alpha1.NamespaceTemplate](t, template).Spec.Templates {
				object := &unstructured.Unstructured{}
				require.NoError(t, object.UnmarshalJSON(raw.Raw))
				declared = append(declared, object)
			}
		}
		flat, err := load(t, files).Tree.FlatObjects()
		require.NoError(t, err)
		found := 0
		for _, object := range append(declared, flat...) {
			if strings.HasSuffix(object.GetName(), "ops") {
				require.Equal(t, []any{}, object.Object[test.field], name)
				found++
			}
		}
		require.Positive(t, found, name)
	}
}
