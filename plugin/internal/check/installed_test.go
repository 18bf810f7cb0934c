package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// healthy returns the facts of an installation without problems.
func healthy(t *testing.T) *after {
	t.Helper()
	a := &after{common: installed(t), plugin: "v1.2.3", own: map[string]fact[[]*ownObject]{}}
	a.lease.value = leaseOf("v1.2.3", time.Second)
	return a
}

func TestDefinitions(t *testing.T) {
	t.Parallel()
	templates := ref{kind: definitionKind, name: "namespacetemplates.policy.nstpl.dev"}
	for name, test := range map[string]struct {
		change          func(t *testing.T, stored *fact[*unstructured.Unstructured])
		status          Status
		message, remedy string
	}{
		"of this version": {
			func(*testing.T, *fact[*unstructured.Unstructured]) {}, OK,
			"8 CustomResourceDefinitions of this plugin's version installed", "",
		},
		"missing": {
			func(_ *testing.T, stored *fact[*unstructured.Unstructured]) { stored.err = errNotFound }, Failure,
			"definitions are missing: customresourcedefinition.apiextensions.k8s.io/namespacetemplates",
			"apply install.yaml",
		},
		"forbidden": {
			func(_ *testing.T, stored *fact[*unstructured.Unstructured]) { stored.err = errForbidden }, Unknown,
			"you may not get customresourcedefinitions", "administrator",
		},
		"not established": {
			func(t *testing.T, stored *fact[*unstructured.Unstructured]) {
				t.Helper()
				unstructured.RemoveNestedField(stored.value.Object, "status")
			}, Failure, "not established", "kubectl describe",
		},
		"being deleted": {
			func(_ *testing.T, stored *fact[*unstructured.Unstructured]) {
				stored.value.SetDeletionTimestamp(&metav1.Time{Time: now})
			}, Failure, "being deleted, with all of their objects", "docs/operations.md",
		},
		"of another version": {
			func(t *testing.T, stored *fact[*unstructured.Unstructured]) {
				t.Helper()
				require.NoError(t, unstructured.SetNestedStringSlice(stored.value.Object, []string{"old"}, "spec", "names",
					"shortNames"))
			}, Warning, "differ from those of this plugin's version, v1.2.3", "the plugin of the same release",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := healthy(t)
			stored := a.stored[templates]
			test.change(t, &stored)
			a.stored[templates] = stored
			requireResult(t, checkDefinitions(a), test.status, test.message, test.remedy)
		})
	}
}

// The manifests would remove what the values of a Helm release set.
func TestWhatHelmInstalledIsUpgradedWithHelm(t *testing.T) {
	t.Parallel()
	a := healthy(t)
	for _, object := range a.stored {
		object.value.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "policies"})
	}
	a.stored[operatorRole] = fact[*unstructured.Unstructured]{err: errNotFound}
	requireResult(t, checkObjects(a), Failure, "nstpl-operator not found",
		"run 'helm upgrade policies CHART --install --namespace nstpl-system --take-ownership' with the chart of the "+
			"operator's release and your values")
	a.stored[operatorDeployment] = fact[*unstructured.Unstructured]{err: errNotFound}
	require.Contains(t, checkDeployment(a).Remedy, "helm upgrade")
	require.Contains(t, a.syncRemedy(), "and your values, and components.sync set to true")
}

