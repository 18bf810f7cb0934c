package vetting

import (
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/attribute"
	"nstpl.dev/nstpl/operator/internal/bindings"
	"nstpl.dev/nstpl/operator/internal/revisions"
	"nstpl.dev/nstpl/operator/internal/selection"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/test/controlplane"
)

// rights are the rights of the test's users in all namespaces.
const rights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: author}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [create, patch]}
- {apiGroups: [""], resources: [resourcequotas], verbs: [create]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [roles, rolebindings], verbs: [create, patch]}
- {apiGroups: [example.com], resources: [things], verbs: [create, patch]}
- {apiGroups: [""], resources: [pods], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: binds-edit}
rules:
- {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [edit], verbs: [bind]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: binds-all}
rules:
- {apiGroups: [rbac.authorization.k8s.io], resources: [roles, clusterroles], verbs: [bind]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [roles], verbs: [escalate]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pods}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: operator}
rules:
- {apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], verbs: [get]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings], verbs: [list, watch, create, patch, delete]}
---
apiVersion: v1
kind: Namespace
metadata: {name: nstpl-trial}
---
apiVersion: v1
kind: Namespace
metadata: {name: nstpl-system}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: nstpl-selectors, namespace: nstpl-system}
---
apiVersion: v1
kind: Service
metadata: {name: fixed, namespace: default}
spec: {type: NodePort, clusterIP: 10.96.0.77, ports: [{port: 80, nodePort: 30123}]}
---
apiVersion: policy.nstpl.dev/v1alpha1
kind: NamespaceTemplate
metadata: {name: z-other}
spec:
  namespaces: {labelSelector: {}}
  templates:
  - apiVersion: rbac.authorization.k8s.io/v1
    kind: Role
    metadata: {name: shared}
    rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
---
apiVersion: policy.nstpl.dev/v1alpha1
kind: NamespaceTemplate
metadata: {name: z-labels}
spec:
  namespaces: {labelSelector: {matchLabels: {team: z}}}
  namespaceMetadata: {labels: {set: x}}
---
apiVersion: policy.nstpl.dev/v1alpha1
kind: NamespaceTemplate
metadata: {name: earlier, annotations: {policy/namespace-template-apply: disable}}
spec:
  namespaces: {labelSelector: {matchLabels: {team: a}}}
  templates:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: overridden}}
  - apiVersion: rbac.authorization.k8s.io/v1
    kind: RoleBinding
    metadata: {name: binds}
    roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: bound}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: escalates}
