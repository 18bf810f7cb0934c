package integration_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/escalation"
)

// templatesRule lets an author write NamespaceTemplates.
var templatesRule = rbacv1.PolicyRule{
	APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"namespacetemplates"},
	Verbs: []string{"get", "create", "update", "patch", "delete"},
}

func rule(verbs, group, resources string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{group}, Resources: strings.Fields(resources), Verbs: strings.Fields(verbs),
		ResourceNames: names,
	}
}

var (
	// rbacRule lets an author write Roles and RoleBindings, as far as RBAC goes: without bind and escalate.
	rbacRule    = rule("create patch", rbacv1.GroupName, "roles rolebindings")
	readSecrets = rule("get", "", "secrets")
	readConfig  = rule("get", "", "configmaps")
)

// authorWho returns a client of a user who may write templates, and may do what the rules say in all namespaces.
func (s *testScope) authorWho(short string, rules ...rbacv1.PolicyRule) client.Client {
	s.t.Helper()
	return s.userWho(short, append(slices.Clone(rules), templatesRule)...)
}

// userWho returns a client of a user who may do what the rules say in all namespaces, and nothing else.
func (s *testScope) userWho(short string, rules ...rbacv1.PolicyRule) client.Client {
	s.t.Helper()
	name := s.name(short)
	require.NoError(s.t,
		s.client.Create(s.t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}))
	s.bind("", "ClusterRole", name, userSubject(name))
	config, err := s.controlPlane.UserConfig(name)
	require.NoError(s.t, err)
	user, err := client.New(config, client.Options{Scheme: s.client.Scheme(), Mapper: s.client.RESTMapper()})
	require.NoError(s.t, err)
	s.eventually(func(c *assert.CollectT) { // until the API server goes by the role and its binding
		assert.True(c, s.mayOf(name, "", "create", v1alpha1.GroupVersion.Group, "namespacetemplates"))
	})
	return user
}

// may asks the API server whether a user may do something with a resource of the core group in a namespace.
func (s *testScope) may(user, namespace, verb, resource string) bool {
	s.t.Helper()
	return s.mayOf(user, namespace, verb, "", resource)
}

func (s *testScope) mayOf(user, namespace, verb, group, resource string) bool {
	s.t.Helper()
	attributes := &authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: verb, Group: group, Resource: resource,
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, ResourceAttributes: attributes,
	}}
	require.NoError(s.t, s.client.Create(s.t.Context(), review))
	return review.Status.Allowed
}

// roleWith is a Role with the body of a rule, in YAML.
func roleWith(name, rules string) string {
	return "\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: " + name + "}\n" + rules + "\n"
}

const (
	narrow = `rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]`
	wide   = `rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]`
)

// bindingOf binds a Role to a user.
func bindingOf(name, role, user string) string {
	return "\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: " + name + "}\n" +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: " + role + "}\n" +
		"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: " + user + "}]\n"
}

// bindingAttack is a template by which an author who may write Roles and RoleBindings, and holds nothing but reading
// ConfigMaps, tries to let SCENE-victim read Secrets.
type bindingAttack struct {
	objects  string
	overlays []v1alpha1.Overlay
	// existing is in a namespace before the template selects it. By default it is the Role SCENE-worker, which may read
	// Secrets.
	existing string
	// refuseRoles has the cluster refuse all Roles that the operator writes in the namespaces.
	refuseRoles bool
	change      []func(*v1alpha1.NamespaceTemplate)
	// later is what the author does once the template is populated.
	later func(*testScope, client.Client, *v1alpha1.NamespaceTemplate)
}

