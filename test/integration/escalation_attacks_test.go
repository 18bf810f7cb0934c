package integration_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/escalation"
	"nstpl.dev/nstpl/test/marks"
)

var (
	// rbacRule lets an author write Roles and RoleBindings, but not escalate or bind.
	rbacRule    = policyRule("create patch", rbacv1.GroupName, "roles rolebindings")
	readSecrets = policyRule("get", "", "secrets")
	readConfig  = policyRule("get", "", "configmaps")
)

const (
	configMapRules = `rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]`
	secretRules    = `rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]`
)

// bindingAttack is a template by which an author tries to let the user SCOPE-victim read Secrets. The author may write
// Roles and RoleBindings, and can otherwise only read ConfigMaps.
type bindingAttack struct {
	objects  string
	overlays []v1alpha1.Overlay
	// existing is a Role that exists in the namespace before the template selects it. By default it is SCOPE-worker,
	// which grants get on Secrets.
	existing string
	// refuseRoles has the API server deny all Roles that the operator writes in the namespaces.
	refuseRoles bool
	change      []func(*v1alpha1.NamespaceTemplate)
	// later is called when the template is populated.
	later func(*testScope, client.Client, *v1alpha1.NamespaceTemplate)
}

var bindingAttacks = map[string]bindingAttack{
	"role of a version that is not served": {objects: documents(withRBACVersion("v1beta1",
		roleWithRules("SCOPE-worker", configMapRules)), workersBinding)},
	"role of a version that never was": {objects: documents(withRBACVersion("v2",
		roleWithRules("SCOPE-worker", configMapRules)),
		workersBinding)},
	"binding first": {objects: documents(workersBinding,
		withRBACVersion("v1beta1", roleWithRules("SCOPE-worker", configMapRules)))},
	"role without rules of an unserved version": {objects: documents(withRBACVersion("v1alpha1",
		roleWithRules("SCOPE-worker", "")), workersBinding)},
	"role that is too large with the operator's annotations": {
		objects: documents(withLargeAnnotation(roleWithRules("SCOPE-worker", configMapRules), 256*1024-len("a")),
			workersBinding),
	},
	"role that an overlay makes too large": {
		objects:  documents(withLargeAnnotation(roleWithRules("SCOPE-worker", configMapRules), 0), workersBinding),
		overlays: roleOverlay("/metadata/annotations/a", strings.Repeat("x", 256*1024-len("a"))),
	},
	"overlay that replaces apiVersion": {
		objects:  documents(roleWithRules("SCOPE-worker", configMapRules), workersBinding),
		overlays: roleOverlay(`/apiVersion`, `rbac.authorization.k8s.io/v1beta1`),
	},
	"overlay that replaces the group": {
		objects:  documents(roleWithRules("SCOPE-worker", configMapRules), workersBinding),
		overlays: roleOverlay(`/apiVersion`, `example.com/v1`),
	},
	"overlay that replaces kind": {
		objects:  documents(roleWithRules("SCOPE-worker", configMapRules), workersBinding),
		overlays: roleOverlay(`/kind`, `ConfigMap`),
	},
	"overlay that replaces the name": {
		objects:  documents(roleWithRules("SCOPE-worker", configMapRules), workersBinding),
		overlays: roleOverlay(`/metadata/name`, `SCOPE-another`),
	},
	"overlay that makes the role a generated": {
		objects:  documents(roleWithRules("SCOPE-worker", configMapRules), workersBinding),
		overlays: roleOverlay(`/metadata/generateName`, `SCOPE-worker`),
	},
	"overlay that swaps names": {
		objects: documents(roleWithRules("SCOPE-worker", configMapRules), roleWithRules("SCOPE-other", configMapRules),
			workersBinding),
		overlays: []v1alpha1.Overlay{{Patches: []v1alpha1.Patch{
			roleJSONPatch("SCOPE-worker", "/metadata/name", "SCOPE-other"),
			roleJSONPatch("SCOPE-other", "/metadata/name", "SCOPE-worker"),
		}}},
	},
	"overlay that deletes the role": {
		objects: documents(roleWithRules("SCOPE-worker", configMapRules), workersBinding),
		overlays: []v1alpha1.Overlay{{Patches: []v1alpha1.Patch{{
			Patch: "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: SCOPE-worker}\n$patch: delete\n",
		}}}},
	},
	"overlay that takes the rules away": {
		objects: documents(roleWithRules("SCOPE-worker", configMapRules), workersBinding),
		overlays: []v1alpha1.Overlay{{Patches: []v1alpha1.Patch{{
			Target: &v1alpha1.PatchTarget{Kind: "Role"}, Patch: `[{"op": "remove", "path": "/rules"}]`,
		}}}},
	},
	"overlay that rebinds": {
		objects: documents(roleWithRules("SCOPE-narrow", configMapRules),
			bindingToRole("workers", "SCOPE-narrow", "SCOPE-victim")),
		overlays: []v1alpha1.Overlay{{Patches: []v1alpha1.Patch{{
			Target: &v1alpha1.PatchTarget{Kind: "RoleBinding"},
			Patch:  `[{"op": "replace", "path": "/roleRef/name", "value": "SCOPE-worker"}]`,
		}}}},
	},
	"role that the cluster refuses": {
		objects: documents(roleWithRules("SCOPE-worker", configMapRules), workersBinding), refuseRoles: true,
	},
	"role that the cluster refuses, ignored": {
		objects: documents(roleWithRules("SCOPE-worker", configMapRules), workersBinding), refuseRoles: true,
		change: []func(*v1alpha1.NamespaceTemplate){ignoresFailures},
	},
	"role that the cluster refuses, reported": {
		objects: documents(roleWithRules("SCOPE-worker", configMapRules), workersBinding), refuseRoles: true,
		change: []func(*v1alpha1.NamespaceTemplate){reportsDrift},
	},
	"role that the cluster refuses, bound by a name": {objects: documents(roleWithRules("SCOPE-$(NAMESPACE)",
		configMapRules),
		bindingToRole("workers", "SCOPE-$(NAMESPACE)", "SCOPE-victim")),
		existing:    roleWithRules("SCOPE-NAMESPACE", secretRules),
		refuseRoles: true},
	"role without rules": {objects: documents(roleWithRules("SCOPE-worker", ""), workersBinding)},
	"role with rules that are null": {objects: documents(roleWithRules("SCOPE-worker", "rules: null"),
		workersBinding)},
	"role with rules that are empty": {objects: documents(roleWithRules("SCOPE-worker", "rules: []"),
		workersBinding)},
	"role that a user has widened before": {objects: documents(roleWithRules("SCOPE-worker", configMapRules),
		workersBinding)},
	"role that a user has widened before, reported": {
		objects: documents(roleWithRules("SCOPE-worker", configMapRules), workersBinding),
		change:  []func(*v1alpha1.NamespaceTemplate){reportsDrift},
	},
	"role that is not declared": {objects: workersBinding},
	"role that is refused for its owner": {
		objects: documents(strings.Replace(roleWithRules("SCOPE-worker", configMapRules), "{name: SCOPE-worker}",
			"{name: SCOPE-worker, ownerReferences: [{apiVersion: v1, kind: Pod, name: x, uid: ''}]}", 1),
			workersBinding),
	},
	"role that a creator's name makes invalid": {
		objects: documents(strings.Replace(roleWithRules("SCOPE-worker", configMapRules), "{name: SCOPE-worker}",
			"{name: SCOPE-worker, labels: {a: $(CREATOR)}}", 1), workersBinding),
	},
	"role in a list": {
		objects: documents(
			"\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleList\nmetadata: {name: SCOPE-worker}\nitems: []\n",
			workersBinding),
	},
	"roleRef that is changed to a role that is refused": {
		objects: documents(roleWithRules("SCOPE-narrow", configMapRules),
			bindingToRole("workers", "SCOPE-narrow", "SCOPE-victim")),
		later: func(s *testScope, author client.Client, template *v1alpha1.NamespaceTemplate) {
			replaceObjectsAs(s, author, template,
				documents(roleWithRules("SCOPE-narrow", configMapRules),
					withRBACVersion("v1beta1", roleWithRules("SCOPE-worker", configMapRules)),
					workersBinding))
		},
	},
	"subject that is added after the role is widened and reported": {
		objects: documents(roleWithRules("SCOPE-mine", configMapRules), bindingToRole("mine", "SCOPE-mine", "nobody")),
		change:  []func(*v1alpha1.NamespaceTemplate){reportsDrift},
		later: func(s *testScope, author client.Client, template *v1alpha1.NamespaceTemplate) {
			for _, ns := range []string{s.name("late"), s.name("new")} {
				widened := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: s.name("mine")}}
				body := mergePatch(`{"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}`)
				require.NoError(s.t, s.client.Patch(s.t.Context(), widened, body))
			}
			s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
				assert.EqualValues(c, 2, status.Namespaces.Drifted)
			})
			replaceObjectsAs(s, author, template,
				documents(roleWithRules("SCOPE-mine", configMapRules),
					bindingToRole("mine", "SCOPE-mine", "SCOPE-victim")))
		},
	},
}

