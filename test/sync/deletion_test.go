package sync_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/gittest"
)

// without returns files without some of them.
func without(files map[string]string, paths ...string) map[string]string {
	left := maps.Clone(files)
	for _, path := range paths {
		delete(left, path)
	}
	return left
}

// A commit that deletes several namespaces deletes none before it is confirmed. Everything else of it is applied.
func TestDeletionOfNamespacesNeedsAConfirmation(t *testing.T) {
	t.Parallel()
	x := newTree(t, "limit")
	files := map[string]string{
		"role.yaml":                 roleFile("limit-a", "get"),
		"limit-one/namespace.yaml":  namespaceFile("limit-one"),
		"limit-two/namespace.yaml":  namespaceFile("limit-two"),
		"limit-left/namespace.yaml": namespaceFile("limit-left"),
	}
	x.commit(files)
	x.follow()
	x.waitExists(namespace("limit-left"))

	fewer := without(files, "limit-one/namespace.yaml", "limit-two/namespace.yaml", "role.yaml")
	fewer["role.yaml"] = roleFile("limit-b", "get")
	b := x.commit(fewer)
	message := x.waitReason("DeletionsPending", b)
	require.Contains(t, message, "would delete 2 namespaces")
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assertPending(c, status, b, "limit-one", "limit-two")
		assert.Equal(c, b, status.Commits.Applied)
	})
	x.mustExist(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "limit-b"}})
	x.waitGone(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "limit-a"}})
	x.mustExist(namespace("limit-one"))

	// The confirmation of a commit does not hold for the next one.
	last := b
	b = x.commit(with(fewer, "viewers.yaml", bindingFile("viewers", "view", "ann")))
	x.waitReason("DeletionsPending", b)
	x.annotate(v1alpha1.ConfirmedCommitAnnotation, last)
	x.request()
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.Equal(c, x.repository.Annotations[v1alpha1.SyncRequestedAnnotation], status.RequestedAt)
	})
	x.mustExist(namespace("limit-one"))
	x.mustExist(namespace("limit-two"))

	x.annotate(v1alpha1.ConfirmedCommitAnnotation, b)
	x.waitGone(namespace("limit-one"))
	x.waitGone(namespace("limit-two"))
	x.waitApplied(b)
	x.mustExist(namespace("limit-left"))

	// The confirmation is used up: it does not hold when the branch returns to the commit.
	x.waitApplied(x.commit(files))
	x.git.Git(t, "update-ref", "refs/heads/main", b)
	x.request()
	x.waitReason("DeletionsPending", b)
	x.mustExist(namespace("limit-one"))
	x.mustExist(namespace("limit-two"))

	// The last namespace of a tree waits, whatever was confirmed before.
	c := x.commit(map[string]string{"role.yaml": roleFile("limit-b", "get")})
	x.waitReason("DeletionsPending", c)
	x.mustExist(namespace("limit-left"))
	// When all are declared again, nothing waits.
	x.waitApplied(x.commit(files))
	x.mustExist(namespace("limit-left"))
}

