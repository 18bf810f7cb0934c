package integration_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// newSources creates a namespace for sources, which no template selects.
func newSources(s *testScope) *corev1.Namespace {
	s.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name("vault")}}
	require.NoError(s.t, s.client.Create(s.t.Context(), ns))
	s.waitInitialized(ns)
	return ns
}

// letGet lets a subject get the named objects of a resource, such as secrets or cronjobs.batch, in a namespace, and
// returns the RoleBinding.
func letGet(s *testScope,
	ns *corev1.Namespace, subject rbacv1.Subject, resource string, names ...string,
) *rbacv1.RoleBinding {
	s.t.Helper()
	of := schema.ParseGroupResource(resource)
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "get-", Namespace: ns.Name},
		Rules:      []rbacv1.PolicyRule{policyRule("get", of.Group, of.Resource, names...)},
	}
	require.NoError(s.t, s.client.Create(s.t.Context(), role))
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name, Namespace: ns.Name}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
	}
	require.NoError(s.t, s.client.Create(s.t.Context(), binding))
	user := subject.Name
	if subject.Kind == rbacv1.ServiceAccountKind {
		user = "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
	}
	s.eventually(func(c *assert.CollectT) {
		for _, name := range names {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: ns.Name, Verb: "get", Group: of.Group, Resource: of.Resource, Name: name,
				},
			}}
			assert.NoError(c, s.client.Create(s.t.Context(), review))
			assert.True(c, review.Status.Allowed)
		}
	})
	return binding
}

// letOperatorGet grants what the documentation says: the verb get on single names.
func letOperatorGet(s *testScope, ns *corev1.Namespace, resource string, names ...string) *rbacv1.RoleBinding {
	s.t.Helper()
	return letGet(s, ns, accountSubject(v1alpha1.OperatorNamespace, v1alpha1.OperatorServiceAccount), resource, names...)
}

// copies has a template copy sources.
func copies(sources ...v1alpha1.Source) func(*v1alpha1.NamespaceTemplate) {
	return func(template *v1alpha1.NamespaceTemplate) { template.Spec.Sources = sources }
}

func sourceOf(kind string, ns *corev1.Namespace, name string) v1alpha1.Source {
	return v1alpha1.Source{APIVersion: "v1", Kind: kind, Namespace: ns.Name, Name: name}
}

// secret returns a Secret with a value.
func secret(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s}\ndata: {token: %s}\n", name,
		base64.StdEncoding.EncodeToString([]byte(value)))
}

// setValue changes the value of a Secret, or of a ConfigMap.
func setSourceValue(s *testScope, ns *corev1.Namespace, object string) {
	s.t.Helper()
	for _, changed := range parseYAML(s.t, object) {
		body, err := json.Marshal(map[string]any{"data": changed.Object["data"]})
		require.NoError(s.t, err)
		require.NoError(s.t, s.client.Patch(s.t.Context(), s.mustGet(ns, changed), mergePatch(string(body))))
	}
}