// workersBinding binds the Role SCOPE-worker to SCOPE-victim.
var workersBinding = bindingToRole("workers", "SCOPE-worker", "SCOPE-victim")

func withRBACVersion(version, object string) string {
	return strings.Replace(object, "rbac.authorization.k8s.io/v1\n", "rbac.authorization.k8s.io/"+version+"\n", 1)
}

func withLargeAnnotation(object string, size int) string {
	return strings.Replace(object, "metadata: {", "metadata: {annotations: {a: '"+strings.Repeat("x", size)+"'}, ", 1)
}

func roleJSONPatch(role, path, value string) v1alpha1.Patch {
	return v1alpha1.Patch{
		Target: &v1alpha1.PatchTarget{Kind: "Role", Name: role},
		Patch:  fmt.Sprintf(`[{"op": "add", "path": %q, "value": %q}]`, path, value),
	}
}

func roleOverlay(path, value string) []v1alpha1.Overlay {
	return []v1alpha1.Overlay{{Patches: []v1alpha1.Patch{roleJSONPatch("SCOPE-worker", path, value)}}}
}

// Each template is either denied, or populated such that the victim never has more permissions than the author. The
// names of Roles contain the scope's id, because Roles that several templates declare are tested elsewhere.
func TestBindingNeverGrantsMoreThanItsAuthorHolds(t *testing.T) {
	marks.OnEveryVersion(t)
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t)
	for name, attack := range bindingAttacks {
		t.Run(name, func(t *testing.T) {
			s := newScope(t, cluster)
			runBindingAttack(s, attack)
		})
	}
}