var bindingAttacks = map[string]bindingAttack{
	"role of a version that is not served": {objects: documents(ofVersion("v1beta1",
		roleWith("SCENE-worker", narrow)), workers)},
	"role of a version that never was": {objects: documents(ofVersion("v2", roleWith("SCENE-worker", narrow)),
		workers)},
	"binding first": {objects: documents(workers,
		ofVersion("v1beta1", roleWith("SCENE-worker", narrow)))},
	"role without rules of an unserved version": {objects: documents(ofVersion("v1alpha1",
		roleWith("SCENE-worker", "")), workers)},
	"role that is too large with the operator's annotations": {
		objects: documents(annotated(roleWith("SCENE-worker", narrow), 256*1024-len("a")), workers),
	},
	"role that an overlay makes too large": {
		objects:  documents(annotated(roleWith("SCENE-worker", narrow), 0), workers),
		overlays: patchingRole("/metadata/annotations/a", strings.Repeat("x", 256*1024-len("a"))),
	},
	"overlay that replaces apiVersion": {
		objects:  documents(roleWith("SCENE-worker", narrow), workers),
		overlays: patchingRole(`/apiVersion`, `rbac.authorization.k8s.io/v1beta1`),
	},
	"overlay that replaces the group": {
		objects:  documents(roleWith("SCENE-worker", narrow), workers),
		overlays: patchingRole(`/apiVersion`, `example.com/v1`),
	},
	"overlay that replaces kind": {
		objects: documents(roleWith("SCENE-worker", narrow), workers), overlays: patchingRole(`/kind`, `ConfigMap`),
	},
	"overlay that replaces the name": {
		objects:  documents(roleWith("SCENE-worker", narrow), workers),
		overlays: patchingRole(`/metadata/name`, `SCENE-another`),
	},
	"overlay that makes the role a generated": {
		objects:  documents(roleWith("SCENE-worker", narrow), workers),
		overlays: patchingRole(`/metadata/generateName`, `SCENE-worker`),
	},
	"overlay that swaps names": {
		objects: documents(roleWith("SCENE-worker", narrow), roleWith("SCENE-other", narrow), workers),
		overlays: []v1alpha1.Overlay{{Patches: []v1alpha1.Patch{
			jsonPatch("SCENE-worker", "/metadata/name", "SCENE-other"),
			jsonPatch("SCENE-other", "/metadata/name", "SCENE-worker"),
		}}},
	},
	"overlay that deletes the role": {
		objects: documents(roleWith("SCENE-worker", narrow), workers),
		overlays: []v1alpha1.Overlay{{Patches: []v1alpha1.Patch{{
			Patch: "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: SCENE-worker}\n$patch: delete\n",
		}}}},
	},
	"overlay that takes the rules away": {
		objects: documents(roleWith("SCENE-worker", narrow), workers),
		overlays: []v1alpha1.Overlay{{Patches: []v1alpha1.Patch{{
			Target: &v1alpha1.PatchTarget{Kind: "Role"}, Patch: `[{"op": "remove", "path": "/rules"}]`,
		}}}},
	},
	"overlay that rebinds": {
		objects: documents(roleWith("SCENE-narrow", narrow), bindingOf("workers", "SCENE-narrow", "SCENE-victim")),
		overlays: []v1alpha1.Overlay{{Patches: []v1alpha1.Patch{{
			Target: &v1alpha1.PatchTarget{Kind: "RoleBinding"},
			Patch:  `[{"op": "replace", "path": "/roleRef/name", "value": "SCENE-worker"}]`,
		}}}},
	},
	"role that the cluster refuses": {
		objects: documents(roleWith("SCENE-worker", narrow), workers), refuseRoles: true,
	},
	"role that the cluster refuses, ignored": {
		objects: documents(roleWith("SCENE-worker", narrow), workers), refuseRoles: true,
		change: []func(*v1alpha1.NamespaceTemplate){ignoreFailures},
	},
	"role that the cluster refuses, reported": {
		objects: documents(roleWith("SCENE-worker", narrow), workers), refuseRoles: true,
		change: []func(*v1alpha1.NamespaceTemplate){reportsDrift},
	},
	"role that the cluster refuses, bound by a name": {objects: documents(roleWith("SCENE-$(NAMESPACE)", narrow),
		bindingOf("workers", "SCENE-$(NAMESPACE)", "SCENE-victim")), existing: roleWith("SCENE-NAMESPACE", wide),
		refuseRoles: true},
	"role without rules": {objects: documents(roleWith("SCENE-worker", ""), workers)},
	"role with rules that are null": {objects: documents(roleWith("SCENE-worker", "rules: null"),
		workers)},
	"role with rules that are empty": {objects: documents(roleWith("SCENE-worker", "rules: []"),
		workers)},
	"role that a user has widened before": {objects: documents(roleWith("SCENE-worker", narrow), workers)},
	"role that a user has widened before, reported": {
		objects: documents(roleWith("SCENE-worker", narrow), workers),
		change:  []func(*v1alpha1.NamespaceTemplate){reportsDrift},
	},
	"role that is not declared": {objects: workers},
	"role that is refused for its owner": {
		objects: documents(strings.Replace(roleWith("SCENE-worker", narrow), "{name: SCENE-worker}",
			"{name: SCENE-worker, ownerReferences: [{apiVersion: v1, kind: Pod, name: x, uid: ''}]}", 1), workers),
	},
	"role that a creator's name makes invalid": {
		objects: documents(strings.Replace(roleWith("SCENE-worker", narrow), "{name: SCENE-worker}",
			"{name: SCENE-worker, labels: {a: $(CREATOR)}}", 1), workers),
	},
	"role in a list": {
		objects: documents(
			"\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleList\nmetadata: {name: SCENE-worker}\nitems: []\n",
			workers),
	},
	"roleRef that is changed to a role that is refused": {
		objects: documents(roleWith("SCENE-narrow", narrow), bindingOf("workers", "SCENE-narrow", "SCENE-victim")),
		later: func(s *testScope, author client.Client, template *v1alpha1.NamespaceTemplate) {
			s.rewrite(author, template,
				documents(roleWith("SCENE-narrow", narrow), ofVersion("v1beta1", roleWith("SCENE-worker", narrow)),
					workers))
		},
	},
	"subject that is added after the role is widened and reported": {
		objects: documents(roleWith("SCENE-mine", narrow), bindingOf("mine", "SCENE-mine", "nobody")),
		change:  []func(*v1alpha1.NamespaceTemplate){reportsDrift},
		later: func(s *testScope, author client.Client, template *v1alpha1.NamespaceTemplate) {
			for _, ns := range []string{s.name("late"), s.name("new")} {
				widened := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: s.name("mine")}}
				body := client.RawPatch("application/merge-patch+json",
					[]byte(`{"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}`))
				require.NoError(s.t, s.client.Patch(s.t.Context(), widened, body))
			}
			s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
				assert.EqualValues(c, 2, status.Namespaces.Drifted)
			})
			s.rewrite(author, template,
				documents(roleWith("SCENE-mine", narrow), bindingOf("mine", "SCENE-mine", "SCENE-victim")))
		},
	},
}