rules:
- {apiGroups: [rbac.authorization.k8s.io], resources: [roles], verbs: [escalate]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: changes-earlier}
rules:
- {apiGroups: [policy.nstpl.dev], resources: [namespacetemplates], resourceNames: [earlier], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: deletes-configmaps}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [delete]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: left, namespace: default, labels: {policy/namespace-template-name: updated}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: grant, namespace: default, labels: {policy/namespace-template-name: reused}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: pods}
`

// suite calls the validator, which uses a real API server.
type suite struct {
	validator webhook.Validator
	// as returns the validator with the rights of a user in place of the administrator's.
	as func(user string) suite
}

func newSuite(t *testing.T) suite {
	t.Helper()
	cluster := controlplane.New(t)
	kubectl := func(stdin string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), cluster.Kubectl,
			append([]string{"--kubeconfig", cluster.Kubeconfig}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	kubectl("", "apply", "--server-side", "-k", "../../../manifests/crd")
	kubectl("", "wait", "--for=condition=Established", "--timeout=30s", "crd/namespacetemplates.policy.nstpl.dev")
	kubectl(rights, "apply", "-f", "-")
	for user, role := range map[string]string{"author": "author", "binder": "binds-edit", "powerful": "binds-all",
		"operator":  "operator",
		"escalator": "escalates", "changer": "changes-earlier", "deleter": "deletes-configmaps"} {
		kubectl("", "create", "clusterrolebinding", user, "--clusterrole="+role, "--user="+user)
	}
	kubectl("", "create", "clusterrolebinding", "also-authors", "--clusterrole=author", "--user=binder",
		"--user=powerful", "--user=viewer",
		"--user=escalator", "--user=changer", "--user=deleter")
	kubectl("", "create", "clusterrolebinding", "viewer", "--clusterrole=view", "--user=viewer")
	require.Eventually(t, func() bool { // until the API server has them
		return exec.CommandContext(t.Context(), cluster.Kubectl, "--kubeconfig", cluster.Kubeconfig, "auth", "can-i",
			"list", "pods", "--as=viewer").Run() == nil
	}, time.Minute, 50*time.Millisecond)

	config := cluster.RESTConfig()
	http, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	mapper, err := apiutil.NewDynamicRESTMapper(config, http)
	require.NoError(t, err)
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	reader, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	// not started, so that rules are read as they are needed
	informers, err := cache.New(config, cache.Options{Scheme: scheme})
	require.NoError(t, err)
	templates, err := cache.New(config, cache.Options{Scheme: scheme})
	require.NoError(t, err)
	bare, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	inForce := revisions.NewReader(bare.AppsV1().ControllerRevisions(v1alpha1.OperatorNamespace))
	outlines, err := NewOutlines(t.Context(), templates, inForce)
	require.NoError(t, err)
	go func() { _ = templates.Start(t.Context()) }() // it ends without an error when the test ends
	attributes, err := attribute.NewAdmission(t.Context(), attribute.Sources{
		Cache: informers, Live: reader, Bindings: bindings.NewWatch(t.Context(), bare.RbacV1().RESTClient()),
	}, attribute.Exempt{})
	require.NoError(t, err)
	as := func(user string) suite {
		config := rest.CopyConfig(config)
		config.Impersonate.UserName = user
		clients, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		objects, err := metadata.NewForConfig(config)
		require.NoError(t, err)
		return suite{validator: NewAdmission(Options{
			Mapper: mapper, Clients: clients, Metadata: objects, Outlines: outlines, Live: reader,
			Attributes: attributes,
			Selectors: selection.NewAdmission(selection.Options{
				ConfigMaps: bare.CoreV1().ConfigMaps(v1alpha1.OperatorNamespace),
				Reviews:    bare.AuthorizationV1().SubjectAccessReviews(), Revisions: inForce,
			}),
		})}
	}
	require.Eventually(t, func() bool {
		role := &rbacv1.ClusterRole{}
		return reader.Get(t.Context(), client.ObjectKey{Name: "view"}, role) == nil && len(role.Rules) > 0
	}, 30*time.Second, 50*time.Millisecond, "the aggregated ClusterRole view")
	return suite{as("").validator, as}
}

// object reads a template's YAML; a spec alone gets the rest.
func object(t *testing.T, spec string) *unstructured.Unstructured {
	t.Helper()
	fields := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(spec), &fields))
	if fields["namespaces"] == nil {
		fields["namespaces"] = map[string]any{"labelSelector": map[string]any{}}
	}
	data, err := json.Marshal(map[string]any{
		"apiVersion": "policy.nstpl.dev/v1alpha1", "kind": "NamespaceTemplate",
		"metadata": map[string]any{"name": "policies"}, "spec": fields,
	})
	require.NoError(t, err)
	found := &unstructured.Unstructured{}
	require.NoError(t, found.UnmarshalJSON(data))
	return found
}

func (s suite) ask(t *testing.T, user string, old, updated *unstructured.Unstructured) (*webhook.Request, error) {
	t.Helper()
	request := &webhook.Request{Object: updated, OldObject: old}
	request.Request = ctrladmission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Name: "policies", Operation: admissionv1.Create,
		UserInfo: authenticationv1.UserInfo{Username: user, Groups: []string{"system:authenticated"}},
	}}
	if user == "admin" {
		request.UserInfo.Groups = append(request.UserInfo.Groups, "system:masters")
	}
	switch {
	case updated == nil:
		request.Operation = admissionv1.Delete
	case old != nil:
		request.Operation = admissionv1.Update
	}
	return request, s.validator.Validate(t.Context(), request)
}

// A request that waits longer than the API server would is not denied, so the client repeats it.
func testBusyOperator(t *testing.T, s suite) {
	t.Helper()
	validator, _ := s.validator.(*Admission)
	for range maxConcurrentVettings + 1 {
		done, err := validator.compiling.acquire(t.Context(), "admin", true)
		require.NoError(t, err)
		defer done()
	}
	request := &webhook.Request{Object: object(t, configMapNamed("a"))}
	request.Operation, request.UserInfo.Groups = admissionv1.Create, []string{"system:masters"}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	deferred := &webhook.Deferred{}
	require.ErrorAs(t, validator.Validate(ctx, request), &deferred)
	require.Equal(t, "template policies: the operator is too busy to check it: try again (nstpl:busy)", deferred.Message)
	require.Equal(t, webhook.RetryAfter, deferred.After)
}

const (
	binding = "- {apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b}, " +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: KIND, name: NAME}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: author}]}\n"
	role = "- {apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: NAME}, rules: [RULE]}\n"
)

func bindingTo(kind, name string) string {
	return strings.NewReplacer("KIND", kind, "NAME", name).Replace(binding)
}

func configMapNamed(name string) string {
	return "templates: [{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + "}}]"
}

func roleOf(name, rule string) string {
	return strings.NewReplacer("NAME", name, "RULE", rule).Replace(role)
}

const (
	holdsPods = `{apiGroups: [""], resources: [pods], verbs: [get, list]}`
	anything  = `{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}`
	toAdmin   = `{"op": "replace", "path": "/roleRef/name", "value": "cluster-admin"}`
)

func TestAuthorNeedsTheRightsThatATemplateUses(t *testing.T) {
	s := newSuite(t)
	tests := map[string]struct {
		user, spec string
		// want is part of the denial, or empty if the template is allowed.
		want string
	}{
		"what the author may create": {
			"author", "templates: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}]", "",
		},
		"what the author may not create": {
			"author", "templates: [{apiVersion: v1, kind: Secret, metadata: {name: a}}]",
			`"author" may not create or patch secrets`,
		},
		"what an administrator may create": {
			"admin", "templates: [{apiVersion: v1, kind: Secret, metadata: {name: a}}]", "",
		},
		"a broken template": {
			"admin", "templates: [{apiVersion: v1, kind: Secret}]", "spec.templates[0]: metadata.name is missing",
		},
		"a kind that is not served yet, by its plural": {
			"author", "templates: [{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}}]", "",
		},
		"a kind that is not served yet, without the right": {
			"author", "templates: [{apiVersion: example.com/v1, kind: Other, metadata: {name: a}}]",
			"may not create or patch others.example.com",
		},
		"cluster-admin": {
			"author", "templates:\n" + bindingTo("ClusterRole", "cluster-admin"),
			"bind clusterroles.rbac.authorization.k8s.io \"cluster-admin\"",
		},
		"cluster-admin, in an older version": {"author",
			"templates:\n" + strings.Replace(bindingTo("ClusterRole", "cluster-admin"), "/v1,", "/v1beta1,", 1),
			"the cluster serves RoleBinding.rbac.authorization.k8s.io as rbac.authorization.k8s.io/v1, not as rbac.authorization.k8s.io/v1beta1"},
		"cluster-admin, by an administrator": {
			"admin", "templates:\n" + bindingTo("ClusterRole", "cluster-admin"), "",
		},
		"a ClusterRole whose rules are held": {
			"author", "templates:\n" + bindingTo("ClusterRole", "pods"), "",
		},
		"view, whose rules are held": {
			"viewer", "templates:\n" + bindingTo("ClusterRole", "view"), "",
		},
		"edit, whose rules are held in part": {
			"viewer", "templates:\n" + bindingTo("ClusterRole", "edit"),
			"more; user \"viewer\" needs the right to bind",
		},
		"edit, with bind on it": {
			"binder", "templates:\n" + bindingTo("ClusterRole", "edit"), "",
		},
		"admin, with bind on edit": {
			"binder", "templates:\n" + bindingTo("ClusterRole", "admin"),
			`bind clusterroles.rbac.authorization.k8s.io "admin"`,
		},
		"a ClusterRole that does not exist yet": {
			"author", "templates:\n" + bindingTo("ClusterRole", "absent"), `no ClusterRole "absent" yet`,
		},
		"a ClusterRole with an invalid name": {
			"author", "templates:\n" + bindingTo("ClusterRole", "a/../cluster-admin"), "yet",
		},
		"the creator as a ClusterRole": {
			"binder", "templates:\n" + bindingTo("ClusterRole", "$(CREATOR)"),
			"lets other users choose the ClusterRole",
		},
		"the namespace as a ClusterRole": {
			"binder", "templates:\n" + bindingTo("ClusterRole", "$(NAMESPACE)"),
			"lets other users choose the ClusterRole",
		},
		"part of a ClusterRole's name": {
			"binder", "templates:\n" + bindingTo("ClusterRole", "e$(NAMESPACE)"),
			"lets other users choose the ClusterRole",
		},
		"a token, with bind on all": {
			"powerful", "templates:\n" + bindingTo("ClusterRole", "$(NAMESPACE)"), "",
		},
		"a token as a kind": {
			"admin", "templates:\n" + bindingTo("$(CREATOR)", "edit"), `must be ClusterRole or Role`,
		},
		"a Role whose rules are unknown": {
			"author", "templates:\n" + bindingTo("Role", "a"), "is not declared by this template",
		},
		"a Role whose rules are unknown, with bind": {"powerful", "templates:\n" + bindingTo("Role", "a"), ""},
		"a Role whose rules are held": {
			"author", "templates:\n" + roleOf("a", holdsPods) + bindingTo("Role", "a"), "",
		},
		"a Role named by the namespace": {
			"author", "templates:\n" + roleOf("x-$(NAMESPACE)", holdsPods) + bindingTo("Role", "x-$(NAMESPACE)"), "",
		},
		"a Role of another template": {
			"author", "templates:\n" + roleOf("shared", holdsPods) + bindingTo("Role", "shared"),
			"another template may declare Role shared too",
		},
		"a Role that another template binds": {
			"escalator", "templates:\n" + roleOf("bound", anything),
			`template earlier may bind it; user "escalator" needs the right to bind roles`,
		},
		"a Role that another template binds, whose rules are held": {
			"author", "templates:\n" + roleOf("bound", holdsPods), "",
		},
		"a Role that another template binds, with bind": {
			"powerful", "templates:\n" + roleOf("bound", anything), "",
		},
		"a Role that another template may bind": {
			"escalator", "templates:\n" + roleOf("$(NAMESPACE)", anything), `template earlier may bind it`,
		},
		"an object of another template": {
			"author", configMapNamed("overridden"),
			`it overrides ConfigMap overridden of template earlier, since its name comes later in the alphabet: ` +
				`user "author" needs the right to patch namespacetemplates.policy.nstpl.dev "earlier"`,
		},
		"an object that may be another template's": {
			"author", configMapNamed("over$(NAMESPACE)"), "it overrides ConfigMap overridden of template earlier",
		},
		"an object of a template that the author may change": {"changer", configMapNamed("overridden"), ""},
		"an object of another template, in other namespaces": {
			"author", configMapNamed("overridden") + "\nnamespaces: {labelSelector: {matchLabels: {team: b}}}", "",
		},
		"an object of another template, by an administrator": {"admin", configMapNamed("overridden"), ""},
		"a Role that contains the creator's token": {"author",
			"templates:\n" + roleOf("a, annotations: {by: $(CREATOR)}", holdsPods) + bindingTo("Role", "a"),
			"so it is omitted or invalid in some namespaces"},
		"a Role with a resourceVersion": {"author",
			"templates:\n" + roleOf("a, resourceVersion: '1'", holdsPods) + bindingTo("Role", "a"),
			"spec.templates[0].metadata.resourceVersion: role.rbac.authorization.k8s.io/a: "},
		"a Role that two overlays make too large": {"author", "templates:\n" + roleOf("a", holdsPods) + bindingTo("Role", "a") + `overlays:
- {name: o, namespaces: {labelSelector: {}}, annotations: {o: ` + strings.Repeat("o", 200_000) + `}}
- {name: p, namespaces: {labelSelector: {}}, annotations: {p: ` + strings.Repeat("p", 200_000) + `}}
`, "RoleBinding b with overlays o, p: Role a has metadata"},
		"an invalid Role": {
			"author", "templates:\n" + roleOf("a", `{apiGroups: [""], resources: [pods]}`) + bindingTo("Role", "a"),
			"spec.templates[0].rules[0].verbs: role.rbac.authorization.k8s.io/a: is required",
		},
		"a Role with an unknown field": {
			"author", "templates:\n" + roleOf("a", `{apiGroups: [""], resources: [pods], verbs: [get], Verbs: ["*"]}`),
			"unknown field",
		},
		"every right in a Role": {
			"author", "templates:\n" + roleOf("a", anything), "* *.*; user \"author\" needs the right to escalate",
		},
		"every right, with escalate": {"powerful", "templates:\n" + roleOf("a", anything), ""},
		"escalate in a Role": {
			"author",
			"templates:\n" +
				roleOf("a", `{apiGroups: [rbac.authorization.k8s.io], resources: [roles], verbs: [escalate]}`),
			"escalate roles",
		},
		"impersonate in a Role": {
			"author",
			"templates:\n" + roleOf("a", `{apiGroups: [""], resources: [serviceaccounts], verbs: [impersonate]}`),
			"impersonate serviceaccounts",
		},
		"a subresource in a Role": {
			"author", "templates:\n" + roleOf("a", `{apiGroups: [""], resources: [pods/exec], verbs: [get]}`),
			"get pods/exec",
		},
		"a token as a verb": {
			"author", "templates:\n" + roleOf("a", `{apiGroups: [""], resources: [pods], verbs: [$(NAMESPACE)]}`),
			"* pods",
		},
		"a token as a resource": {
			"author", "templates:\n" + roleOf("a", `{apiGroups: [""], resources: [$(NAMESPACE)], verbs: [get]}`),
			"get *",
		},
		"names in a Role": {
			"author",
			"templates:\n" +
				roleOf("a", `{apiGroups: [""], resources: [pods], verbs: [get], resourceNames: [$(NAMESPACE), b]}`),
			"",
		},
		"too many rights to check": {
			"author",
			"templates:\n" +
				roleOf("a", `{apiGroups: [""], resources: [pods], verbs: [x], resourceNames: [`+strings.Repeat("a, ",
					5000)+"a]}"),
			"more than 4096 rights",
		},
		"cluster-admin, by a merge patch": {"binder", "templates:\n" + bindingTo("ClusterRole", "edit") + `overlays:
- name: o
  namespaces: {labelSelector: {}}
  patches:
  - patch: '{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b}, roleRef: {name: cluster-admin}}'
`, `RoleBinding b with overlays o`},
		"cluster-admin, by a JSON patch": {"binder", "templates:\n" + bindingTo("ClusterRole", "edit") + `overlays:
- {name: o, namespaces: {labelSelector: {}}, patches: [{patch: '[` + toAdmin + `]', target: {kind: RoleBinding}}]}
`, "RoleBinding b with overlays o"},
		"cluster-admin, by two overlays together": {"binder", "templates:\n" + bindingTo("ClusterRole", "edit") + `overlays:
- {name: o, namespaces: {labelSelector: {matchLabels: {a: a}}}, labels: {mark: "yes"}}
- {name: p, namespaces: {labelSelector: {matchLabels: {b: b}}}, patches: [{patch: '[` + toAdmin + `]', target: {kind: RoleBinding, labelSelector: mark=yes}}]}
`, "RoleBinding b with overlays o, p"},
		"more overlays than can be combined": {
			"binder", "templates:\n" + bindingTo("ClusterRole", "edit") + sevenOverlays, "in a template of their own",
		},
		"many overlays, by an administrator": {
			"admin", "templates:\n" + bindingTo("ClusterRole", "edit") + sevenOverlays, "",
		},
		"many overlays, and no RBAC": {
			"author", "templates: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}]\n" + sevenOverlays, "",
		},
		"kinds before contents": {
			"author", "templates:\n- {apiVersion: v1, kind: Secret, metadata: {name: a}}\n" + roleOf("a", anything),
			"template policies: user \"author\" may not create or patch secrets",
		},
		"everything at once": {
			"author", "templates:\n" + bindingTo("ClusterRole", "cluster-admin") + roleOf("a", anything),
			"has 2 problems:",
		},
		"a kind that the author may not patch": {
			"author", "templates: [{apiVersion: v1, kind: ResourceQuota, metadata: {name: a}}]",
			`"author" may not patch resourcequotas`,
		},
		"a version that the cluster doesn't serve": {
			"admin", "templates: [{apiVersion: rbac.authorization.k8s.io/v2, kind: Role, metadata: {name: a}}]",
			"not as rbac.authorization.k8s.io/v2",
		},
		"a version of a group that is not served": {
			"admin", "templates: [{apiVersion: policy.nstpl.dev/v7, kind: Thing, metadata: {name: a}}]",
			"serves the API group policy.nstpl.dev as policy.nstpl.dev/v1alpha1, not as policy.nstpl.dev/v7",
		},
		"a kind whose other objects are deleted": {
			"author", "authoritative: [{kind: ConfigMap}]\n" + configMapNamed("a"),
			`"author" may not delete configmaps`,
		},
		"a kind whose other objects the author may delete": {
			"deleter", "authoritative: [{kind: ConfigMap}]\n" + configMapNamed("a"), "",
		},
		"a kind that Kubernetes doesn't have": {
			"admin", "templates: [{apiVersion: apps/v1, kind: Thing, metadata: {name: a}}]",
			"the cluster does not serve apps/v1 Thing",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := s.ask(t, test.user, nil, object(t, test.spec))
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			var refused *webhook.Denied
			require.ErrorAs(t, err, &refused)
			require.Contains(t, refused.Message, test.want)
			require.Contains(t, refused.Message, "template policies")
		})
	}
	t.Run("updates", func(t *testing.T) { testUpdates(t, s) })
	t.Run("waves", func(t *testing.T) { testWaves(t, s) })
	t.Run("leftover grants", func(t *testing.T) { testLeftoverGrants(t, s) })
	t.Run("trials", func(t *testing.T) { testTrials(t, s) })
	t.Run("the operator's rights", func(t *testing.T) { testOperatorsRights(t, s) })
	t.Run("a busy operator", func(t *testing.T) { testBusyOperator(t, s) })
	t.Run("warnings", func(t *testing.T) {
		request, err := s.ask(t, "admin", nil, object(t, `templates:
- {apiVersion: example.com/v1, kind: Thing, metadata: {name: a}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {a: x-$(NAMESPACE)}}}`))
		require.NoError(t, err)
		require.Len(t, request.Warnings, 2)
		require.Contains(t, request.Warnings[0], "does not serve example.com/v1 Thing yet")
		require.Contains(t, request.Warnings[1], "namespaces whose names have more than 61 characters")

		request, err = s.ask(t, "admin", nil, object(t, "templates:\n"+roleOf("shared", holdsPods)))
		require.NoError(t, err)
		require.Equal(t,
			[]string{
				"template z-other declares Role.rbac.authorization.k8s.io shared, too: in namespaces that both select, the object of " +
					"z-other is populated, since its name comes later in the alphabet",
			}, request.Warnings)
	})
}

// A template is denied if the operator lacks rights for it. If they cannot be reviewed, the request is not decided.
func testOperatorsRights(t *testing.T, s suite) {
	t.Helper()
	template := object(t,
		"templates:\n- {apiVersion: v1, kind: Secret, metadata: {name: a}}\n"+bindingTo("ClusterRole", "cluster-admin"))
	_, err := s.as("operator").ask(t, "admin", nil, template)
	require.ErrorAs(t, err, new(*webhook.Denied))
	require.ErrorContains(t, err,
		`{apiGroups: [""], resources: ["secrets"], verbs: [list, watch, create, patch, delete]}`)
	require.ErrorContains(t, err, `spec.templates[1].roleRef: rolebinding.rbac.authorization.k8s.io/b: `+
		`the operator may not bind ClusterRole "cluster-admin"`)
	require.ErrorContains(t, err,
		`{apiGroups: ["rbac.authorization.k8s.io"], resources: ["clusterroles"], resourceNames: ["cluster-admin"], verbs: [bind]}`)

	disabled := template.DeepCopy()
	disabled.SetAnnotations(map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable})
	for _, updated := range []*unstructured.Unstructured{disabled, nil} {
		_, err = s.as("operator").ask(t, "admin", template, updated)
		require.NoError(t, err, "the template can be disabled and deleted")
	}

	_, err = s.as("nobody").ask(t, "admin", nil, template)
	require.ErrorContains(t, err, "subjectaccessreviews")
	var refused *webhook.Denied
	require.NotErrorAs(t, err, &refused)
}

const sevenOverlays = `overlays:
- {name: a, namespaces: {labelSelector: {}}}
- {name: b, namespaces: {labelSelector: {}}}
- {name: c, namespaces: {labelSelector: {}}}
- {name: d, namespaces: {labelSelector: {}}}
- {name: e, namespaces: {labelSelector: {}}}
- {name: f, namespaces: {labelSelector: {}}}
- {name: g, namespaces: {labelSelector: {}}}
`

// An author who changes what a template populates needs the rights for the whole template.
func testUpdates(t *testing.T, s suite) {
	t.Helper()
	spec := "templates:\n" + bindingTo("ClusterRole", "cluster-admin")
	annotated := func(annotations map[string]string) *unstructured.Unstructured {
		template := object(t, spec)
		template.SetAnnotations(annotations)
		return template
	}
	disabled := map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
	required := map[string]string{v1alpha1.RequirePermissionAnnotation: "true"}
	finalized := object(t, spec)
	finalized.SetFinalizers([]string{v1alpha1.DeletionFinalizer})
	finalized.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "x"}})
	owned := object(t, configMaps("Delete", "left"))
	owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "gone", UID: "gone"}})
	off := object(t, configMaps("Delete", "left"))
	off.SetAnnotations(disabled)
	orphaned := object(t, configMaps("Orphan", "left"))
	orphaned.SetAnnotations(disabled)
	narrow := "\nnamespaces: {labelSelector: {matchLabels: {a: b}}}"
	drop := `
overlays: [{name: o, namespaces: {labelSelector: {}}, patches: [{patch: '{$patch: delete, apiVersion: v1, kind: ConfigMap, metadata: {name: left}}'}]}]`
	dropTogether := `
overlays:
- {name: o, namespaces: {labelSelector: {}}, labels: {mark: "yes"}}
- {name: p, namespaces: {labelSelector: {}}, patches: [{patch: '{$patch: delete, apiVersion: v1, kind: ConfigMap, metadata: {name: any}}', target: {labelSelector: mark=yes}}]}`
	replaced := `templates: [{apiVersion: v1, kind: ConfigMap, metadata: {name: left, annotations: {policy/replace: "true"}}}]`
	tests := map[string]struct {
		old, updated *unstructured.Unstructured
		// want is part of the denial, or empty if the template is allowed.
		want string
	}{
		"a finalizer":                      {object(t, spec), finalized, ""},
		"other annotations":                {object(t, spec), annotated(map[string]string{"a": "b"}), ""},
		"disabling":                        {object(t, spec), annotated(disabled), ""},
		"enabling":                         {annotated(disabled), object(t, spec), "bind"},
		"requiring a permission":           {object(t, spec), annotated(required), "use on all namespacetemplates"},
		"no longer requiring a permission": {annotated(required), object(t, spec), "bind"},
		"another selector": {
			object(t, spec), object(t, spec+"namespaces: {labelSelector: {matchLabels: {a: b}}}\n"), "bind",
		},
		"another policy on deletion": {
			object(t, spec), object(t, spec+"deletionPolicy: Delete\n"), "delete rolebindings",
		},
		"removing the RoleBinding": {object(t, spec), object(t, "templates: []"), "delete rolebindings"},
		"adding the RoleBinding":   {object(t, "templates: []"), object(t, spec), "bind"},
		"another roleRef": {object(t, "templates:\n"+bindingTo("ClusterRole", "pods")),
			object(t, "templates:\n"+roleOf("a", holdsPods)+bindingTo("Role", "a")),
			"delete rolebindings"},
		"other subjects": {object(t, "templates:\n"+bindingTo("ClusterRole", "pods")),
			object(t, "templates:\n"+strings.ReplaceAll(bindingTo("ClusterRole", "pods"), "name: author",
				"name: other")), ""},

		"no objects": {
			object(t, configMaps("Orphan", "left")), object(t, "templates: []"), "delete configmaps",
		},
		"another name": {
			object(t, configMaps("Orphan", "left")), object(t, configMaps("Orphan", "other")), "delete configmaps",
		},
		"other contents": {
			object(t, configMaps("Orphan", "left")),
			object(t, strings.Replace(configMaps("Orphan", "left"), "{name", "{annotations: {a: b}, name", 1)), "",
		},
		"a new template that deletes its objects": {
			nil, object(t, configMaps("Delete", "left")), "left in namespace default",
		},
		"a new template, with leftovers of an earlier one": {
			nil, object(t, configMaps("Orphan", "other")),
			"ConfigMap left in namespace default remains from an earlier template updated",
		},
		"a new template that declares the leftover": {nil, object(t, configMaps("Orphan", "left")), ""},
		"other namespaces, objects stay": {
			object(t, configMaps("Orphan", "left")), object(t, configMaps("Orphan", "left")+narrow), "",
		},
		"other namespaces, with leftovers there": {
			object(t, configMaps("Orphan", "other")), object(t, configMaps("Orphan", "other")+narrow),
			"left in namespace default",
		},
		"fewer namespaces": {
			object(t, configMaps("Delete", "left")), object(t, configMaps("Delete", "left")+narrow),
			"delete configmaps",
		},
		"all namespaces": {
			object(t, configMaps("Delete", "left")+narrow), object(t, configMaps("Delete", "left")), "",
		},
		"fewer namespaces, and objects stay": {
			object(t, configMaps("Delete", "left")), object(t, configMaps("Orphan", "left")+narrow), "",
		},
		"deleting the objects with the template": {
			object(t, configMaps("Orphan", "left")), object(t, configMaps("Delete", "left")), "delete configmaps",
		},
		"disabling, with deletionPolicy Delete":  {object(t, configMaps("Delete", "left")), off, "delete configmaps"},
		"disabling, with deletionPolicy Orphan":  {object(t, configMaps("Orphan", "left")), orphaned, ""},
		"an owner reference":                     {object(t, configMaps("Delete", "left")), owned, "delete configmaps"},
		"a new template with an owner reference": {nil, owned, "delete configmaps"},
		"deletion":                               {object(t, configMaps("Delete", "left")), nil, "delete configmaps"},
		"deletion of a disabled template":        {off, nil, ""},
		"deletion, with deletionPolicy Orphan":   {object(t, configMaps("Orphan", "left")), nil, ""},
		"an overlay that drops it": {
			object(t, configMaps("Orphan", "left")), object(t, configMaps("Orphan", "left")+drop), "delete configmaps",
		},
		"two overlays that drop it": {
			object(t, configMaps("Orphan", "left")), object(t, configMaps("Orphan", "left")+dropTogether),
			"delete configmaps",
		},
		"an overlay that has always dropped it": {
			object(t, configMaps("Orphan", "left")+drop),
			object(t, configMaps("Orphan", "left")+drop+"\ndriftPolicy: Report"), "",
		},
		"an overlay that drops the leftover": {
			nil, object(t, configMaps("Orphan", "left")+drop), "left in namespace default",
		},
		"replacing the object": {
			object(t, configMaps("Orphan", "left")), object(t, replaced), "delete configmaps",
		},
		"many overlays with patches": {object(t, configMaps("Orphan", "left")),
			object(t, configMaps("Orphan", "left")+"\n"+strings.Replace(sevenOverlays, "name: g,",
				`name: g, patches: [{patch: '[{"op": "test", "path": "/kind", "value": "ConfigMap"}]', target: {kind: ConfigMap}}],`, 1)),
			"delete configmaps"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, template := range []*unstructured.Unstructured{test.old, test.updated} {
				if template != nil {
					template.SetName("updated")
				}
			}
			if test.old != nil {
				test.old.Object["status"] = map[string]any{"kinds": []any{map[string]any{
					"group": "", "kind": "ConfigMap",
				}}}
			}
			for _, user := range []string{"author", "admin"} {
				_, err := s.ask(t, user, test.old, test.updated)
				if test.want == "" || user == "admin" {
					require.NoError(t, err)
					continue
				}
				require.ErrorAs(t, err, new(*webhook.Denied))
				require.ErrorContains(t, err, test.want)
			}
			if strings.Contains(test.want, "configmaps") || strings.Contains(test.want, "left") {
				_, err := s.ask(t, "deleter", test.old, test.updated)
				require.NoError(t, err, "a user who may delete them")
			}
		})
	}
}

// An edit of nothing but the waves of a rollout is judged: no wave may select by a label that a template sets.
func testWaves(t *testing.T, s suite) {
	t.Helper()
	by := func(label string) *unstructured.Unstructured {
		return object(t, configMapNamed("a")+"\nrollout: {waves: [{selector: {matchLabels: {"+label+": x}}}]}")
	}
	_, err := s.ask(t, "admin", object(t, configMapNamed("a")), by("free"))
	require.NoError(t, err)
	_, err = s.ask(t, "admin", object(t, configMapNamed("a")), by("set"))
	require.ErrorContains(t, err, "it selects by the label set, which template z-labels sets")
}

// A RoleBinding that an earlier template of the same name left is deleted, also if the new one declares none.
func testLeftoverGrants(t *testing.T, s suite) {
	t.Helper()
	reused := object(t, configMaps("Orphan", "a"))
	reused.SetName("reused")
	_, err := s.ask(t, "author", nil, reused)
	require.ErrorAs(t, err, new(*webhook.Denied))
	require.ErrorContains(t, err, "RoleBinding.rbac.authorization.k8s.io grant in namespace default remains from an earlier "+
		`template reused and would be deleted: user "author" needs the right to delete rolebindings`)
	changed := object(t, configMaps("Orphan", "b"))
	changed.SetName("reused")
	_, err = s.ask(t, "deleter", reused, changed)
	require.ErrorContains(t, err, "remains from an earlier template", "it may have been stored without the question")
	_, err = s.ask(t, "admin", nil, reused)
	require.NoError(t, err)
}

// configMaps is a spec with ConfigMaps.
func configMaps(deletionPolicy string, names ...string) string {
	spec := "deletionPolicy: " + deletionPolicy + "\ntemplates:\n"
	for _, name := range names {
		spec += "- {apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + "}}\n"
	}
	return spec
}