// runBindingAttack creates the template as its author, and fails if the victim could read Secrets at any moment.
func runBindingAttack(s *testScope, attack bindingAttack) {
	s.t.Helper()
	recorder := newRecorder(s.t, s.testCluster, s.id, rbacKinds...)
	author := s.newTemplateAuthor("author", rbacRule, readConfig)
	late, created := s.newNamespace("late"), s.newNamespace("new", withCreator("jane@example.com"))
	if attack.refuseRoles {
		denyOperatorRoles(s, late, created)
	}
	existing := func(ns *corev1.Namespace) string {
		return strings.NewReplacer("SCOPE", s.id, "NAMESPACE",
			ns.Name).Replace(cmp.Or(attack.existing, roleWithRules("SCOPE-worker", secretRules)))
	}
	delete(late.Labels, testLabel)
	require.NoError(s.t, s.createAsCreator(late))
	s.createObjects(late.Name, existing(late))

	template := s.newTemplate("attack", attack.objects, attack.change...)
	for i, overlay := range attack.overlays {
		overlay.Name, overlay.Namespaces = fmt.Sprint("overlay-", i), template.Spec.Namespaces
		template.Spec.Overlays = append(template.Spec.Overlays, overlay)
	}
	replacePlaceholders(s, template)
	if err := author.Create(s.t.Context(), template); err != nil {
		s.expectDenied(err)
		return
	}
	s.waitTemplateObserved(template)
	s.patchNamespace(late, `{"metadata": {"labels": {"`+testLabel+`": "`+s.id+`"}}}`)
	require.NoError(s.t, s.createAsCreator(created))
	settler := &settler{client: s.client, id: s.id}
	require.NoError(s.t, settler.settle(s.t.Context(), late.Name, created.Name))
	// An administrator creates the Role in the other namespace too, in case the binding waits for it.
	for _, object := range parseYAML(s.t, existing(created)) {
		object.SetNamespace(created.Name)
		require.NoError(s.t, client.IgnoreAlreadyExists(s.client.Create(s.t.Context(), object)))
	}
	if attack.later != nil {
		attack.later(s, author, template)
	}
	require.NoError(s.t, settler.settle(s.t.Context(), late.Name, created.Name))
	expectNeverGranted(s, recorder, s.name("victim"), readSecrets, late, created)
}