func TestCopiesFollowTheirSource(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	vault := newSources(s)
	s.createObjects(vault.Name, `
apiVersion: v1
kind: Secret
metadata: {name: pull, labels: {own: label}, annotations: {own: annotation}}
type: kubernetes.io/dockerconfigjson
data: {.dockerconfigjson: e30K, literal: JChOQU1FU1BBQ0Up}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ca}
data: {ca.crt: $(NAMESPACE)}
binaryData: {jks: AAEC}
`)
	letOperatorGet(s, vault, "secrets", "pull")
	letOperatorGet(s, vault, "configmaps", "ca")
	pull := sourceOf("Secret", vault, "pull")
	pull.As, pull.Labels = "pull-$(NAMESPACE)", map[string]string{"of": "$(NAMESPACE)"}
	pull.Annotations = map[string]string{"example.com/by": "$(CREATOR)"}
	template := s.createTemplate("copies", configMap("a", "v"), copies(pull, sourceOf("ConfigMap", vault, "ca")))
	ns := s.createPopulatedNamespace("n", withCreator("jane@example.com"))
	copied := "apiVersion: v1\nkind: Secret\nmetadata: {name: pull-" + ns.Name + "}\n"
	s.waitPresent(ns, documents(configMap("a", "v"), copied+`type: kubernetes.io/dockerconfigjson
data: {.dockerconfigjson: e30K, literal: JChOQU1FU1BBQ0Up}
`, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ca}\ndata: {ca.crt: $(NAMESPACE)}\nbinaryData: {jks: AAEC}\n"))
	found := s.mustGet(ns, parseYAML(t, copied)[0])
	require.Equal(t, map[string]string{"of": ns.Name, v1alpha1.TemplateNameLabel: template.Name}, found.GetLabels())
	require.Equal(t, "jane@example.com", found.GetAnnotations()["example.com/by"])
	require.Equal(t, vault.Name+"/pull", found.GetAnnotations()[v1alpha1.CopyOfAnnotation])
	require.NotContains(t, found.GetAnnotations(), "own")

	// A change of the source is one write in each namespace, and no revision of the template.
	position := s.auditPosition()
	changed := "apiVersion: v1\nkind: Secret\nmetadata: {name: NAME}\ndata: {literal: YQ==}\n"
	setSourceValue(s, vault, strings.Replace(changed, "NAME", "pull", 1))
	s.waitPresent(ns, strings.Replace(changed, "NAME", "pull-"+ns.Name, 1))
	setSourceValue(s, vault, configMap("ca", "v"))
	s.waitPresent(ns, configMap("ca", "v"))
	require.Len(t, s.writesSince(position, func(r request) bool { return r.ObjectRef.Namespace == ns.Name }), 2)
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		if assert.Len(c, status.Revisions, 1) {
			assert.EqualValues(c, 1, status.Revisions[0].Revision)
		}
		assert.EqualValues(c, 1, status.Namespaces.Populated)
	})

	// Users of the namespace cannot change a copy, nor what it is a copy of.
	require.NoError(t, s.client.Patch(t.Context(), s.mustGet(ns, found), mergePatch(
		`{"data": {"literal": "Yg=="}, "metadata": {"annotations": {"`+v1alpha1.CopyOfAnnotation+`": "a/b"}}}`)))
	s.waitPresent(ns, strings.Replace(changed, "NAME", "pull-"+ns.Name, 1))
	s.eventually(func(c *assert.CollectT) {
		assert.Equal(c, vault.Name+"/pull", s.mustGet(ns, found).GetAnnotations()[v1alpha1.CopyOfAnnotation])
	})

	// A copy that the template no longer declares is pruned.
	s.updateTemplate(template, copies(sourceOf("ConfigMap", vault, "ca")))
	s.waitAbsent(ns, copied)
	s.waitPresent(ns, configMap("ca", "v"))
}

func TestImmutableCopiesAreReplaced(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	vault := newSources(s)
	const immutable = "immutable: true\n"
	s.createObjects(vault.Name, documents(secret("a", "1")+immutable, configMap("b", "1")+immutable))
	letOperatorGet(s, vault, "secrets", "a")
	letOperatorGet(s, vault, "configmaps", "b")
	s.createTemplate("copies", "", copies(sourceOf("Secret", vault, "a"), sourceOf("ConfigMap", vault, "b")))
	ns := s.createPopulatedNamespace("n")
	s.waitPresent(ns, documents(secret("a", "1")+immutable, configMap("b", "1")+immutable))

	s.deleteIn(vault, documents(secret("a", ""), configMap("b", "")))
	s.waitNotPopulated(ns, "does not exist")
	s.createObjects(vault.Name, documents(secret("a", "2")+"type: example.com/b\n", configMap("b", "2")))
	s.waitPresent(ns, documents(secret("a", "2")+"type: example.com/b\n", configMap("b", "2")))
	s.waitPopulated(ns)
}

