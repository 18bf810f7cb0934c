package sync_test

import (
	"fmt"
	"maps"
	"slices"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/engine/render"
)

// treeKinds are the kinds that trees compile to.
var treeKinds = []schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithKind("Namespace"),
	rbacv1.SchemeGroupVersion.WithKind("ClusterRole"),
	rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"),
	v1alpha1.GroupVersion.WithKind("NamespaceTemplate"),
	v1alpha1.GroupVersion.WithKind("PolicySpace"),
}

// load returns the tree of some files, which must break no rule.
func (x *tree) load(files map[string]string) *hierarchy.Tree {
	x.Helper()
	in := fstest.MapFS{}
	for path, content := range files {
		in[path] = &fstest.MapFile{Data: []byte(content)}
	}
	result, err := hierarchy.Load(in, x.name)
	require.NoError(x, err)
	require.Empty(x, result.Violations)
	return result.Tree
}

// waitExact waits until the cluster has exactly the objects of a tree: those with the label of the tree, but for
// namespaces that may remain, and the Roles, RoleBindings and ResourceQuotas in its namespaces.
func (x *tree) waitExact(files map[string]string, remaining ...string) {
	x.Helper()
	loaded := x.load(files)
	compiled, err := loaded.Compile(v1alpha1.AuthoritativeDelete)
	require.NoError(x, err)
	declared, err := inventory.Declare(compiled)
	require.NoError(x, err)
	flat := loaded.Flatten()
	x.eventually(func(c *assert.CollectT) {
		x.compareCluster(c, declared, remaining)
		for _, ns := range flat {
			x.compareNamespace(c, ns)
		}
	})
}

// objects returns the objects with the label of the tree.
func (x *tree) objects() []*unstructured.Unstructured {
	x.Helper()
	var all []*unstructured.Unstructured
	for _, kind := range treeKinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		require.NoError(x, cluster.client.List(x.Context(), list, client.MatchingLabels{v1alpha1.TreeLabel: x.name}))
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	}
	return all
}

// compareCluster compares the objects with the label of the tree with those that it declares.
func (x *tree) compareCluster(c *assert.CollectT, declared []*unstructured.Unstructured, remaining []string) {
	live := map[string]*unstructured.Unstructured{}
	for _, object := range x.objects() {
		if object.GetDeletionTimestamp() == nil {
			live[render.IDOf(object).String()] = object
		}
	}
	kept := map[string]bool{}
	for _, name := range remaining {
		ns := live["namespace/"+name]
		if !assert.NotNil(c, ns, name) {
			continue
		}
		kept["namespace/"+name] = true
		// Policy spaces stay while namespaces are in or below them.
		for space := ns.GetLabels()[v1alpha1.PolicySpaceLabel]; space != ""; {
			id := "policyspace." + v1alpha1.GroupVersion.Group + "/" + space
			if !assert.NotNil(c, live[id], id) {
				break
			}
			kept[id] = true
			space, _, _ = unstructured.NestedString(live[id].Object, "spec", "parent")
		}
	}
	for _, object := range declared {
		id := render.IDOf(object).String()
		if assert.Contains(c, live, id) {
			assert.True(c, inventory.IsInForce(object, live[id]), "%s is %v", id, live[id])
		}
		delete(live, id)
	}
	maps.DeleteFunc(live, func(id string, _ *unstructured.Unstructured) bool { return kept[id] })
	assert.Empty(c, live)
}

// compareNamespace compares the policies in a namespace with those that it inherits and declares.
func (x *tree) compareNamespace(c *assert.CollectT, want hierarchy.Flat) {
	roles, bindings, quotas := &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &corev1.ResourceQuotaList{}
	for _, list := range []client.ObjectList{roles, bindings, quotas} {
		if !assert.NoError(c, cluster.client.List(x.Context(), list, client.InNamespace(want.Name))) {
			return
		}
	}
	wanted, found := map[string]any{}, map[string]any{}
	for _, role := range want.Roles {
		wanted["Role "+role.Name] = role.Rules
	}
	for _, binding := range want.RoleBindings {
		wanted["RoleBinding "+binding.Name] = bound(binding.RoleBinding)
	}
	if want.Quota != nil {
		wanted["ResourceQuota "+want.Quota.Name] = fmt.Sprint(want.Quota.Spec)
	}
	for _, role := range roles.Items {
		found["Role "+role.Name] = role.Rules
	}
	for i := range bindings.Items {
		found["RoleBinding "+bindings.Items[i].Name] = bound(&bindings.Items[i])
	}
	for _, quota := range quotas.Items {
		if quota.Name != v1alpha1.QuotaName {
			found["ResourceQuota "+quota.Name] = fmt.Sprint(quota.Spec)
		}
	}
	assert.True(c, equality.Semantic.DeepEqual(wanted, found), "namespace %s has\n%v\nand should have\n%v", want.Name,
		found, wanted)
}

// bound returns what a RoleBinding binds, with the defaults of the API server.
func bound(binding *rbacv1.RoleBinding) string {
	text := binding.RoleRef.Kind + " " + binding.RoleRef.Name
	for _, subject := range binding.Subjects {
		text += fmt.Sprintf(", %s %s/%s", subject.Kind, subject.Namespace, subject.Name)
	}
	return text
}

// watchAccess watches the RoleBindings in a namespace. The returned function ends that. It fails if there was a moment
// when none of them had a subject.
func (x *tree) watchAccess(ns, subject string) (check func()) {
	x.Helper()
	watching, err := client.NewWithWatch(cluster.RESTConfig(), client.Options{Scheme: cluster.client.Scheme()})
	require.NoError(x, err)
	list := &rbacv1.RoleBindingList{}
	require.NoError(x, watching.List(x.Context(), list, client.InNamespace(ns)))
	granting := map[string]bool{}
	observe := func(binding *rbacv1.RoleBinding, exists bool) {
		delete(granting, binding.Name)
		if exists && slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool { return s.Name == subject }) {
			granting[binding.Name] = true
		}
	}
	for i := range list.Items {
		observe(&list.Items[i], true)
	}
	require.NotEmpty(x, granting)
	watcher, err := watching.Watch(x.Context(), &rbacv1.RoleBindingList{}, client.InNamespace(ns),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	require.NoError(x, err)
	return func() {
		x.Helper()
		defer watcher.Stop()
		// The watch has seen all before this one.
		last := binding(ns, "last")
		last.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}
		require.NoError(x, cluster.client.Create(x.Context(), last))
		for event := range watcher.ResultChan() {
			changed, ok := event.Object.(*rbacv1.RoleBinding)
			require.True(x, ok, "%v", event)
			if changed.UID == last.UID {
				return
			}
			observe(changed, event.Type != watch.Deleted)
			require.NotEmpty(x, granting, "%s has no access in %s after %s of RoleBinding %s", subject, ns, event.Type,
				changed.Name)
		}
		require.Fail(x, "the watch has ended")
	}
}