// Bindings that the author may grant are populated in many namespaces, even if a user had widened the Role before. At
// no moment do they grant more than the declared Role and ClusterRole.
func TestBindingGrantsWhatItsAuthorHolds(t *testing.T) {
	marks.OnEveryVersion(t)
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	recorder := newRecorder(t, s.testCluster, s.id, rbacKinds...)
	author := s.newTemplateAuthor("author", rbacRule, readConfig,
		policyRule("bind", rbacv1.GroupName, "clusterroles", "view"))
	victim := s.name("victim")
	var namespaces []*corev1.Namespace
	for i := range 12 {
		ns := s.newNamespace(fmt.Sprint("late-", i))
		delete(ns.Labels, testLabel)
		require.NoError(t, s.createAsCreator(ns))
		s.createObjects(ns.Name, roleWithRules("worker", secretRules))
		namespaces = append(namespaces, ns)
	}
	viewers := strings.NewReplacer("kind: Role,",
		"kind: ClusterRole,").Replace(bindingToRole("viewers", "view", s.name("viewer")))
	objects := documents(bindingToRole("workers", "worker", victim), roleWithRules("worker", configMapRules),
		roleWithRules("$(NAMESPACE)", "rules: []"),
		bindingToRole("nothing", "$(NAMESPACE)", victim), viewers)
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
		s.eventually(func(c *assert.CollectT) { // until the API server knows the bindings
			assert.True(c, s.isAllowed(victim, ns.Name, "get", "configmaps"))
			assert.True(c, s.isAllowed(s.name("viewer"), ns.Name, "list", "pods"))
		})
	}
	expectNeverGranted(s, recorder, victim, readSecrets, namespaces...)
}

// A Role that several templates declare is bound only for authors who could bind it, whichever template is first by
// name or by creation. Their binding is populated.
func TestRoleOfAnotherTemplateIsNotBound(t *testing.T) {
	marks.OnEveryVersion(t)
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t)
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		for _, order := range []string{
			"author first", "administrator first", "author first, elsewhere", "author first, disabled",
			"author first, in an overlay",
		} {
			t.Run(fmt.Sprintf("author's %s, administrator's %s, %s", names[0], names[1], order), func(t *testing.T) {
				bindRoleOfAnotherTemplate(newScope(t, cluster), names[0], names[1], order)
			})
		}
	}
}

// bindRoleOfAnotherTemplate creates a template that binds an empty Role, and a template of an administrator that
// declares the same Role with rules.
func bindRoleOfAnotherTemplate(s *testScope, authors, administrators, order string) {
	s.t.Helper()
	recorder := newRecorder(s.t, s.testCluster, s.id, rbacKinds...)
	author := s.newTemplateAuthor("author", rbacRule, readConfig)
	squatting := s.newTemplate(authors, documents(roleWithRules("SCOPE-worker", "rules: []"), workersBinding))
	declared := s.newTemplate(administrators,
		documents(roleWithRules("SCOPE-worker", secretRules),
			bindingToRole("SCOPE-team", "SCOPE-worker", "SCOPE-member")))
	ns := s.newNamespace("n")
	switch order {
	case "author first, elsewhere":
		squatting.Spec.Namespaces = selectLabel("no", "namespace")
	case "author first, disabled":
		squatting.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
	case "author first, in an overlay":
		declared.Spec.Templates = rawObjects(s.t,
			documents(roleWithRules("SCOPE-worker", "rules: []"),
				bindingToRole("SCOPE-team", "SCOPE-worker", "SCOPE-member")))
		declared.Spec.Overlays = []v1alpha1.Overlay{{Name: "wide", Namespaces: declared.Spec.Namespaces,
			Patches: []v1alpha1.Patch{{
				Target: &v1alpha1.PatchTarget{Kind: "Role"},
				Patch:  `[{"op": "replace", "path": "/rules", "value": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}]`,
			}}}}
	}
	replacePlaceholders(s, squatting)
	replacePlaceholders(s, declared)
	if order == "administrator first" {
		require.NoError(s.t, s.client.Create(s.t.Context(), declared))
		s.waitTemplateObserved(declared)
	}
	require.NoError(s.t, s.createAsCreator(ns))
	err := author.Create(s.t.Context(), squatting)
	if err != nil {
		s.expectDenied(err)
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
			mergePatch(body)); err != nil {
			s.expectDenied(err)
		}
	}
	require.NoError(s.t, (&settler{client: s.client, id: s.id}).settle(s.t.Context(), ns.Name))
	expectNeverGranted(s, recorder, s.name("victim"), readSecrets, ns)
	if administrators > authors || err != nil {
		s.eventually(func(c *assert.CollectT) {
			assert.True(c, s.isAllowed(s.name("member"), ns.Name, "get", "secrets"))
		})
	}
}