// Nothing but a confirmation deletes namespaces that wait for one: neither that a person protects or deletes some of
// them, nor another commit, nor another limit, nor the confirmation of the same commit for another tree.
func TestADeletionThatWaitsIsNotConfirmedByAccident(t *testing.T) {
	t.Parallel()
	x := newTree(t, "asked")
	files := map[string]string{}
	for _, name := range []string{"asked-a", "asked-b", "asked-c", "asked-d", "asked-left"} {
		files[name+"/namespace.yaml"] = namespaceFile(name)
	}
	other := &tree{TB: t, name: "asked-other"}
	// both commits files of both trees in one commit.
	both := func(files map[string]string) string {
		t.Helper()
		all := x.commitOf(files)
		for path, content := range files {
			all.Files["asked-other/"+strings.ReplaceAll(path, "asked-", "other-")] =
				strings.ReplaceAll(content, "asked-", "other-")
		}
		hash := x.git.Commit(t, all)
		for _, follower := range []*tree{x, other} {
			if follower.repository != nil {
				follower.request()
			}
		}
		return hash
	}
	a := both(files)
	x.follow()
	other.followSpec(x.repository.Spec, func(r *v1alpha1.PolicyRepository) { r.Spec.Path = "asked-other" })
	x.waitApplied(a)
	other.waitApplied(a)
	kept := namespace("asked-a")
	x.mustExist(kept)
	uid := kept.UID
	delete(files, "asked-a/namespace.yaml")
	delete(files, "asked-b/namespace.yaml")
	delete(files, "asked-c/namespace.yaml")
	fewer := both(files)
	// waits waits until nstpl-sync has compared the tree with the cluster after now.
	waits := func(commit string, names ...string) {
		t.Helper()
		x.request()
		x.waitReason("DeletionsPending", commit)
		x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
			assert.Equal(c, x.repository.Annotations[v1alpha1.SyncRequestedAnnotation], status.RequestedAt)
			assertPending(c, status, commit, names...)
		})
		for _, name := range names {
			x.mustExist(namespace(name))
		}
	}
	waits(fewer, "asked-a", "asked-b", "asked-c")
	other.waitReason("DeletionsPending", fewer)
	other.annotate(v1alpha1.ConfirmedCommitAnnotation, fewer)
	other.waitGone(namespace("other-a"))
	other.waitApplied(fewer)
	waits(fewer, "asked-a", "asked-b", "asked-c")

	protect := func(value string) {
		t.Helper()
		mergePatch(t, kept, `{"metadata": {"annotations": {"`+v1alpha1.DeletionProtectionAnnotation+`": `+value+`}}}`)
	}
	protect(`"true"`)
	waits(fewer, "asked-b", "asked-c")
	require.NoError(t, cluster.client.Delete(t.Context(), namespace("asked-b")))
	waits(fewer, "asked-c")
	mergePatch(t, x.repository, `{"spec": {"deletionLimit": {"namespaces": 9, "percent": 100}}}`)
	waits(fewer, "asked-c")
	empty := both(files)
	waits(empty, "asked-c")
	// A confirmation of a commit that is not the newest is void, also when the branch returns to that commit.
	x.annotate(v1alpha1.ConfirmedCommitAnnotation, fewer)
	waits(empty, "asked-c")
	require.NoError(t, cluster.client.Get(t.Context(), client.ObjectKeyFromObject(x.repository), x.repository))
	require.NotContains(t, x.repository.Annotations, v1alpha1.ConfirmedCommitAnnotation)
	x.git.Git(t, "update-ref", "refs/heads/main", fewer)
	waits(fewer, "asked-c")
	// What a later commit no longer declares either waits with the others.
	delete(files, "asked-d/namespace.yaml")
	waits(both(files), "asked-c", "asked-d")

	// A commit that declares the namespaces again ends the wait.
	for _, name := range []string{"asked-a", "asked-c", "asked-d"} {
		files[name+"/namespace.yaml"] = namespaceFile(name)
	}
	x.waitApplied(both(files))
	protect("null")
	x.mustExist(kept)
	require.Equal(t, uid, kept.UID)
	x.mustExist(namespace("asked-c"))
	x.mustExist(namespace("asked-d"))
}

// A process that has just begun deletes nothing that waits for a confirmation, although a person has protected and
// deleted the others meanwhile. The test is not parallel, because it restarts the nstpl-sync of all tests.
func TestADeletionWaitsAcrossARestart(t *testing.T) {
	x := newTree(t, "afterwards")
	files := map[string]string{}
	for _, name := range []string{"afterwards-a", "afterwards-b", "afterwards-c", "afterwards-left"} {
		files[name+"/namespace.yaml"] = namespaceFile(name)
	}
	a := x.commit(files)
	x.follow()
	x.waitApplied(a)
	fewer := x.commit(map[string]string{"afterwards-left/namespace.yaml": namespaceFile("afterwards-left")})
	x.waitReason("DeletionsPending", fewer)

	require.NoError(t, cluster.sync.Kill())
	require.NoError(t, cluster.client.Delete(t.Context(), namespace("afterwards-b")))
	mergePatch(t, namespace("afterwards-a"),
		`{"metadata": {"annotations": {"`+v1alpha1.DeletionProtectionAnnotation+`": "true"}}}`)
	empty := x.commit(map[string]string{
		"afterwards-left/namespace.yaml": namespaceFile("afterwards-left"), "README.md": "no policies",
	})
	startSync(t, cluster.syncOptions)
	x.waitReason("DeletionsPending", empty)
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assertPending(c, status, empty, "afterwards-c")
	})
	x.mustExist(namespace("afterwards-c"))
	x.annotate(v1alpha1.ConfirmedCommitAnnotation, empty)
	x.waitGone(namespace("afterwards-c"))
	x.mustExist(namespace("afterwards-a"))
	x.waitApplied(empty)
}