func TestAMissingSourceIsReportedAndCopiedOnceItExists(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	vault := newSources(s)
	letOperatorGet(s, vault, "secrets", "pull")
	template := s.createTemplate("copies", configMap("a", "v"), copies(sourceOf("Secret", vault, "pull")))
	s.createTemplate("other", configMap("b", "v"))
	ns := s.createNamespace("n")
	message := "the source secret/pull in namespace " + vault.Name + " does not exist: create it"
	s.waitNotPopulated(ns, message)
	s.waitPresent(ns, documents(configMap("a", "v"), configMap("b", "v")))
	s.waitAbsent(ns, secret("pull", ""))
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.EqualValues(c, 1, status.Namespaces.Failed)
		if assert.Len(c, status.Failures, 1) {
			assert.Equal(c, "secret/pull", status.Failures[0].Object)
			assert.Contains(c, status.Failures[0].Message, message)
		}
	})
	s.createObjects(vault.Name, secret("pull", "v"))
	s.waitPopulated(ns)
	s.waitPresent(ns, secret("pull", "v"))

	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		ignoresFailures(template)
		template.Spec.Sources = append(template.Spec.Sources, sourceOf("Secret", vault, "pull"))
		template.Spec.Sources[1].As = "again"
	})
	s.waitPresent(ns, secret("again", "v"))
	s.deleteIn(vault, secret("pull", ""))
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionTrue, condition.Status, "failurePolicy is Ignore")
		assert.Contains(c, condition.Message, message)
	})
}

func TestALostSourceFollowsTheDeletionPolicy(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	vault := newSources(s)
	s.createObjects(vault.Name, documents(secret("a", "1"), secret("b", "1")))
	letOperatorGet(s, vault, "secrets", "a")
	lost := letOperatorGet(s, vault, "secrets", "b")
	renamed := func(name, as string) v1alpha1.Source {
		source := sourceOf("Secret", vault, name)
		source.As = as
		return source
	}
	s.createTemplate("deletes", "", deletesObjects, copies(renamed("a", "delete-a"), renamed("b", "delete-b")))
	s.createTemplate("orphans", "", copies(renamed("a", "orphan-a"), renamed("b", "orphan-b")))
	existing := s.newNamespace("n")
	require.NoError(t, s.client.Create(t.Context(), existing))
	s.waitPopulated(existing)
	all := documents(secret("delete-a", "1"), secret("delete-b", "1"), secret("orphan-a", "1"), secret("orphan-b", "1"))
	s.waitPresent(existing, all)

	s.deleteIn(vault, secret("a", ""))
	s.waitAbsent(existing, secret("delete-a", ""))
	s.waitNotPopulated(existing, "secret/orphan-a")
	s.waitNotPopulated(existing, "secret/delete-a")
	s.waitPresent(existing, documents(secret("orphan-a", "1"), secret("delete-b", "1"), secret("orphan-b", "1")))

	// An API server that has just started denies everything for a moment, so the right is lost only after a while. The
	// source can be read meanwhile if the right comes back.
	began := time.Now()
	s.delete(lost)
	s.waitAbsent(existing, secret("delete-b", ""))
	require.Greater(t, time.Since(began), 25*time.Second)
	s.waitNotPopulated(existing, `the operator may not get secrets "b" in namespace `+vault.Name)
	s.waitPresent(existing, documents(secret("orphan-a", "1"), secret("orphan-b", "1")))
	letOperatorGet(s, vault, "secrets", "b")
	s.createObjects(vault.Name, secret("a", "2"))
	s.waitPopulated(existing)
	s.waitPresent(existing, documents(secret("delete-a", "2"), secret("orphan-a", "2"), secret("delete-b", "1")))
}