// replacePlaceholders replaces SCOPE in a template by the scope's id.
func replacePlaceholders(s *testScope, template *v1alpha1.NamespaceTemplate) {
	s.t.Helper()
	data, err := json.Marshal(template)
	require.NoError(s.t, err)
	*template = v1alpha1.NamespaceTemplate{}
	require.NoError(s.t, json.Unmarshal(bytes.ReplaceAll(data, []byte("SCOPE"), []byte(s.id)), template))
}

// expectNeverGranted fails if RoleBindings granted a user the permission at any recorded moment, or grant it now.
func expectNeverGranted(s *testScope,
	recorder *recorder, user string, right rbacv1.PolicyRule, namespaces ...*corev1.Namespace,
) {
	s.t.Helper()
	_, err := recorder.waitRecorded(s.t.Context())
	require.NoError(s.t, err)
	records := recorder.finishRecords(s.id)
	for _, ns := range namespaces {
		held := escalation.Author{Rules: escalation.Granted(records, nil, ns.Name, userSubject(user))}
		assert.False(s.t, held.Holds([]rbacv1.PolicyRule{right}), "%s was granted in namespace %s: %v", user, ns.Name,
			held.Rules)
		assert.False(s.t, s.isAllowed(user, ns.Name, right.Verbs[0], right.Resources[0]), "%s may in namespace %s: %v",
			user,
			ns.Name, right)
	}
}

// replaceObjectsAs replaces the objects of a template as a user. The request may be denied.
func replaceObjectsAs(s *testScope, user client.Client, template *v1alpha1.NamespaceTemplate, objects string) {
	s.t.Helper()
	changed := template.DeepCopy()
	changed.Spec.Templates = rawObjects(s.t, objects)
	replacePlaceholders(s, changed)
	if err := user.Patch(s.t.Context(), changed, client.MergeFrom(template)); err != nil {
		s.expectDenied(err)
		return
	}
	s.waitTemplateObserved(changed)
}

// denyOperatorRoles has the API server deny the Roles that the operator writes in some namespaces, as a policy of the
// cluster might. It labels the namespaces, which are not created yet.
func denyOperatorRoles(s *testScope, namespaces ...*corev1.Namespace) {
	s.t.Helper()
	for _, ns := range namespaces {
		ns.Labels["refuse-roles"] = s.id
	}
	s.applyYAML(strings.ReplaceAll(denyRolesPolicy, "SCOPE", s.id))
	probe := s.newNamespace("probe", withLabel("refuse-roles", s.id))
	require.NoError(s.t, s.createAsCreator(probe))
	operator := s.impersonate(s.t, operatorUser)
	s.eventually(func(c *assert.CollectT) { // until the API server enforces the policy
		_, err := operator.RbacV1().Roles(probe.Name).Create(s.t.Context(),
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "probe"}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		assert.True(c, apierrors.IsInvalid(err), "%v", err)
	})
}

const denyRolesPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: SCOPE}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {refuse-roles: SCOPE}}
    resourceRules: [{apiGroups: [rbac.authorization.k8s.io], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [roles]}]
  matchConditions: [{name: operator, expression: "request.userInfo.username == '` + operatorUser + `'"}]
  validations: [{expression: "false", message: "this cluster takes no Roles from the operator here"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: SCOPE}
spec: {policyName: SCOPE, validationActions: [Deny]}
`