// keepsTheLabel fails unless a user who may change a namespace may change its labels, but not the one that names its
// tree: with the label of another tree, the tree would enforce nothing on the namespace any more.
func (x *tree) keepsTheLabel(ns *corev1.Namespace) {
	x.Helper()
	user := x.name + "-owner"
	rights := role(user)
	rights.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"patch"}}}
	require.NoError(x, cluster.client.Create(x.Context(), rights))
	require.NoError(x, cluster.client.Create(x.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}))
	owner := impersonate(x, user)
	patch := func(labels string) error {
		return owner.Patch(x.Context(), ns.DeepCopy(),
			client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": `+labels+`}}`)))
	}
	x.eventually(func(c *assert.CollectT) { // until the API server knows the permissions
		assert.NoError(c, patch(`{"own": "x"}`))
	})
	for _, tree := range []string{`"other"`, "null"} {
		require.ErrorContains(x, patch(`{"policy.nstpl.dev/tree": `+tree+`}`),
			"the label policy.nstpl.dev/tree of namespaces are managed by the operator and nstpl-sync")
	}
}

// Only what was created for the tree is deleted: neither an object with the label of the tree, nor a namespace that
// existed before.
func TestOnlyCreatedObjectsAreDeleted(t *testing.T) {
	t.Parallel()
	x := newTree(t, "created")
	ofTree := map[string]string{v1alpha1.TreeLabel: "created"}
	foreign := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "created-foreign", Labels: ofTree}}
	labelled, existing := namespace("created-labelled"), namespace("created-existing")
	labelled.Labels = ofTree
	adopted := namespace("created-adopted")
	for _, object := range []client.Object{foreign, labelled, existing, adopted} {
		require.NoError(t, cluster.client.Create(t.Context(), object))
	}
	adopted.Annotations = map[string]string{v1alpha1.AdoptAnnotation: "true"}
	require.NoError(t, cluster.client.Update(t.Context(), adopted))
	files := map[string]string{
		"created-new/namespace.yaml":      namespaceFile("created-new"),
		"created-existing/namespace.yaml": namespaceFile("created-existing"),
		"created-adopted/namespace.yaml":  namespaceFile("created-adopted"),
		"viewers.yaml":                    bindingFile("viewers", "view", "ann"),
	}
	a := x.commit(files)
	x.follow()
	message := x.waitReason("Synced", a)
	require.Contains(t, message,
		"not managed: 1 namespace that the tree declares and that existed before, the first is created-existing")
	x.waitExists(binding("created-adopted", "created.viewers"))
	x.keepsTheLabel(adopted)
	x.mustExist(existing)
	require.NotContains(t, existing.Labels, v1alpha1.TreeLabel)
	require.NotContains(t, existing.Labels, v1alpha1.PolicySpaceLabel)

	x.waitApplied(x.commit(without(files, "created-adopted/namespace.yaml", "created-existing/namespace.yaml")))
	for _, object := range []client.Object{foreign, labelled, existing, adopted} {
		x.mustExist(object)
	}
	require.NotContains(t, adopted.Labels, v1alpha1.PolicySpaceLabel, "it was released")

	// Deleting the PolicyRepository deletes nothing else.
	_, isKnown, err := cluster.sync.Metric(t.Context(), "nstpl_sync_phase_seconds_count", `repository="created"`)
	require.NoError(t, err)
	require.True(t, isKnown)
	require.NoError(t, cluster.client.Delete(t.Context(), x.repository))
	x.eventually(func(c *assert.CollectT) { // until nstpl-sync has reconciled the deletion
		_, isKnown, err := cluster.sync.Metric(t.Context(), "nstpl_sync_phase_seconds_count", `repository="created"`)
		assert.NoError(c, err)
		assert.False(c, isKnown)
	})
	x.mustExist(namespace("created-new"))
	x.mustExist(space("created"))
}