// A template's author needs the right to get each source, at each edit.
func TestAdmissionOfTemplatesRequiresGetOnSources(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	vault := newSources(s)
	s.createObjects(vault.Name, documents(secret("pull", "v"), secret("other", "v")))
	letOperatorGet(s, vault, "secrets", "pull", "other")
	writesSecrets := policyRule("create patch delete", "", "secrets")
	author, editor := s.newTemplateAuthor("author", writesSecrets), s.newTemplateAuthor("editor", writesSecrets)
	denial := `may not get secrets "pull" in namespace "` + vault.Name + `", which spec.sources copies`
	template := s.newTemplate("copies", "", copies(sourceOf("Secret", vault, "pull")))
	expectForbidden(t, author.Create(t.Context(), template.DeepCopy()), denial)
	letGet(s, vault, userSubject(s.name("author")), "secrets", "pull")
	reader := s.newTemplateAuthor("reader", policyRule("get list watch", "", "secrets"))
	expectForbidden(t, reader.Create(t.Context(), template.DeepCopy()), "may not create or patch secrets")
	require.NoError(t, author.Create(t.Context(), template))

	change := func(user client.Client, change func(*v1alpha1.NamespaceTemplate)) error {
		stored := &v1alpha1.NamespaceTemplate{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(template), stored))
		changed := stored.DeepCopy()
		change(changed)
		return user.Patch(t.Context(), changed, client.MergeFrom(stored))
	}
	for name, edit := range map[string]func(*v1alpha1.NamespaceTemplate){
		"another selector": func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Namespaces = selectLabel(testLabel, s.name("elsewhere"))
		},
		"another name":   func(template *v1alpha1.NamespaceTemplate) { template.Spec.Sources[0].As = "mine" },
		"another object": withObjects(t, secret("a", "v")),
		"an overlay": func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Overlays = []v1alpha1.Overlay{{
				Name: "a", Namespaces: template.Spec.Namespaces, Labels: map[string]string{"a": "b"},
			}}
		},
	} {
		expectForbidden(t, change(editor, edit), denial)
		require.NoError(t, change(author, edit), name)
	}
	other := copies(sourceOf("Secret", vault, "other"))
	expectForbidden(t, change(author, other), `may not get secrets "other"`)
	require.NoError(t, change(editor, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Rollout = &v1alpha1.Rollout{Paused: true}
	}), "a pause copies nothing")

	// A template that was disabled is vetted as a whole when it is enabled.
	require.NoError(t, change(editor, disablesTemplate))
	expectForbidden(t, change(editor, func(template *v1alpha1.NamespaceTemplate) { template.Annotations = nil }), denial)

	// Neither do other ways of writing the same template help.
	for name, source := range map[string]v1alpha1.Source{
		"a token": {APIVersion: "v1", Kind: "Secret", Namespace: "$(NAMESPACE)", Name: "pull"},
		"a Role":  {APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role", Namespace: vault.Name, Name: "a"},
		"a path":  {APIVersion: "v1", Kind: "Secret", Namespace: vault.Name, Name: "x/../pull", As: "a"},
	} {
		err := s.client.Create(t.Context(), s.newTemplate("forged", "", copies(source)))
		require.Error(t, err, name)
		require.ErrorContains(t, err, "spec.sources[0]", name)
	}
}

// The operator reads a source only by a right to get that object. Its rights to populate the kind do not suffice.
func TestTheOperatorNeedsGetOnSources(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	vault := newSources(s)
	s.createObjects(vault.Name, documents(secret("pull", "v"), configMap("ca", "v")))
	letOperatorGet(s, vault, "secrets", "another")
	template := s.newTemplate("copies", "", copies(sourceOf("Secret", vault, "pull")))
	err := s.client.Create(t.Context(), template.DeepCopy())
	expectForbidden(t, err, `the operator may not get secrets "pull" in namespace `+vault.Name+": grant that with")
	expectForbidden(t, s.client.Create(t.Context(), s.newTemplate("config", "",
		copies(sourceOf("ConfigMap", vault, "ca")))), `the operator may not get configmaps "ca"`)

	// The commands of the message grant the right.
	for part := range strings.SplitSeq(err.Error(), "'") {
		if arguments, isCommand := strings.CutPrefix(part, "kubectl "); isCommand {
			_, err := s.kubectl(t.Context(), "", strings.Fields(arguments)...)
			require.NoError(t, err)
		}
	}
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, s.client.Create(t.Context(), template.DeepCopy())) })
	ns := s.createPopulatedNamespace("n")
	s.waitPresent(ns, secret("pull", "v"))
}

func TestASourceInASelectedNamespaceIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	vault := s.createNamespace("vault")
	s.waitInitialized(vault)
	s.createObjects(vault.Name, secret("pull", "v"))
	before := s.mustGet(vault, parseYAML(t, secret("pull", ""))[0])
	letOperatorGet(s, vault, "secrets", "pull")
	template := s.createTemplate("copies", configMap("a", "v"), deletesObjects, copies(sourceOf("Secret", vault, "pull")))
	ns := s.createPopulatedNamespace("n")
	s.waitPresent(ns, secret("pull", "v"))
	s.waitPresent(vault, configMap("a", "v"))
	s.waitPopulated(vault)
	require.Equal(t, before.Object, s.mustGet(vault, before).Object)
	require.NoError(t, s.client.Delete(t.Context(), template))
	s.waitDeleted(template)
	s.waitAbsent(ns, secret("pull", ""))
	require.Equal(t, before.Object, s.mustGet(vault, before).Object)
}

func TestObjectsThatCannotBeCopied(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	vault := newSources(s)
	s.createObjects(vault.Name, documents("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: robot}\n", `
apiVersion: v1
kind: Secret
metadata: {name: token, annotations: {kubernetes.io/service-account.name: robot}}
type: kubernetes.io/service-account-token
`, secret("pull", "v")))
	letOperatorGet(s, vault, "secrets", "token", "pull")
	s.createTemplate("token", "", copies(sourceOf("Secret", vault, "token")))
	ns := s.createNamespace("n")
	s.waitNotPopulated(ns, "it has the type kubernetes.io/service-account-token")
	s.waitAbsent(ns, secret("token", ""))

	s.createTemplate("first", "", copies(sourceOf("Secret", vault, "pull")))
	s.waitPresent(ns, secret("pull", "v"))
	letOperatorGet(s, ns, "secrets", "pull")
	second := sourceOf("Secret", ns, "pull")
	second.As = "second"
	s.createTemplate("second", "", copies(second))
	s.waitNotPopulated(ns, "it is itself a copy: copy secret/pull in namespace "+vault.Name+" instead")
	s.waitAbsent(ns, secret("second", ""))
}

// Values of sources are nowhere but in the copies and in the memory of the operator, which has no other Secrets.
func TestValuesOfSourcesAreShownNowhere(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	vault := newSources(s)
	const copied, other = "copied-value-4f1d", "foreign-value-9c2e"
	// The value is in a name, so that the API server quotes it.
	s.createObjects(vault.Name, documents(
		secret("pull", copied)+"stringData: {.dockerconfigjson: '{\"auths\": {}}'}\ntype: kubernetes.io/dockerconfigjson\n",
		secret("other", other),
		`{apiVersion: v1, kind: Secret, metadata: {name: other-2, annotations: {a: `+other+`}}}`))
	letOperatorGet(s, vault, "secrets", "pull")
	template := s.createTemplate("copies", secret("declared", "v"), copies(sourceOf("Secret", vault, "pull")))
	ns := s.createPopulatedNamespace("n")
	s.createObjects(ns.Name, documents(secret("user", other), secret("user-2", other)))
	s.waitPresent(ns, secret("pull", copied))

	// A copy that the API server rejects: the namespace has a Secret of another type, which nstpl did not create.
	rejecting := s.createNamespace("m", func(ns *corev1.Namespace) { ns.Labels = nil })
	s.waitInitialized(rejecting)
	s.createObjects(rejecting.Name, secret("pull", other))
	rejecting.Labels = map[string]string{testLabel: s.id}
	s.applyLabels(rejecting)
	s.waitNotPopulated(rejecting, "secret/pull")
	s.restartOperator(t)
	setSourceValue(s, vault, secret("pull", copied+"-2"))
	s.waitPresent(ns, secret("pull", copied+"-2"))

	requireNotShown(s, template, copied, ns, rejecting, vault)
	requireNotShown(s, template, other, ns, rejecting, vault)
	requireNotInMemory(t, s.operator.PID(), other)
}