// workers binds the Role "SCENE-worker" to the victim.
var workers = bindingOf("workers", "SCENE-worker", "SCENE-victim")

func ofVersion(version, object string) string {
	return strings.Replace(object, "rbac.authorization.k8s.io/v1\n", "rbac.authorization.k8s.io/"+version+"\n", 1)
}

func annotated(object string, size int) string {
	return strings.Replace(object, "metadata: {", "metadata: {annotations: {a: '"+strings.Repeat("x", size)+"'}, ", 1)
}

func jsonPatch(role, path, value string) v1alpha1.Patch {
	return v1alpha1.Patch{
		Target: &v1alpha1.PatchTarget{Kind: "Role", Name: role},
		Patch:  fmt.Sprintf(`[{"op": "add", "path": %q, "value": %q}]`, path, value),
	}
}

func patchingRole(path, value string) []v1alpha1.Overlay {
	return []v1alpha1.Overlay{{Patches: []v1alpha1.Patch{jsonPatch("SCENE-worker", path, value)}}}
}

func ignoreFailures(template *v1alpha1.NamespaceTemplate) {
	template.Spec.FailurePolicy = v1alpha1.FailureIgnore
}

// A template is denied, or populated without what its author could not grant: never for a moment does the victim hold
// more. Names of Roles are the scene's, since a Role that two templates may declare is a matter of its own.
func TestBindingNeverGrantsMoreThanItsAuthorHolds(t *testing.T) {
	t.Parallel()
	cluster := newTestCluster(t)
	for name, attack := range bindingAttacks {
		t.Run(name, func(t *testing.T) {
			s := newScope(t, cluster)
			s.attack(attack)
		})
	}
}