// A tree takes back the labels and annotations that it applied, although a user of the namespace has applied the same
// values, or has removed the record of who applied them. What the namespace had before stays.
func TestATreeRemovesWhatOthersApplyToo(t *testing.T) {
	t.Parallel()
	x := newTree(t, "owned")
	adopted := namespace("owned-adopted")
	adopted.Labels = map[string]string{"example.com/before": "same"}
	require.NoError(t, cluster.client.Create(t.Context(), adopted))
	adopted.Annotations = map[string]string{v1alpha1.AdoptAnnotation: "true"}
	require.NoError(t, cluster.client.Update(t.Context(), adopted))
	labelled := func(name string) string {
		return namespaceFile(name) + "  labels: {example.com/tier: gold, example.com/before: same}\n" +
			"  annotations: {example.com/note: a}\n"
	}
	files := map[string]string{
		"owned-new/namespace.yaml": labelled("owned-new"), "owned-adopted/namespace.yaml": labelled("owned-adopted"),
		"owned-reset/namespace.yaml": labelled("owned-reset"), "owned-forged/namespace.yaml": labelled("owned-forged"),
	}
	commit := x.commit(files)
	x.follow()
	x.waitApplied(commit)

	for _, name := range []string{"owned-new", "owned-adopted", "owned-forged"} {
		current := namespace(name)
		x.mustExist(current)
		theirs := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
			"name": name, "labels": current.Labels, "annotations": current.Annotations,
		}}
		data, err := json.Marshal(theirs)
		require.NoError(t, err)
		apply := client.RawPatch(types.ApplyPatchType, data)
		if name == "owned-forged" { // by the name of nstpl-sync, which is another manager for a subresource
			require.NoError(t, cluster.client.Status().Patch(t.Context(), current, apply, client.FieldOwner("nstpl-sync")))
			continue
		}
		require.NoError(t, cluster.client.Patch(t.Context(), current, apply, client.FieldOwner("owner")))
	}
	mergePatch(t, namespace("owned-reset"), `{"metadata": {"managedFields": [{}]}}`)
	owner := impersonate(t, "owned-owner")
	require.NoError(t, cluster.client.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "owned-owner"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"patch"}}},
	}))
	require.NoError(t, cluster.client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "owned-owner"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "owned-owner"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "owned-owner"}},
	}))
	for _, annotation := range []string{v1alpha1.TreeMetadataAnnotation, v1alpha1.HashAnnotation} {
		x.eventually(func(c *assert.CollectT) { // until the API server knows the permissions
			assert.ErrorContains(c, owner.Patch(t.Context(), namespace("owned-new"), client.RawPatch(types.MergePatchType,
				[]byte(`{"metadata": {"annotations": {"`+annotation+`": null}}}`))), "(nstpl:managed-namespace)")
		})
	}

	files["owned-new/namespace.yaml"] = namespaceFile("owned-new")
	files["owned-reset/namespace.yaml"] = namespaceFile("owned-reset")
	files["owned-forged/namespace.yaml"] = namespaceFile("owned-forged")
	delete(files, "owned-adopted/namespace.yaml")
	x.apply(files)
	for _, name := range []string{"owned-new", "owned-reset", "owned-forged", "owned-adopted"} {
		ns := namespace(name)
		x.mustExist(ns)
		require.NotContains(t, ns.Labels, "example.com/tier", name)
		require.NotContains(t, ns.Annotations, "example.com/note", name)
	}
	x.mustExist(adopted)
	require.Equal(t, "same", adopted.Labels["example.com/before"])
	for _, key := range []string{v1alpha1.PolicySpaceLabel, v1alpha1.TreeLabel} {
		require.NotContains(t, adopted.Labels, key)
	}
	for _, key := range []string{v1alpha1.HashAnnotation, v1alpha1.TreeMetadataAnnotation} {
		require.NotContains(t, adopted.Annotations, key)
	}
	x.waitQuiet()
}

