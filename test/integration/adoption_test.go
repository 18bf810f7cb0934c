package integration_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/test/marks"
)

// policyTree is a tree of policies: the contents of its files by path.
type policyTree map[string]string

func (f policyTree) addNamespace(path, name string) policyTree {
	f[path+"/namespace.yaml"] = "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + ", labels: {" +
		testLabel + ": x}}\n"
	return f
}

// applyTree does the same as "kubectl nstpl hydrate ROOT | kubectl apply", and returns the output of kubectl.
func applyTree(s *testScope, root string, files policyTree, adopt bool) (string, error) {
	s.t.Helper()
	fs := fstest.MapFS{}
	for path, content := range files {
		content = strings.ReplaceAll(content, testLabel+": x", testLabel+": "+s.id)
		fs[path] = &fstest.MapFile{Data: []byte(content)}
	}
	loaded, err := hierarchy.Load(fs, root)
	require.NoError(s.t, err)
	require.Empty(s.t, loaded.Violations)
	objects, err := loaded.Tree.Compile(v1alpha1.AuthoritativeDelete)
	require.NoError(s.t, err)
	if adopt {
		hierarchy.Adopt(objects)
	}
	var stream bytes.Buffer
	for _, object := range objects {
		document, err := yaml.Marshal(object.Object)
		require.NoError(s.t, err)
		fmt.Fprintf(&stream, "---\n%s", document)
	}
	return s.kubectl(s.t.Context(), stream.String(), "apply", "--filename", "-")
}

func mustApplyTree(s *testScope, root string, files policyTree, adopt bool) {
	s.t.Helper()
	_, err := applyTree(s, root, files, adopt)
	require.NoError(s.t, err)
}

// storedContents returns the stored objects that a YAML text names, without the fields that change at every write.
func storedContents(s *testScope, ns *corev1.Namespace, objects string) []map[string]any {
	s.t.Helper()
	var found []map[string]any
	for _, object := range parseYAML(s.t, objects) {
		stored := s.mustGet(ns, object)
		delete(stored.Object, "status")
		stored.SetManagedFields(nil)
		stored.SetResourceVersion("")
		found = append(found, stored.Object)
	}
	return found
}

// waitInTree waits until a tree manages a namespace, or until no tree does.
func waitInTree(s *testScope, ns *corev1.Namespace, inTree bool) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		found := &corev1.Namespace{}
		if assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(ns), found)) {
			assert.Equal(c, inTree, hierarchy.InTree(found))
			assert.Equal(c, inTree, len(hierarchy.OwnDepthLabels(found)) > 0)
		}
	})
}

// waitNotAdopted waits until a namespace's condition reports that a tree does not manage it because it is not adopted.
func waitNotAdopted(s *testScope, ns *corev1.Namespace, tree string) {
	s.t.Helper()
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionFalse, condition.Status)
		assert.Equal(c, "NotAdopted", condition.Reason)
		assert.Contains(c, condition.Message,
			"namespace "+ns.Name+" existed before tree "+tree+" and is not adopted, so it is left alone")
	})
}

