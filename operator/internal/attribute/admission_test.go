package attribute

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// rule returns a rule about the label env.
func rule(role string, guardDeletion bool, values ...string) v1alpha1.AttributeRule {
	return v1alpha1.AttributeRule{
		AttributeKind: v1alpha1.LabelAttribute, AttributeName: "env", ProtectedValues: values,
		RoleRef: v1alpha1.RoleReference{Kind: "ClusterRole", Name: role}, GuardDeletion: guardDeletion,
	}
}

func clusterRule(name string, rule v1alpha1.AttributeRule) v1alpha1.ClusterProtectedAttribute {
	return v1alpha1.ClusterProtectedAttribute{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "c"}, AttributeRule: rule,
	}
}

func namespaceRule(namespace, name string, rule v1alpha1.AttributeRule) v1alpha1.ProtectedAttribute {
	return v1alpha1.ProtectedAttribute{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "n"}, AttributeRule: rule,
	}
}

// labeled returns an object with labels and annotations.
func labeled(labels, annotations map[string]string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetLabels(labels)
	object.SetAnnotations(annotations)
	return object
}

func env(value string) *unstructured.Unstructured {
	return labeled(map[string]string{"env": value}, nil)
}

func owned(object *unstructured.Unstructured) *unstructured.Unstructured {
	object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "1"}})
	return object
}

// write returns a request of jane for the object team-a/web.
func write(kind, resource string, old, updated *unstructured.Unstructured) *webhook.Request {
	request := &webhook.Request{Object: updated, OldObject: old}
	request.Operation = admissionv1.Update
	switch {
	case old == nil:
		request.Operation = admissionv1.Create
	case updated == nil:
		request.Operation = admissionv1.Delete
	}
	request.Namespace, request.Name = "team-a", "web"
	request.Kind = metav1.GroupVersionKind{Version: "v1", Kind: kind}
	request.Resource = metav1.GroupVersionResource{Version: "v1", Resource: resource}
	request.UserInfo = authenticationv1.UserInfo{Username: "jane", Groups: []string{"devs"}}
	return request
}

func configMap(old, updated *unstructured.Unstructured) *webhook.Request {
	return write("ConfigMap", "configmaps", old, updated)
}

func eviction() *webhook.Request {
	request := write("Eviction", "pods", nil, labeled(nil, nil))
	request.SubResource = "eviction"
	return request
}