// A policy space that a commit no longer declares is deleted once no namespace is in or below it: neither one whose
// deletion waits for a confirmation, nor one that a user has put there.
func TestPolicySpacesStayWhileNamespacesAreInThem(t *testing.T) {
	t.Parallel()
	x := newTree(t, "stay")
	files := map[string]string{
		"stay-left/namespace.yaml":                     namespaceFile("stay-left"),
		"stay-above/stay-team/stay-one/namespace.yaml": namespaceFile("stay-one"),
		"stay-above/stay-team/stay-two/namespace.yaml": namespaceFile("stay-two"),
	}
	x.commit(files)
	x.follow()
	x.waitExists(namespace("stay-two"))
	foreign := namespace("stay-foreign")
	foreign.Labels = map[string]string{v1alpha1.PolicySpaceLabel: "stay-team"}
	require.NoError(t, cluster.client.Create(t.Context(), foreign))

	fewer := x.commit(map[string]string{"stay-left/namespace.yaml": namespaceFile("stay-left")})
	x.waitReason("DeletionsPending", fewer)
	x.mustExist(space("stay-team"))
	x.mustExist(space("stay-above"))

	x.annotate(v1alpha1.ConfirmedCommitAnnotation, fewer)
	x.waitGone(namespace("stay-one"))
	x.waitGone(namespace("stay-two"))
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		ready := conditionReady(status)
		assert.Equal(c, "Synced", ready.Reason)
		assert.Contains(c, ready.Message, "kept, because namespaces are in or below it: 2 policyspaces that the tree no longer "+
			"declares, the first is stay-above: delete the namespaces, or move them to another policyspace")
	})
	x.mustExist(space("stay-team"))

	require.NoError(t, cluster.client.Delete(t.Context(), foreign))
	x.request()
	x.waitGone(space("stay-team"))
	x.waitGone(space("stay-above"))
	x.waitApplied(fewer)
}

// A namespace that is protected from deletion stays when a commit no longer declares it, also after a confirmation, and
// so do the policyspaces that it is in. The protection is declared in the tree, and a commit may remove it. The
// confirmation was not for the protected namespace, which the status did not list.
func TestProtectedNamespacesAreKept(t *testing.T) {
	t.Parallel()
	x := newTree(t, "guarded")
	protectedFile := func(name string) string {
		return strings.Replace(namespaceFile(name), "name: "+name,
			"name: "+name+"\n  annotations: {"+v1alpha1.DeletionProtectionAnnotation+": \"true\"}", 1)
	}
	files := map[string]string{
		"guarded-left/namespace.yaml":                      namespaceFile("guarded-left"),
		"guarded-above/guarded-team/guarded-one/ns.yaml":   protectedFile("guarded-one"),
		"guarded-above/guarded-team/guarded-two/ns.yaml":   namespaceFile("guarded-two"),
		"guarded-above/guarded-team/guarded-three/ns.yaml": protectedFile("guarded-three"),
	}
	x.commit(files)
	x.follow()
	x.waitExists(namespace("guarded-one"))
	x.waitExists(namespace("guarded-three"))

	// A commit removes the protection of one namespace.
	files["guarded-above/guarded-team/guarded-three/ns.yaml"] = namespaceFile("guarded-three")
	x.waitApplied(x.commit(files))
	unprotected := namespace("guarded-three")
	x.mustExist(unprotected)
	require.NotContains(t, unprotected.Annotations, v1alpha1.DeletionProtectionAnnotation)

	fewer := x.commit(map[string]string{"guarded-left/namespace.yaml": namespaceFile("guarded-left")})
	x.waitReason("DeletionsPending", fewer)
	x.annotate(v1alpha1.ConfirmedCommitAnnotation, fewer)
	x.waitGone(namespace("guarded-two"))
	x.waitGone(namespace("guarded-three"))
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		ready := conditionReady(status)
		assert.Equal(c, "Synced", ready.Reason)
		assert.Contains(c, ready.Message, "kept, because protected from deletion: 1 namespace that the tree no longer "+
			"declares, the first is guarded-one: to have it deleted, a user with the verb unprotect")
		assert.Contains(c, ready.Message, "kept, because namespaces are in or below it: 2 policyspaces")
	})
	kept := namespace("guarded-one")
	x.mustExist(kept)
	x.mustExist(space("guarded-team"))

	// Once a person removes the protection, the namespace waits for a confirmation, with its policyspaces.
	x.waitApplied(fewer)
	patch := client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata": {"annotations": {"policy.nstpl.dev/deletion-protection": null}}}`))
	require.NoError(t, cluster.client.Patch(t.Context(), kept, patch))
	x.waitReason("DeletionsPending", fewer)
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assertPending(c, status, fewer, "guarded-one")
	})
	x.mustExist(namespace("guarded-one"))
	x.annotate(v1alpha1.ConfirmedCommitAnnotation, fewer)
	x.waitReason("Synced", fewer)
	x.waitGone(namespace("guarded-one"))
	x.waitGone(space("guarded-team"))
	x.waitGone(space("guarded-above"))
}