// A namespace that existed before a tree declares it keeps all its objects until it is adopted.
func TestTreeDoesNotManageExistingNamespacesUntilAdopted(t *testing.T) {
	marks.OnEveryVersion(t)
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	root, team := s.name("root"), s.name("team")
	ns := s.createNamespace("existing")
	added := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name("new")}}
	ordinary := s.createTemplate("ordinary", configMap("ordinary", "1"))
	s.waitPopulated(ns)
	foreign := documents(readerRole("undeclared-role", "configmaps"), viewerBinding("undeclared-binding"),
		podQuota("undeclared-quota"))
	// The last Role has the name of a Role that the tree declares.
	before := documents(foreign, readerRole("job-creator", "configmaps"))
	s.createObjects(ns.Name, before)
	contents := storedContents(s, ns, before)

	declared := `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: job-creator, namespace: ` + ns.Name + `}
rules: [{apiGroups: [batch], resources: [jobs], verbs: [create]}]
`
	files := policyTree{
		"viewers.yaml":                       viewerBinding("viewers"),
		team + "/quota.yaml":                 "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: quota}\nspec: {hard: {pods: 3}}\n",
		team + "/" + ns.Name + "/role.yaml":  declared,
		team + "/" + ns.Name + "/quota.yaml": podQuota("quota"),
	}.addNamespace(team+"/"+ns.Name, ns.Name).addNamespace(team+"/"+added.Name, added.Name)
	mustApplyTree(s, root, files, false)
	waitInTree(s, added, true)
	s.waitPresent(added, viewerBinding(root+".viewers"))
	waitNotAdopted(s, ns, root)
	s.waitEvent(ns, corev1.EventTypeWarning, "NotAdopted", "is left alone")
	expectNotManaged := func(t *testing.T, value string) {
		t.Helper()
		s := s.withT(t)
		s.updateTemplate(ordinary, withObjects(t, configMap("ordinary", value)))
		// other templates still apply; this also shows that the operator has reconciled the namespace
		s.waitPresent(ns, configMap("ordinary", value))
		require.Equal(t, contents, storedContents(s, ns, before))
		s.waitAbsent(ns, documents(viewerBinding(root+".viewers"), podQuota("quota"), podQuota(v1alpha1.QuotaName)))
		waitInTree(s, ns, false)
		waitNotAdopted(s, ns, root)
	}

	t.Run("an existing namespace keeps its objects", func(t *testing.T) {
		s := s.withT(t)
		expectNotManaged(t, "2")
		s.waitSpaceStatus("team", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
			assert.EqualValues(c, 1, status.Namespaces)
		})
		s.createObjects(added.Name, foreign) // undeclared objects are deleted in a namespace that the tree manages
		s.waitAbsent(added, foreign)
	})

	t.Run("a restart of the operator and applying the tree again do not change that", func(t *testing.T) {
		s := s.withT(t)
		s.restartOperator(t)
		mustApplyTree(s, root, files, false)
		expectNotManaged(t, "3")
	})

	t.Run("an adopted namespace is managed and stays managed without the annotation", func(t *testing.T) {
		expectAdoptedNamespaceIsManaged(t, s.withT(t), root, ns, foreign, declared, files)
	})

	t.Run("a namespace can move within the tree and has to be adopted again after it left", func(t *testing.T) {
		expectMovedNamespaceIsAdoptedAgain(t, s.withT(t), root, team, ns, ordinary, foreign)
	})
}

func expectAdoptedNamespaceIsManaged(
	t *testing.T, s *testScope, root string, ns *corev1.Namespace, foreign, declared string, files policyTree,
) {
	t.Helper()
	mustApplyTree(s, root, files, true)
	waitInTree(s, ns, true)
	s.waitAbsent(ns, foreign)
	s.waitPresent(ns, documents(declared, viewerBinding(root+".viewers"), podQuota("quota")))
	s.waitPopulated(ns)
	mustApplyTree(s, root, files, false)
	s.restartOperator(t)
	s.createObjects(ns.Name, foreign)
	s.waitAbsent(ns, foreign)
	waitInTree(s, ns, true)
	found := &corev1.Namespace{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), found))
	require.False(t, hierarchy.Adopted(found))
}

func expectMovedNamespaceIsAdoptedAgain(
	t *testing.T, s *testScope, root, team string, ns *corev1.Namespace, ordinary *v1alpha1.NamespaceTemplate,
	foreign string,
) {
	t.Helper()
	s.patchNamespace(ns, `{"metadata": {"labels": {"`+v1alpha1.PolicySpaceLabel+`": "`+root+`"}}}`)
	s.eventually(func(c *assert.CollectT) {
		assert.Equal(c, map[string]string{"root": "1"}, s.spaceDepths(c, ns.Name))
	})
	s.waitPresent(ns, viewerBinding(root+".viewers"))
	s.patchNamespace(ns, `{"metadata": {"labels": {"`+v1alpha1.PolicySpaceLabel+`": null}}}`)
	waitInTree(s, ns, false)
	s.waitAbsent(ns, viewerBinding(root+".viewers"))
	s.createObjects(ns.Name, foreign)
	s.patchNamespace(ns, `{"metadata": {"labels": {"`+v1alpha1.PolicySpaceLabel+`": "`+team+`"}}}`)
	waitNotAdopted(s, ns, root)
	kept := storedContents(s, ns, foreign)
	s.updateTemplate(ordinary, withObjects(t, configMap("ordinary", "4")))
	s.waitPresent(ns, configMap("ordinary", "4"))
	require.Equal(t, kept, storedContents(s, ns, foreign))
}