// attack has an author try.
func (s *testScope) attack(attack bindingAttack) {
	s.t.Helper()
	recorder := newRecorder(s.t, s.testCluster, s.id, rbacKinds...)
	author := s.authorWho("author", rbacRule, readConfig)
	late, created := s.newNamespace("late"), s.newNamespace("new", withCreator("jane@example.com"))
	if attack.refuseRoles {
		s.refuseRoles(late, created)
	}
	existing := func(ns *corev1.Namespace) string {
		return strings.NewReplacer("SCENE", s.id, "NAMESPACE",
			ns.Name).Replace(cmp.Or(attack.existing, roleWith("SCENE-worker", wide)))
	}
	delete(late.Labels, testLabel)
	require.NoError(s.t, s.createAsCreator(late))
	s.put(late.Name, existing(late))

	template := s.newTemplate("attack", attack.objects, attack.change...)
	for i, overlay := range attack.overlays {
		overlay.Name, overlay.Namespaces = fmt.Sprint("overlay-", i), template.Spec.Namespaces
		template.Spec.Overlays = append(template.Spec.Overlays, overlay)
	}
	s.inScene(template)
	if err := author.Create(s.t.Context(), template); err != nil {
		s.denied(err)
		return
	}
	s.waitTemplateObserved(template)
	s.patchNamespace(late, `{"metadata": {"labels": {"`+testLabel+`": "`+s.id+`"}}}`)
	require.NoError(s.t, s.createAsCreator(created))
	settler := &settler{client: s.client, id: s.id}
	require.NoError(s.t, settler.settle(s.t.Context(), late.Name, created.Name))
	// An administrator of the other namespace makes the Role that a binding may wait for.
	for _, object := range parseYAML(s.t, existing(created)) {
		object.SetNamespace(created.Name)
		require.NoError(s.t, client.IgnoreAlreadyExists(s.client.Create(s.t.Context(), object)))
	}
	if attack.later != nil {
		attack.later(s, author, template)
	}
	require.NoError(s.t, settler.settle(s.t.Context(), late.Name, created.Name))
	s.neverGranted(recorder, s.name("victim"), readSecrets, late, created)
}

// What an author may grant is populated, wherever a user had widened the Role before, and however many namespaces there
// are. Both the declared Role and the ClusterRole are bound; for no moment is more bound than they allow.
func TestBindingGrantsWhatItsAuthorHolds(t *testing.T) {
	t.Parallel()
	s := newScope(t, newTestCluster(t))
	recorder := newRecorder(t, s.testCluster, s.id, rbacKinds...)
	author := s.authorWho("author", rbacRule, readConfig, rule("bind", rbacv1.GroupName, "clusterroles", "view"))
	victim := s.name("victim")
	var namespaces []*corev1.Namespace
	for i := range 12 {
		ns := s.newNamespace(fmt.Sprint("late-", i))
		delete(ns.Labels, testLabel)
		require.NoError(t, s.createAsCreator(ns))
		s.put(ns.Name, roleWith("worker", wide))
		namespaces = append(namespaces, ns)
	}
	viewers := strings.NewReplacer("kind: Role,",
		"kind: ClusterRole,").Replace(bindingOf("viewers", "view", s.name("viewer")))
	objects := documents(bindingOf("workers", "worker", victim), roleWith("worker", narrow),
		roleWith("$(NAMESPACE)", "rules: []"),
		bindingOf("nothing", "$(NAMESPACE)", victim), viewers)
	template := s.newTemplate("honest", objects)
	require.NoError(t, author.Create(t.Context(), template))
	s.waitTemplateObserved(template)
	for _, ns := range namespaces {
		s.patchNamespace(ns, `{"metadata": {"labels": {"`+testLabel+`": "`+s.id+`"}}}`)
	}
	namespaces = append(namespaces, s.createNamespace("new"))
	for _, ns := range namespaces {
		s.waitPopulated(ns)
		s.waitPresent(ns, strings.ReplaceAll(objects, "$(NAMESPACE)", ns.Name))
		s.eventually(func(c *assert.CollectT) { // until the API server goes by the bindings
			assert.True(c, s.may(victim, ns.Name, "get", "configmaps"))
			assert.True(c, s.may(s.name("viewer"), ns.Name, "list", "pods"))
		})
	}
	s.neverGranted(recorder, victim, readSecrets, namespaces...)
}