// A confirmation holds for the namespaces that were shown, and not for one whose protection ends before nstpl-sync sees
// the confirmation, such as while the PolicyRepository is suspended.
func TestAConfirmationIsForTheNamespacesThatWereShown(t *testing.T) {
	t.Parallel()
	x := newTree(t, "shown")
	protected := strings.Replace(namespaceFile("shown-one"), "name: shown-one",
		"name: shown-one\n  annotations: {"+v1alpha1.DeletionProtectionAnnotation+": \"true\"}", 1)
	left := map[string]string{"shown-left/ns.yaml": namespaceFile("shown-left")}
	files := maps.Clone(left)
	files["shown-one/ns.yaml"] = protected
	files["shown-two/ns.yaml"], files["shown-three/ns.yaml"] = namespaceFile("shown-two"), namespaceFile("shown-three")
	x.commit(files)
	x.follow()
	x.waitExists(namespace("shown-one"))
	x.waitExists(namespace("shown-two"))
	x.waitExists(namespace("shown-three"))
	fewer := x.commit(left)
	x.waitReason("DeletionsPending", fewer)

	x.suspend(true)
	x.waitReason("Suspended", fewer)
	x.annotate(v1alpha1.ConfirmedCommitAnnotation, fewer)
	unprotect := client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata": {"annotations": {"policy.nstpl.dev/deletion-protection": null}}}`))
	require.NoError(t, cluster.client.Patch(t.Context(), namespace("shown-one"), unprotect))
	x.suspend(false)
	x.waitGone(namespace("shown-two"))
	x.waitGone(namespace("shown-three"))
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assertPending(c, status, fewer, "shown-one")
	})
	one := namespace("shown-one")
	x.mustExist(one)
	require.Nil(t, one.DeletionTimestamp)
}