func TestInstalledObjects(t *testing.T) {
	t.Parallel()
	role := func(a *after) *unstructured.Unstructured { return a.stored[operatorRole].value }
	guard := ref{
		kind: admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"),
		name: "nstpl-namespace-guard",
	}
	guardBinding := ref{kind: guard.kind.GroupVersion().WithKind("ValidatingAdmissionPolicyBinding"), name: guard.name}
	bound := ref{kind: rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"), name: "nstpl-initialize"}
	for name, test := range map[string]struct {
		change          func(t *testing.T, a *after)
		status          Status
		message, remedy string
	}{
		"as installed": {func(*testing.T, *after) {}, OK, "66 objects of the installation found", ""},
		"missing": {func(_ *testing.T, a *after) {
			a.stored[operatorRole] = fact[*unstructured.Unstructured]{err: errNotFound}
		}, Failure, "clusterrole.rbac.authorization.k8s.io/nstpl-operator not found", "apply install.yaml"},
		"forbidden": {func(_ *testing.T, a *after) {
			a.stored[operatorRole] = fact[*unstructured.Unstructured]{err: errForbidden}
		}, Unknown, "you may not get clusterroles", "administrator"},
		"a right is removed": {func(t *testing.T, a *after) {
			t.Helper()
			require.NoError(t, unstructured.SetNestedSlice(role(a).Object, nil, "rules"))
		}, Warning, "1 object changed since the installation: clusterrole", "on purpose"},
		"a subject is added": {func(t *testing.T, a *after) {
			t.Helper()
			subjects, _, _ := unstructured.NestedSlice(a.stored[bound].value.Object, "subjects")
			require.NoError(t, unstructured.SetNestedSlice(a.stored[bound].value.Object,
				append([]any{map[string]any{"kind": "User", "name": "ci"}}, subjects...), "subjects"))
		}, OK, "66 objects", ""},
		"a policy with defaults": {func(t *testing.T, a *after) {
			t.Helper()
			constraints, _, _ := unstructured.NestedMap(a.stored[guard].value.Object, "spec", "matchConstraints")
			constraints["matchPolicy"], constraints["namespaceSelector"] = "Equivalent", map[string]any{}
			rules, _ := constraints["resourceRules"].([]any)
			rules[0].(map[string]any)["scope"] = "*" //nolint:forcetypeassert // of the manifests
			require.NoError(t, unstructured.SetNestedMap(a.stored[guard].value.Object, constraints,
				"spec", "matchConstraints"))
		}, OK, "66 objects", ""},
		"a condition is added to a policy": {func(t *testing.T, a *after) {
			t.Helper()
			spec, _, _ := unstructured.NestedMap(a.stored[guard].value.Object, "spec")
			conditions, _ := spec["matchConditions"].([]any)
			spec["matchConditions"] = append(conditions, map[string]any{"name": "off", "expression": "false"})
			require.NoError(t, unstructured.SetNestedMap(a.stored[guard].value.Object, spec, "spec"))
		}, Warning, "validatingadmissionpolicy.admissionregistration.k8s.io/nstpl-namespace-guard", "on purpose"},
		"a binding selects fewer namespaces": {func(t *testing.T, a *after) {
			t.Helper()
			require.NoError(t, unstructured.SetNestedStringMap(a.stored[guardBinding].value.Object,
				map[string]string{"guarded": "true"}, "spec", "matchResources", "namespaceSelector", "matchLabels"))
		}, Warning, "validatingadmissionpolicybinding.admissionregistration.k8s.io/nstpl-namespace-guard", "purpose"},
		"of another version": {func(t *testing.T, a *after) {
			t.Helper()
			require.NoError(t, unstructured.SetNestedSlice(role(a).Object, nil, "rules"))
			a.lease.value = leaseOf("v1.2.4", 0)
		}, OK, "66 objects", ""},
		"other kinds that templates may declare": {func(t *testing.T, a *after) {
			t.Helper()
			kinds := ref{kind: operatorRole.kind, name: policyKinds}
			require.NoError(t, unstructured.SetNestedSlice(a.stored[kinds].value.Object, nil, "rules"))
		}, OK, "66 objects", ""},
		"before 1.36": {func(_ *testing.T, a *after) {
			a.server.Version = "v1.35.4"
			for _, object := range a.manifests {
				if isMutatingPolicy(object) {
					a.stored[refOf(object)] = fact[*unstructured.Unstructured]{err: errNotFound}
				}
			}
		}, OK, "62 objects", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := healthy(t)
			test.change(t, a)
			requireResult(t, checkObjects(a), test.status, test.message, test.remedy)
		})
	}
	a := healthy(t)
	for object := range a.stored {
		a.stored[object] = fact[*unstructured.Unstructured]{err: errNotFound}
	}
	results := checkObjects(a)
	require.Len(t, results, maxNamed+1)
	require.Contains(t, results[maxNamed].Message, "63 more objects not found")
}

func TestContains(t *testing.T) {
	t.Parallel()
	parse := func(text string) any {
		value := &unstructured.Unstructured{}
		require.NoError(t, value.UnmarshalJSON([]byte(`{"apiVersion": "v1", "kind": "X", "value": `+text+`}`)))
		return jsonOf(value.Object["value"])
	}
	for name, test := range map[string]struct {
		value, wanted string
		want          bool
	}{
		"equal":                         {`{"a": [1, "b"]}`, `{"a": [1, "b"]}`, true},
		"more fields":                   {`{"a": 1, "b": 2}`, `{"a": 1}`, true},
		"a field less":                  {`{"a": 1}`, `{"a": 1, "b": 2}`, false},
		"another value":                 {`{"a": 2}`, `{"a": 1}`, false},
		"more items, in another order":  {`["c", "b", "a"]`, `["a", "b"]`, true},
		"an item less":                  {`["a"]`, `["a", "b"]`, false},
		"spaces":                        {`"a\n\n  ? b"`, `"a ? b"`, true},
		"an empty list that is omitted": {`{}`, `{"a": []}`, true},
		"an empty map that is omitted":  {`{}`, `{"a": {}}`, true},
		"another type":                  {`"a"`, `{"a": 1}`, false},
	} {
		require.Equal(t, test.want, contains(parse(test.value), parse(test.wanted)), name)
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	a := healthy(t)
	requireResult(t, []Result{checkVersions(a)}, OK, "plugin and operator have version v1.2.3", "")
	a.lease.value = leaseOf("v1.3.0", 0)
	requireResult(t, []Result{checkVersions(a)}, Warning, "the plugin has version v1.2.3, and the operator v1.3.0",
		"use the plugin of version v1.3.0")
	delete(a.lease.value.Labels, v1alpha1.VersionLabel)
	requireResult(t, []Result{checkVersions(a)}, Unknown, "has not recorded its version", "same version")
	a.lease.value, a.lease.err = nil, errForbidden
	requireResult(t, []Result{checkVersions(a)}, Unknown, "you may not get the lease nstpl-operator", "administrator")
	a.lease.err = errNotFound
	requireResult(t, []Result{checkVersions(a)}, Unknown, "no operator has recorded it", "kubectl get pods")
}