// A Role that several templates declare is not bound for the author of one of them, unless that author could bind it,
// whichever template comes first by name or by time. The binding of those who may is populated.
func TestRoleOfAnotherTemplateIsNotBound(t *testing.T) {
	t.Parallel()
	cluster := newTestCluster(t)
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		for _, order := range []string{
			"author first", "administrator first", "author first, elsewhere", "author first, disabled",
			"author first, in an overlay",
		} {
			t.Run(fmt.Sprintf("author's %s, administrator's %s, %s", names[0], names[1], order), func(t *testing.T) {
				newScope(t, cluster).squat(names[0], names[1], order)
			})
		}
	}
}

// squat has an author bind an empty Role that a template of the administrator fills.
func (s *testScope) squat(authors, administrators, order string) {
	s.t.Helper()
	recorder := newRecorder(s.t, s.testCluster, s.id, rbacKinds...)
	author := s.authorWho("author", rbacRule, readConfig)
	squatting := s.newTemplate(authors, documents(roleWith("SCENE-worker", "rules: []"), workers))
	declared := s.newTemplate(administrators,
		documents(roleWith("SCENE-worker", wide), bindingOf("SCENE-team", "SCENE-worker", "SCENE-member")))
	ns := s.newNamespace("n")
	switch order {
	case "author first, elsewhere":
		squatting.Spec.Namespaces = selectLabel("no", "namespace")
	case "author first, disabled":
		squatting.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
	case "author first, in an overlay":
		declared.Spec.Templates = rawObjects(s.t,
			documents(roleWith("SCENE-worker", "rules: []"), bindingOf("SCENE-team", "SCENE-worker", "SCENE-member")))
		declared.Spec.Overlays = []v1alpha1.Overlay{{Name: "wide", Namespaces: declared.Spec.Namespaces,
			Patches: []v1alpha1.Patch{{
				Target: &v1alpha1.PatchTarget{Kind: "Role"},
				Patch:  `[{"op": "replace", "path": "/rules", "value": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}]`,
			}}}}
	}
	s.inScene(squatting)
	s.inScene(declared)
	if order == "administrator first" {
		require.NoError(s.t, s.client.Create(s.t.Context(), declared))
		s.waitTemplateObserved(declared)
	}
	require.NoError(s.t, s.createAsCreator(ns))
	err := author.Create(s.t.Context(), squatting)
	if err != nil {
		s.denied(err)
	} else {
		s.waitTemplateObserved(squatting)
	}
	if order != "administrator first" {
		require.NoError(s.t, s.client.Create(s.t.Context(), declared))
		s.waitTemplateObserved(declared)
	}
	for _, body := range []string{
		`{"metadata": {"annotations": {"` + v1alpha1.TemplateApplyAnnotation + `": null}}}`,
		`{"spec": {"namespaces": {"labelSelector": {"matchLabels": {"no": null, "` + testLabel + `": "` + s.id +
			`"}}}}}`,
	} {
		if err != nil {
			break
		}
		if err := author.Patch(s.t.Context(), squatting.DeepCopy(),
			client.RawPatch("application/merge-patch+json", []byte(body))); err != nil {
			s.denied(err)
		}
	}
	require.NoError(s.t, (&settler{client: s.client, id: s.id}).settle(s.t.Context(), ns.Name))
	s.neverGranted(recorder, s.name("victim"), readSecrets, ns)
	if administrators > authors || err != nil {
		s.eventually(func(c *assert.CollectT) { assert.True(c, s.may(s.name("member"), ns.Name, "get", "secrets")) })
	}
}