// A user who names a policyspace of a tree to which the namespace does not belong keeps no grant by that.
func TestANamespaceThatIsNotAdoptedKeepsNoRevokedGrant(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("ordinary", documents(configMap("gone", "1"), viewerBinding("owner")))
	narrow := s.createTemplate("narrow", viewerBinding("narrowed"), deletesObjects)
	ns := s.createNamespace("existing")
	s.waitPresent(ns, documents(configMap("gone", "1"), viewerBinding("owner"), viewerBinding("narrowed")))
	root := s.name("root")
	mustApplyTree(s, root, policyTree{"viewers.yaml": viewerBinding("viewers")}.addNamespace(s.name("new"), s.name("new")),
		false)
	s.patchNamespace(ns, fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, v1alpha1.PolicySpaceLabel, root))
	waitNotAdopted(s, ns, root)
	s.updateTemplate(template, withObjects(t, configMap("stays", "1")))
	s.updateTemplate(narrow, func(t *v1alpha1.NamespaceTemplate) {
		t.Spec.Namespaces.LabelSelector.MatchLabels["never"] = "set"
	})
	s.waitPresent(ns, configMap("stays", "1"))
	s.waitAbsent(ns, documents(viewerBinding("owner"), viewerBinding("narrowed")))
	waitNotAdopted(s, ns, root)
	s.waitPresent(ns, configMap("gone", "1")) // what replaces it may be where the namespace belongs
}

// A tree with the names of existing policyspaces does not change the objects of the namespaces in them.
func TestTreeKeepsObjectsOfNamespacesInExistingPolicySpaces(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("root", "")
	s.createSpace("team", "root")
	foreign := documents(readerRole("undeclared-role", "configmaps"), podQuota("undeclared-quota"))
	// One namespace is in the root's policyspace, the other in a descendant.
	inRoot, inTeam := createInitializedNamespaceIn(s, "in-root", "root"),
		createInitializedNamespaceIn(s, "in-team", "team")
	for _, ns := range []*corev1.Namespace{inRoot, inTeam} {
		s.createObjects(ns.Name, foreign)
	}
	files := policyTree{"viewers.yaml": viewerBinding("viewers")}.addNamespace(s.name("team")+"/"+s.name("new"),
		s.name("new"))
	mustApplyTree(s, s.name("root"), files, false)
	added := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name("new")}}
	waitInTree(s, added, true)
	for _, ns := range []*corev1.Namespace{inRoot, inTeam} {
		waitNotAdopted(s, ns, s.name("root"))
		s.waitEvent(ns, corev1.EventTypeWarning, "Undeclared", "the namespace is not adopted")
		s.waitPresent(ns, foreign)
	}
	s.patchNamespace(inTeam, `{"metadata": {"annotations": {"`+v1alpha1.AdoptAnnotation+`": "true"}}}`)
	s.waitAbsent(inTeam, foreign)
	s.waitPopulated(inTeam)
	s.waitPresent(inRoot, foreign)
}

// createInitializedNamespaceIn creates a namespace in a policyspace and returns when it is initialized.
func createInitializedNamespaceIn(s *testScope, short, space string) *corev1.Namespace {
	s.t.Helper()
	ns := s.createNamespace(short, s.inSpace(space))
	s.waitInitialized(ns)
	return ns
}

// Namespaces that the tree creates while the operator is down belong to the tree; namespaces that existed do not.
func TestTreeAppliedWithoutOperatorManagesOnlyNewNamespaces(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	root := s.name("root")
	files := policyTree{"viewers.yaml": viewerBinding("viewers")}
	mustApplyTree(s, root, files, false)
	require.NoError(t, s.operator.Kill())
	ns, added := s.createNamespace("existing"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name("new")}}
	foreign := documents(readerRole("undeclared-role", "configmaps"), viewerBinding("undeclared-binding"))
	// the write is not held, because no template selected the namespace when it was created
	for _, object := range parseYAML(t, foreign) {
		object.SetNamespace(ns.Name)
		require.NoError(t, s.client.Create(t.Context(), object))
	}
	mustApplyTree(s, root, files.addNamespace(ns.Name, ns.Name).addNamespace(added.Name, added.Name), false)
	require.NoError(t, s.startOperator(t.Context()))
	waitInTree(s, added, true)
	s.waitPresent(added, viewerBinding(root+".viewers"))
	waitNotAdopted(s, ns, root)
	s.waitPresent(ns, foreign)
}