// What the API server says about a copy can quote it, whatever its kind: why it denies a write or a deletion, and
// warnings, which clients log by default.
func TestMessagesOfTheAPIServerShowNoValuesOfSources(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	policy := func(name, action, operations, object, valid string) string {
		return strings.NewReplacer("NAME", name, "ACTION", action, "OPERATIONS", operations, "OBJECT", object,
			"VALID", valid, "LABEL", testLabel).Replace(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints:
    namespaceSelector: {matchExpressions: [{key: LABEL, operator: Exists}]}
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [OPERATIONS]}
  validations:
  - {expression: "VALID", messageExpression: "'it has ' + OBJECT.data.key"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME, validationActions: [ACTION]}
`)
	}
	s.applyYAML(documents(
		policy("denied", "Deny", "CREATE, UPDATE", "object", "object.metadata.name != 'denied'"),
		policy("kept", "Deny", "DELETE", "oldObject", "oldObject.metadata.name != 'kept'"),
		policy("warned", "Warn", "CREATE, UPDATE", "object", "!has(object.data.key)"),
	))
	ns := s.createNamespace("n")
	s.waitInitialized(ns)
	prober, warnings := s.newWarnedUser("prober", "system:masters")
	s.eventually(func(c *assert.CollectT) {
		probe := parseYAML(t, documents(configMap("warned", "v"), configMap("denied", "v")))
		probe[0].SetNamespace(ns.Name)
		probe[1].SetNamespace(ns.Name)
		assert.NoError(c, prober.Create(t.Context(), probe[0], client.DryRunAll))
		assert.Contains(c, strings.Join(warnings.drain(), " "), "it has v")
		assert.ErrorContains(c, prober.Create(t.Context(), probe[1], client.DryRunAll), "it has v")
	})
	const value = "copied-value-7a0b"
	vault := newSources(s)
	s.createObjects(vault.Name, documents(configMap("denied", value), configMap("kept", value), configMap("warned", value)))
	letOperatorGet(s, vault, "configmaps", "denied", "kept", "warned")
	template := s.createTemplate("copies", "", deletesObjects, copies(sourceOf("ConfigMap", vault, "denied"),
		sourceOf("ConfigMap", vault, "kept"), sourceOf("ConfigMap", vault, "warned")))
	s.waitNotPopulated(ns, "configmap/denied of template "+template.Name+": the API server answered with status 422")
	s.waitPresent(ns, documents(configMap("kept", value), configMap("warned", value)))
	s.deleteIn(vault, documents(configMap("kept", "")))
	s.waitNotPopulated(ns, "configmap/kept: the API server answered with status 422, and its "+
		"message may contain values of the ConfigMap: delete the ConfigMap yourself with --dry-run=server to read it")
	requireNotShown(s, template, value, ns, vault)
}

// An edit that enables a template lets its earlier revisions into force, too, where the rollout has not reached.
func TestEnablingATemplateRequiresTheRightsOfItsEarlierRevisions(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	vault := newSources(s)
	s.createObjects(vault.Name, secret("pull", "v"))
	letOperatorGet(s, vault, "secrets", "pull")
	writes := policyRule("create patch delete", "", "secrets configmaps")
	author, editor := s.newTemplateAuthor("author", writes), s.newTemplateAuthor("editor", writes)
	letGet(s, vault, userSubject(s.name("author")), "secrets", "pull")
	enables := func(template *v1alpha1.NamespaceTemplate) { template.Annotations = nil }
	withoutSources := func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Sources, template.Spec.Rollout = nil, &v1alpha1.Rollout{Paused: true}
		withObjects(t, configMap("a", "v"))(template)
	}
	disabled := func(short string) *v1alpha1.NamespaceTemplate {
		template := s.createTemplate(short, "", copies(sourceOf("Secret", vault, "pull")))
		s.waitRollout(template, v1alpha1.RolloutComplete)
		s.updateTemplate(template, disablesTemplate)
		return template
	}
	change := func(
		user client.Client, template *v1alpha1.NamespaceTemplate, changes ...func(*v1alpha1.NamespaceTemplate),
	) error {
		stored := &v1alpha1.NamespaceTemplate{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(template), stored))
		changed := stored.DeepCopy()
		for _, change := range changes {
			change(changed)
		}
		return user.Patch(t.Context(), changed, client.MergeFrom(stored))
	}
	const denial = "namespaces would have an earlier revision until the rollout reaches them: "
	atOnce, later := disabled("at-once"), disabled("later")
	expectForbidden(t, change(editor, atOnce, withoutSources, enables), denial)
	require.NoError(t, change(editor, later, withoutSources))
	s.waitTemplateStatus(later, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Len(c, status.Revisions, 2)
	})
	expectForbidden(t, change(editor, later, enables), denial+`user "`+s.name("editor")+`" may not get secrets "pull"`)
	require.NoError(t, change(author, atOnce, withoutSources, enables))
	require.NoError(t, change(author, later, enables))

	guarded := s.createTemplate("guarded", "", requiresUse, copies(sourceOf("Secret", vault, "pull")))
	s.waitRollout(guarded, v1alpha1.RolloutComplete)
	expectForbidden(t, change(editor, guarded, withoutSources, enables), denial)
	require.NoError(t, change(author, guarded, withoutSources, enables))
}

// requireNotShown fails if a value, plain or encoded, is in the operator's log, in an Event, a condition, a status or a
// revision.
func requireNotShown(s *testScope, template *v1alpha1.NamespaceTemplate, value string, namespaces ...*corev1.Namespace) {
	s.t.Helper()
	require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(template), template))
	shown := []any{template, s.operator.Log("")}
	for _, ns := range namespaces {
		require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(ns), ns))
		shown = append(shown, ns)
	}
	for _, list := range []client.ObjectList{&eventsv1.EventList{}, &appsv1.ControllerRevisionList{}} {
		require.NoError(s.t, s.client.List(s.t.Context(), list))
		shown = append(shown, list)
	}
	data, err := json.Marshal(shown)
	require.NoError(s.t, err)
	require.Contains(s.t, string(data), template.Name)
	for _, form := range formsOf(value) {
		require.NotContains(s.t, string(data), form)
	}
}

// formsOf returns a value, and the part of its base64 encoding that does not depend on what follows.
func formsOf(value string) []string {
	encoded := base64.StdEncoding.EncodeToString([]byte(value))
	return []string{value, encoded[:len(value)/3*4]}
}

// requireNotInMemory fails if a value, plain or encoded, is in the memory of a process.
func requireNotInMemory(t *testing.T, pid int, value string) {
	t.Helper()
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	require.NoError(t, err)
	defer memory.Close()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	require.NoError(t, err)
	searched := 0
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var access string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &access); n != 3 || !strings.HasPrefix(access, "rw") {
			continue
		}
		content, err := io.ReadAll(io.NewSectionReader(memory, from, to-from))
		if err != nil {
			continue // a region of the kernel
		}
		searched += len(content)
		for _, form := range formsOf(value) {
			require.False(t, bytes.Contains(content, []byte(form)), "%s is in memory at %x", form, from)
		}
	}
	require.Greater(t, searched, 1<<20)
}

// A restart writes nothing. If sources change or are deleted while no operator runs, the next operator changes or
// deletes the copies.
func TestCopiesSurviveRestarts(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	vault := newSources(s)
	s.createObjects(vault.Name, documents(secret("a", "1"), secret("b", "1")))
	letOperatorGet(s, vault, "secrets", "a", "b")
	template := s.createTemplate("copies", "", deletesObjects,
		copies(sourceOf("Secret", vault, "a"), sourceOf("Secret", vault, "b")))
	ns := s.createPopulatedNamespace("n")
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, metav1.ConditionTrue, templateCondition(status, v1alpha1.ConditionReady).Status)
		assert.EqualValues(c, 1, status.Namespaces.Populated)
	})
	s.expectRestartWritesNothing("namespace")

	require.NoError(t, s.operator.Kill())
	s.deleteIn(vault, secret("a", ""))
	setSourceValue(s, vault, secret("b", "2"))
	require.NoError(t, s.startOperator(t.Context()))
	s.waitAbsent(ns, secret("a", ""))
	s.waitPresent(ns, secret("b", "2"))
}