func TestDecide(t *testing.T) {
	t.Parallel()
	namespace := write("Namespace", "namespaces", labeled(nil, nil), env("prod"))
	namespace.Namespace, namespace.Name = "team-a", "team-a"
	cluster := []v1alpha1.ClusterProtectedAttribute{clusterRule("env", rule("prod-deployer", false))}
	inTeamA := []v1alpha1.ProtectedAttribute{namespaceRule("team-a", "env", rule("deployer", false))}
	guarded := []v1alpha1.ClusterProtectedAttribute{clusterRule("env", rule("prod-deployer", true))}
	someValues := []v1alpha1.ClusterProtectedAttribute{clusterRule("env", rule("prod-deployer", false, "prod"))}
	testRule := rule("tester", false, "test")
	const denied = `user "jane" may not `
	for name, test := range map[string]struct {
		request    *webhook.Request
		pod        *unstructured.Unstructured
		cluster    []v1alpha1.ClusterProtectedAttribute
		namespaced []v1alpha1.ProtectedAttribute
		// roles are those that jane holds, each as namespace/name.
		roles []string
		// want is the message of the denial, or empty if the request is allowed.
		want string
	}{
		"sets the label without a role": {
			request: configMap(nil, env("prod")), cluster: cluster,
			want: denied + `set label env of ConfigMap team-a/web to "prod": ` +
				`ask for a binding to ClusterRole prod-deployer (ClusterProtectedAttribute env)`,
		},
		"sets the label with the role": {
			request: configMap(nil, env("prod")), cluster: cluster, roles: []string{"team-a/prod-deployer"},
		},
		"sets the label with the role in another namespace": {
			request: configMap(nil, env("prod")), cluster: cluster, roles: []string{"team-b/prod-deployer"},
			want: denied + `set label env`,
		},
		"sets another label": {
			request: configMap(nil, labeled(map[string]string{"app": "web"}, nil)), cluster: cluster,
		},
		"sets an annotation of the same name": {
			request: configMap(nil, labeled(nil, map[string]string{"env": "prod"})), cluster: cluster,
		},
		"changes the label": {
			request: configMap(env("dev"), env("prod")), cluster: cluster,
			want: denied + `change label env of ConfigMap team-a/web from "dev" to "prod"`,
		},
		"removes the label": {
			request: configMap(env("prod"), labeled(nil, nil)), cluster: cluster,
			want: denied + `remove label env of ConfigMap team-a/web`,
		},
		"keeps the label": {request: configMap(env("prod"), env("prod")), cluster: cluster},
		"a value that no rule includes": {
			request: configMap(nil, env("dev")), cluster: someValues, roles: []string{"team-a/prod-deployer"},
			want: denied + `set label env of ConfigMap team-a/web to "dev"`,
		},
		"a namespace's rule": {
			request: configMap(nil, env("prod")), namespaced: inTeamA, want: "ClusterRole deployer",
		},
		"a namespace's rule, with its role": {
			request: configMap(nil, env("prod")), cluster: cluster, namespaced: inTeamA,
			roles: []string{"team-a/deployer"},
		},
		"another namespace's rule": {
			request:    configMap(nil, env("prod")),
			namespaced: []v1alpha1.ProtectedAttribute{namespaceRule("team-b", "env", rule("deployer", false))},
		},
		"deletes an object with the label": {request: configMap(env("prod"), nil), cluster: cluster},
		"deletes an object whose deletion is guarded": {
			request: configMap(env("prod"), nil), cluster: guarded,
			want: denied + `remove label env of ConfigMap team-a/web`,
		},
		"adds an owner to an object whose deletion is guarded": {
			request: configMap(env("prod"), owned(env("prod"))), cluster: guarded,
			want: denied + `remove label env of ConfigMap team-a/web`,
		},
		"adds an owner to an object whose deletion is guarded, with the role": {
			request: configMap(env("prod"), owned(env("prod"))), cluster: guarded, roles: []string{"team-a/prod-deployer"},
		},
		"keeps the owner of an object whose deletion is guarded": {
			request: configMap(owned(env("prod")), owned(env("prod"))), cluster: guarded,
		},
		"adds an owner to an object, deletion not guarded": {
			request: configMap(env("prod"), owned(env("prod"))), cluster: cluster,
		},
		"deletes an object whose deletion is guarded, with the role": {
			request: configMap(env("prod"), nil), cluster: guarded, roles: []string{"team-a/prod-deployer"},
		},
		"evicts a pod whose deletion is guarded": {
			request: eviction(), pod: env("prod"), cluster: guarded,
			want: denied + `remove label env of Pod team-a/web`,
		},
		"evicts a pod whose deletion is guarded, with the role": {
			request: eviction(), pod: env("prod"), cluster: guarded, roles: []string{"team-a/prod-deployer"},
		},
		"binds a pod to a node and replaces the label, with the role for the new value": {
			request: write("Binding", "pods", nil, env("test")), pod: env("prod"),
			cluster: []v1alpha1.ClusterProtectedAttribute{
				clusterRule("env", rule("prod-deployer", false, "prod")), clusterRule("test", testRule),
			},
			roles: []string{"team-a/tester"}, want: denied + `change label env of Binding team-a/web from "prod" to "test"`,
		},
		"binds a pod to a node and sets the label, with the role for the value": {
			request: write("Binding", "pods", nil, env("test")), pod: labeled(map[string]string{"app": "web"}, nil),
			cluster: []v1alpha1.ClusterProtectedAttribute{clusterRule("test", testRule)}, roles: []string{"team-a/tester"},
		},
		"evicts a pod without the label":     {request: eviction(), pod: labeled(nil, nil), cluster: guarded},
		"evicts a pod that does not exist":   {request: eviction(), cluster: guarded},
		"evicts a pod, deletion not guarded": {request: eviction(), cluster: cluster},
		"labels a Namespace, with the role in that namespace only": {
			request: namespace, cluster: cluster, roles: []string{"team-a/prod-deployer"},
			want: denied + `set label env of Namespace team-a to "prod"`,
		},
		"labels a Namespace, with the role in the cluster": {
			request: namespace, cluster: cluster, roles: []string{"/prod-deployer"},
		},
		"labels a Namespace that has a rule": {request: namespace, namespaced: inTeamA},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := decide(test.request, test.pod, attributes.NewRules(test.cluster, test.namespaced),
				func(who attributes.Requester, role v1alpha1.RoleReference, namespace string) bool {
					require.Equal(t, attributes.Requester{Name: "jane", Groups: []string{"devs"}}, who)
					return slices.Contains(test.roles, namespace+"/"+role.Name)
				})
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorAs(t, err, new(*webhook.Denied))
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestDecideNamesEveryViolation(t *testing.T) {
	t.Parallel()
	owner := rule("owner-setter", false)
	owner.AttributeKind, owner.AttributeName = v1alpha1.AnnotationAttribute, "owner"
	rules := attributes.NewRules([]v1alpha1.ClusterProtectedAttribute{
		clusterRule("env", rule("prod-deployer", false)), clusterRule("owner", owner),
	}, nil)
	request := configMap(nil, labeled(map[string]string{"env": "prod"}, map[string]string{"owner": "a"}))
	err := decide(request, nil, rules, func(attributes.Requester, v1alpha1.RoleReference, string) bool { return false })
	require.ErrorContains(t, err, "label env")
	require.ErrorContains(t, err, "annotation owner")
}

// The rules are in the cache, and no requester holds a role. Validate must not need bindings or the API server where it
// allows a request.
func TestValidateAllowsWithoutALookup(t *testing.T) {
	t.Parallel()
	rules := attributes.NewRules([]v1alpha1.ClusterProtectedAttribute{
		clusterRule("env", rule("prod-deployer", true)),
	}, nil)
	exempt := Exempt{Users: []string{"operator"}, Groups: []string{"controllers"}}
	by := func(request *webhook.Request, name string, groups ...string) *webhook.Request {
		request.UserInfo = authenticationv1.UserInfo{Username: name, Groups: groups}
		return request
	}
	mirror := labeled(map[string]string{"env": "prod"}, map[string]string{corev1.MirrorPodAnnotationKey: "x"})
	recovering := write("Pod", "pods", env("prod"), nil)
	recovering.Namespace = metav1.NamespaceSystem
	marked := labeled(nil, map[string]string{Marker("earlier"): "x"})
	for name, test := range map[string]struct {
		request *webhook.Request
		rules   *attributes.Rules
	}{
		"an exempt user":              {by(configMap(nil, env("prod")), "operator"), rules},
		"a user of an exempt group":   {by(configMap(nil, env("prod")), "jane", "devs", "controllers"), rules},
		"a mirror pod":                {by(write("Pod", "pods", nil, mirror), "kubelet", "system:nodes"), rules},
		"a deletion for recovery":     {recovering, rules},
		"no rules":                    {configMap(nil, env("prod")), attributes.NewRules(nil, nil)},
		"no protected attribute":      {configMap(nil, labeled(nil, nil)), rules},
		"the marker without revision": {configMap(nil, marked), rules},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			admission := &Admission{rules: cacheOf(test.rules), exempt: exempt}
			require.NoError(t, admission.Validate(t.Context(), test.request))
		})
	}
}