// Only users who may delete Roles, RoleBindings and ResourceQuotas in a namespace can adopt it, and only the operator
// can mark it as part of a tree.
func TestAdoptionRequiresDeletePermissions(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("n")
	s.grant(s.name("namespaces"), userSubject("nadia"),
		policyRule("create patch list", "", "namespaces namespaces/status"))
	nadia, _ := s.newWarnedUser("nadia")
	patch := func(body string, status bool) error {
		raw := mergePatch(body)
		if status {
			return nadia.Status().Patch(t.Context(), ns.DeepCopy(), raw)
		}
		return nadia.Patch(t.Context(), ns.DeepCopy(), raw)
	}
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, patch(`{"metadata": {"labels": {"a": "b"}}}`, false)) })
	adopt := `{"metadata": {"annotations": {"` + v1alpha1.AdoptAnnotation + `": "true"}}}`
	for _, status := range []bool{false, true} {
		require.ErrorContains(t, patch(adopt, status),
			"user nadia needs the verb delete on roles, rolebindings and resourcequotas in namespace "+ns.Name)
		require.ErrorContains(t,
			patch(`{"metadata": {"annotations": {"`+v1alpha1.InTreeAnnotation+`": "true"}}}`, status),
			"are managed by the operator")
	}
	for _, key := range []string{v1alpha1.AdoptAnnotation, v1alpha1.InTreeAnnotation} {
		born := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: s.name("born"), Annotations: map[string]string{key: "true"},
		}}
		require.ErrorContains(t, nadia.Create(t.Context(), born), "nstpl-namespace-guard")
	}
	// The user needs the permission on all three kinds.
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "nadia"},
		Subjects:   []rbacv1.Subject{userSubject("nadia")},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "nadia"},
	}
	rules := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "nadia"}, Rules: []rbacv1.PolicyRule{
		{
			APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings"},
			Verbs: []string{"delete"},
		},
	}}
	require.NoError(t, s.client.Create(t.Context(), rules))
	require.NoError(t, s.client.Create(t.Context(), binding))
	s.eventually(func(c *assert.CollectT) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "nadia",
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: ns.Name, Verb: "delete", Group: rbacv1.GroupName, Resource: "roles",
			},
		}}
		assert.NoError(c, s.client.Create(t.Context(), review))
		assert.True(c, review.Status.Allowed)
	})
	require.ErrorContains(t, patch(adopt, false), "needs the verb delete")
	rules.Rules = append(rules.Rules,
		policyRule("delete", "", "resourcequotas"))
	require.NoError(t, s.client.Update(t.Context(), rules))
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, patch(adopt, false)) })
	require.NoError(t, patch(`{"metadata": {"annotations": {"`+v1alpha1.AdoptAnnotation+`": null}}}`, false))
}

// The API server warns users who apply a tree about namespaces that are not adopted, and about objects that move from
// another tree.
func TestTreeApplyWarnsAboutUnadoptedNamespaces(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	applier, warnings := s.newWarnedUser("applier-of-trees", "system:masters")
	ns := s.createNamespace("n")
	move := func(tree string) []string {
		t.Helper()
		body := `{"metadata": {"labels": {"` + v1alpha1.TreeLabel + `": "` + tree + `"}}}`
		require.NoError(t,
			applier.Patch(t.Context(), ns.DeepCopy(), mergePatch(body)))
		return warnings.drain()
	}
	first := move("eng")
	require.Len(t, first, 1)
	require.Contains(t, first[0],
		"namespace "+ns.Name+" existed before tree eng and is not adopted, so it is left alone")
	s.eventually(func(c *assert.CollectT) { // at first, a busy API server may judge a version before the label
		assert.Empty(c, move("eng"))
	})
	require.Contains(t, strings.Join(move("engineering"), "\n"),
		"objects move from tree eng to tree engineering: if the root was renamed, prune the remaining objects with the selector policy.nstpl.dev/tree in (engineering,eng)")
}

// Namespaces stay in a tree whose root is renamed, and one label selector finds the remaining objects of the old name.
func TestTreeKeepsNamespacesWhenItsRootIsRenamed(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	before, after := s.name("eng"), s.name("engineering")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name("n")}}
	files := policyTree{"viewers.yaml": viewerBinding("viewers")}.addNamespace(ns.Name, ns.Name)
	mustApplyTree(s, before, files, false)
	waitInTree(s, ns, true)
	s.waitPresent(ns, viewerBinding(before+".viewers"))
	mustApplyTree(s, after, files, false)
	s.waitPresent(ns, viewerBinding(after+".viewers"))
	s.waitAbsent(ns, viewerBinding(before+".viewers"))
	s.waitPopulated(ns)
	out, err := s.kubectl(t.Context(), "", "get", "policyspaces,namespacetemplates", "--output=name", "--selector",
		v1alpha1.TreeLabel+" in ("+after+","+before+")")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"policyspace.policy.nstpl.dev/" + before, "namespacetemplate.policy.nstpl.dev/" + before,
		"policyspace.policy.nstpl.dev/" + after, "namespacetemplate.policy.nstpl.dev/" + after,
	}, strings.Fields(out))
	_, err = s.kubectl(t.Context(), "", "delete", "policyspaces,namespacetemplates", "--selector",
		v1alpha1.TreeLabel+"="+before)
	require.NoError(t, err)
	s.waitPresent(ns, viewerBinding(after+".viewers"))
	waitInTree(s, ns, true)
}