// Of two PolicyRepositories with trees of the same name, the older is followed.
func TestTreesHaveDifferentNames(t *testing.T) {
	t.Parallel()
	x := newTree(t, "twice")
	a := x.commit(map[string]string{
		"twice-a/namespace.yaml": namespaceFile("twice-a"), "twice-b/namespace.yaml": namespaceFile("twice-b"),
		"role.yaml": roleFile("twice-role", "list"),
	})
	x.follow()
	x.waitApplied(a)
	other := x.repository.DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{Name: "twice-again"}
	other.Spec.Path = "other/twice"
	require.NoError(t, cluster.client.Create(t.Context(), other))
	second := &tree{TB: t, name: other.Name, repository: other}
	require.Contains(t, second.waitReason("TreeTaken", ""), "the tree twice is that of the PolicyRepository twice")
	// The tree that is in force loses nothing by that, not even its deletions.
	x.waitApplied(x.commit(map[string]string{"twice-a/namespace.yaml": namespaceFile("twice-a")}))
	x.waitGone(role("twice-role"))
	x.waitGone(namespace("twice-b"))

	// Once the first follows another directory, the tree is the second one's, also while that directory does not exist.
	x.waitApplied(x.commit(map[string]string{
		"twice-a/namespace.yaml": namespaceFile("twice-a"), "role.yaml": roleFile("twice-role", "list"),
	}))
	mergePatch(t, x.repository, `{"spec": {"path": "twice-later"}}`)
	b := x.git.Commit(x, gittest.Commit{Files: map[string]string{"other/twice/role.yaml": roleFile("twice-role", "get")}})
	second.request()
	second.waitApplied(b)
	x.request()
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.Contains(c, conditionReady(status).Message,
			"the tree twice of the path before is that of the PolicyRepository twice-again now")
	})
	current := role("twice-role")
	x.mustExist(current)
	require.Equal(t, []string{"get"}, current.Rules[0].Verbs)
}

// A PolicySpace that existed before is not changed, and an object of another tree is neither changed nor deleted.
func TestObjectsOfOthersAreNotChanged(t *testing.T) {
	t.Parallel()
	existing := space("others-existing")
	existing.Spec.Parent = "others-parent"
	require.NoError(t, program(t).Create(t.Context(), existing))
	one, two := newTree(t, "others-one"), newTree(t, "others-two")
	a := one.commit(map[string]string{"others-shared/namespace.yaml": namespaceFile("others-shared")})
	one.follow()
	one.waitApplied(a)
	files := map[string]string{
		"others-existing/quota.yaml":                  quotaFile("quota", "1"),
		"others-existing/others-below/namespace.yaml": namespaceFile("others-below"),
		"others-shared/namespace.yaml":                namespaceFile("others-shared"),
		"others-own/namespace.yaml":                   namespaceFile("others-own"),
	}
	b := two.commit(files)
	two.follow(func(r *v1alpha1.PolicyRepository) { r.Spec.ExistingNamespaces = v1alpha1.ExistingAdopt })
	two.waitReason("ObjectsFailed", b)
	two.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		var objects []string
		for _, failed := range status.Failures {
			objects = append(objects, failed.Object+": "+failed.Message)
		}
		assert.Equal(c, []string{
			"policyspace.policy.nstpl.dev/others-existing: existed before the tree others-two: delete it, rename " +
				"the declared object, or annotate it with policy.nstpl.dev/adopt=true, which has the tree change it",
			"namespace/others-shared: belongs to the tree others-one: rename the declared object, or hand the object over: " +
				"suspend the PolicyRepository of the tree others-one, if there still is one, run: kubectl label " +
				"namespace/others-shared policy.nstpl.dev/tree=others-two --overwrite, remove the object from the tree " +
				"others-one, and resume",
		}, objects)
		assert.Empty(c, status.Commits.Applied)
	})
	two.waitExists(namespace("others-own"))
	two.mustNotExist(namespace("others-below")) // its policies depend on the PolicySpace
	two.mustExist(existing)
	require.Equal(t, "others-parent", existing.Spec.Parent)
	require.Nil(t, existing.Spec.Quota)
	shared := namespace("others-shared")
	two.mustExist(shared)
	require.Equal(t, "others-one", shared.Labels[v1alpha1.PolicySpaceLabel])
	// A namespace of another tree delays no other.
	files = moved(files, "others-existing/", "others-new/")
	two.commit(files)
	two.waitExists(namespace("others-below"))
	delete(files, "others-shared/namespace.yaml")
	two.apply(files)
	two.mustExist(existing)
	one.mustExist(shared)
	// The namespace is handed over once its tree is gone.
	require.NoError(t, cluster.client.Delete(t.Context(), one.repository))
	mergePatch(t, shared, `{"metadata": {"labels": {"policy.nstpl.dev/tree": "others-two"}}}`)
	files["others-shared/namespace.yaml"] = namespaceFile("others-shared")
	two.apply(files)
	two.mustExist(shared)
	require.Equal(t, "others-two", shared.Labels[v1alpha1.PolicySpaceLabel])
}