func TestValidateDeniesTheMarkerToEveryUser(t *testing.T) {
	t.Parallel()
	rules := attributes.NewRules([]v1alpha1.ClusterProtectedAttribute{
		clusterRule("env", rule("prod-deployer", false)),
	}, nil)
	for name, test := range map[string]struct {
		user, revision, marker string
		denied                 bool
	}{
		"a user":                 {"jane", "rev1", "rev1", true},
		"an exempt user":         {"operator", "rev1", "rev1", true},
		"of another revision":    {"operator", "rev2", "rev1", false},
		"of another's webhook":   {"operator", "", "rev1", false},
		"of no revision at all":  {"operator", "", "", false},
		"of a revision, no mark": {"operator", "rev1", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := write("Namespace", "namespaces", labeled(nil, nil),
				labeled(nil, map[string]string{Marker(test.marker): "asked"}))
			request.UserInfo.Username, request.Revision = test.user, test.revision
			admission := &Admission{rules: cacheOf(rules), exempt: Exempt{Users: []string{"operator"}}}
			err := admission.Validate(t.Context(), request)
			if !test.denied {
				require.NoError(t, err)
				return
			}
			require.ErrorAs(t, err, new(*webhook.Denied))
			require.ErrorContains(t, err, Marker("rev1"), "Enforcement recognizes the denial by the marker")
		})
	}
}

func TestRuleDenialAndWarnings(t *testing.T) {
	t.Parallel()
	cluster := []v1alpha1.ClusterProtectedAttribute{clusterRule("env", rule("prod-deployer", false))}
	inTeamA := namespaceRule("team-a", "mine", rule("deployer", false))
	ofCluster := attributes.Rule{Object: "env", AttributeRule: rule("prod-deployer", false)}
	ofTeamA := attributes.Rule{Namespace: "team-a", Object: "mine", AttributeRule: rule("deployer", false)}

	require.EqualError(t, denyPermission("jane", ofTeamA, ofCluster),
		`ProtectedAttribute team-a/mine would permit ClusterRole deployer to change label env, which `+
			`ClusterProtectedAttribute env protects: user "jane" needs the verb create on `+
			`clusterprotectedattributes.policy.nstpl.dev to write this rule (nstpl:attribute-rule)`)

	earlier := attributes.NewRules(nil, []v1alpha1.ProtectedAttribute{inTeamA})
	require.Equal(t, []string{
		"ProtectedAttribute team-a/mine remains in force and permits ClusterRole deployer to change label env, although " +
			"its author was not required to have the right to create ClusterProtectedAttributes (such rules: 1)",
	}, earlierRulesWarning(ofCluster, earlier))
	require.Empty(t, earlierRulesWarning(ofTeamA, earlier), "a namespace's rule")
	require.Empty(t, earlierRulesWarning(ofCluster, attributes.NewRules(nil, nil)), "no earlier rules")
	require.Empty(t,
		earlierRulesWarning(ofCluster, attributes.NewRules(cluster, []v1alpha1.ProtectedAttribute{inTeamA})),
		"the attribute is protected already")
}