// inScene replaces SCENE in a template's values.
func (s *testScope) inScene(template *v1alpha1.NamespaceTemplate) {
	s.t.Helper()
	data, err := json.Marshal(template)
	require.NoError(s.t, err)
	*template = v1alpha1.NamespaceTemplate{}
	require.NoError(s.t, json.Unmarshal(bytes.ReplaceAll(data, []byte("SCENE"), []byte(s.id)), template))
}

// denied fails unless an error is a denial of admission or validation.
func (s *testScope) denied(err error) {
	s.t.Helper()
	require.True(s.t, apierrors.IsForbidden(err) || apierrors.IsInvalid(err), "%v", err)
	s.t.Logf("denied: %.400s", err)
}

// neverGranted fails if RoleBindings let a user do something at any moment, or do now.
func (s *testScope) neverGranted(
	recorder *recorder, user string, right rbacv1.PolicyRule, namespaces ...*corev1.Namespace,
) {
	s.t.Helper()
	_, err := recorder.catchUp(s.t.Context())
	require.NoError(s.t, err)
	records := recorder.take(s.id)
	for _, ns := range namespaces {
		held := escalation.Author{Rules: escalation.Granted(records, nil, ns.Name, userSubject(user))}
		assert.False(s.t, held.Holds([]rbacv1.PolicyRule{right}), "%s was granted in namespace %s: %v", user, ns.Name,
			held.Rules)
		assert.False(s.t, s.may(user, ns.Name, right.Verbs[0], right.Resources[0]), "%s may in namespace %s: %v", user,
			ns.Name, right)
	}
}

// rewrite replaces the objects of a template as a user, who may be denied it.
func (s *testScope) rewrite(user client.Client, template *v1alpha1.NamespaceTemplate, objects string) {
	s.t.Helper()
	changed := template.DeepCopy()
	changed.Spec.Templates = rawObjects(s.t, objects)
	s.inScene(changed)
	if err := user.Patch(s.t.Context(), changed, client.MergeFrom(template)); err != nil {
		s.denied(err)
		return
	}
	s.waitTemplateObserved(changed)
}

// refuseRoles has the API server refuse the Roles that the operator writes in namespaces, as a policy of the cluster
// might. It labels the namespaces, which do not exist yet.
func (s *testScope) refuseRoles(namespaces ...*corev1.Namespace) {
	s.t.Helper()
	for _, ns := range namespaces {
		ns.Labels["refuse-roles"] = s.id
	}
	_, err := s.kubectl(s.t.Context(), strings.ReplaceAll(refusal, "SCENE", s.id), "apply", "--filename", "-")
	require.NoError(s.t, err)
	probe := s.newNamespace("probe", withLabel("refuse-roles", s.id))
	require.NoError(s.t, s.createAsCreator(probe))
	operator := s.impersonate(s.t, operatorUser)
	s.eventually(func(c *assert.CollectT) { // until the API server goes by it
		_, err := operator.RbacV1().Roles(probe.Name).Create(s.t.Context(),
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "probe"}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		assert.True(c, apierrors.IsInvalid(err), "%v", err)
	})
}

const refusal = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: SCENE}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {refuse-roles: SCENE}}
    resourceRules: [{apiGroups: [rbac.authorization.k8s.io], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [roles]}]
  matchConditions: [{name: operator, expression: "request.userInfo.username == '` + operatorUser + `'"}]
  validations: [{expression: "false", message: "this cluster takes no Roles from the operator here"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: SCENE}
spec: {policyName: SCENE, validationActions: [Deny]}
`