// A role or binding that existed before grants what the tree declares, also if that is nothing, and also after a person
// has added a grant.
func TestATreeRemovesGrantsOfExistingObjects(t *testing.T) {
	t.Parallel()
	x := newTree(t, "granting")
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "mallory"}}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}
	bound := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "granting"}, RoleRef: ref, Subjects: subjects}
	allowed := role("granting")
	allowed.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}
	for _, object := range []client.Object{bound, allowed} {
		require.NoError(t, cluster.client.Create(t.Context(), object))
	}
	const group = "apiVersion: rbac.authorization.k8s.io/v1, metadata: {name: granting}"
	commit := x.commit(map[string]string{
		"binding.yaml": "{kind: ClusterRoleBinding, " + group + ", roleRef: {kind: ClusterRole, name: view}, subjects: []}",
		"role.yaml":    "{kind: ClusterRole, " + group + "}",
	})
	x.follow()
	x.waitApplied(commit)
	x.mustExist(bound)
	require.Empty(t, bound.Subjects)
	x.mustExist(allowed)
	require.Empty(t, allowed.Rules)

	bound.Subjects = subjects
	require.NoError(t, cluster.client.Update(t.Context(), bound))
	x.eventually(func(c *assert.CollectT) {
		assert.NoError(c, cluster.client.Get(t.Context(), client.ObjectKeyFromObject(bound), bound))
		assert.Empty(c, bound.Subjects)
	})
}

// A namespace moves from one tree to another with everything in it, as the message about the conflict says.
func TestANamespaceIsHandedToAnotherTree(t *testing.T) {
	t.Parallel()
	one, two := newTree(t, "hand-one"), newTree(t, "hand-two")
	files := map[string]string{
		"hand-a/namespace.yaml": namespaceFile("hand-a"), "hand-b/namespace.yaml": namespaceFile("hand-b"),
		"role.yaml": roleFile("hand-role", "list"),
	}
	a := one.commit(files)
	one.follow()
	one.waitApplied(a)
	moved := namespace("hand-a")
	one.mustExist(moved)
	before := moved.UID
	of := map[string]string{"hand-a/namespace.yaml": files["hand-a/namespace.yaml"], "role.yaml": files["role.yaml"]}
	b := two.commit(of)
	two.follow()
	two.waitReason("ObjectsFailed", b)

	one.suspend(true)
	one.waitReason("Suspended", a)
	for _, object := range []client.Object{moved, role("hand-role")} {
		mergePatch(t, object, `{"metadata": {"labels": {"policy.nstpl.dev/tree": "hand-two"}}}`)
	}
	two.waitApplied(b)
	two.suspend(true) // it is unknown then what the second tree declares
	two.waitReason("Suspended", b)
	c := one.commit(map[string]string{"hand-b/namespace.yaml": files["hand-b/namespace.yaml"]})
	one.suspend(false)
	one.waitApplied(c)
	require.Contains(t, one.waitReason("Synced", c), "kept until the tree that the label policy.nstpl.dev/tree names "+
		"has taken them over, or was read and does not declare them: 2 objects that this tree no longer declares, the "+
		"first is clusterrole")
	one.mustExist(role("hand-role"))
	one.mustExist(moved)
	two.suspend(false)
	two.waitReason("Synced", b)
	require.Equal(t, before, moved.UID)
	require.Equal(t, "hand-two", moved.Labels[v1alpha1.PolicySpaceLabel])
	// What the first tree created is the other one's for good, which takes away what it no longer declares.
	one.waitQuiet()
	one.waitApplied(c)
	two.waitApplied(two.commit(map[string]string{"hand-c/namespace.yaml": namespaceFile("hand-c")}))
	one.waitQuiet()
	one.waitApplied(c)
	two.waitGone(role("hand-role"))
	one.mustExist(moved)
	require.Equal(t, before, moved.UID)
}
