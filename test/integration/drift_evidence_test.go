package integration_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/test/marks"
)

// sprocketDefinition defines a custom resource with lists that are merged by key, fields without a schema, and the
// subresources status and scale.
const sprocketDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sprockets.example.com}
spec:
  group: example.com
  names: {kind: Sprocket, plural: sprockets, singular: sprocket}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            x-kubernetes-preserve-unknown-fields: true
            properties:
              replicas: {type: integer}
              ports:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, port: {type: integer}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

const deploymentsRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: integration-deployments
  labels: {policy.nstpl.dev/aggregate-to-operator: "true"}
rules:
- {apiGroups: [apps], resources: [deployments], verbs: [list, watch, create, patch, delete]}
`

// guardedKinds has a declared object for each kind, an edit of its declared fields, and a node of FieldsV1 that has
// only leaves below it.
var guardedKinds = map[string]struct{ declared, edit, node string }{
	"ConfigMap": {
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: guarded, labels: {a: b}}\ndata: {a: declared, b: declared}\n",
		`{"data": {"a": "changed"}}`, "f:data",
	},
	"RoleBinding": {
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: guarded}\n" +
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\n" +
			"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: readers}]\n",
		`{"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"}]}`, "f:labels",
	},
	"NetworkPolicy": {
		"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: guarded}\nspec: {podSelector: {}, policyTypes: [Ingress]}\n",
		`{"spec": {"podSelector": {"matchLabels": {"no": "pod"}}}}`, "f:spec",
	},
	"ResourceQuota": {
		"apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: guarded}\nspec: {hard: {services: \"3\", secrets: \"90\"}}\n",
		`{"spec": {"hard": {"services": "1000", "secrets": "90"}}}`, "f:hard",
	},
	"Deployment": {
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: guarded}\nspec:\n  replicas: 0\n  selector: {matchLabels: {a: b}}\n" +
			"  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a, env: [{name: A, value: b}]}]}}\n",
		`{"spec": {"paused": true, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "changed", "env": [{"name": "A", "value": "b"}]}]}}}}`,
		"f:labels",
	},
	"Sprocket": {
		"apiVersion: example.com/v1\nkind: Sprocket\nmetadata: {name: guarded}\n" +
			"spec: {replicas: 1, ports: [{name: web, port: 80}, {name: metrics, port: 81}], a: {b: {c: {d: {e: {f: declared, g: declared}}}}}}\n",
		`{"spec": {"ports": [{"name": "web", "port": 8080}, {"name": "metrics", "port": 81}], "a": {"b": {"c": {"d": {"e": {"f": "changed", "g": "declared"}}}}}}}`, "f:e",
	},
}

// driftFixture has a populated object, and a user who may edit everything in its namespace and tries to hide an edit.
type driftFixture struct {
	*testScope
	ns *corev1.Namespace
	// admin is the user. It has the ClusterRole admin in the namespace, and write permissions for kinds that admin does
	// not cover.
	admin client.Client
	kind  string
}

func newDriftFixture(t *testing.T, kind string, change ...func(*v1alpha1.NamespaceTemplate)) driftFixture {
	t.Helper()
	s := newScope(t, sharedCluster)
	s.createTemplate("defaults", guardedKinds[kind].declared, change...)
	e := driftFixture{testScope: s, ns: s.createPopulatedNamespace("a"), kind: kind}
	name := s.name("admin")
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns.Name, Name: "more"},
		Rules: []rbacv1.PolicyRule{
			{
				APIGroups: []string{""}, Resources: []string{"resourcequotas", "resourcequotas/status"},
				Verbs: []string{"*"},
			},
			{APIGroups: []string{"example.com"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		},
	}
	require.NoError(t, s.client.Create(t.Context(), role))
	for _, ref := range []rbacv1.RoleRef{{Kind: "ClusterRole", Name: "admin"}, {Kind: "Role", Name: "more"}} {
		ref.APIGroup = rbacv1.GroupName
		require.NoError(t, s.client.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.ns.Name, Name: "admin-" + ref.Name}, RoleRef: ref,
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		}))
	}
	var err error
	e.admin, err = s.newUserClient(name)
	require.NoError(t, err)
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, e.patch(`{}`, client.DryRunAll)) })
	return e
}

// getObject returns the stored object.
func (e driftFixture) getObject() *unstructured.Unstructured {
	e.t.Helper()
	return e.mustGet(e.ns, parseYAML(e.t, guardedKinds[e.kind].declared)[0])
}

func (e driftFixture) patch(body string, options ...client.PatchOption) error {
	return e.admin.Patch(e.t.Context(), e.getObject(), mergePatch(body), options...)
}

// update reads the object, changes it, and replaces the stored object without a check of its version.
func (e driftFixture) update(change func(*unstructured.Unstructured), options ...client.UpdateOption) error {
	object := e.getObject()
	change(object)
	if e.kind != "Sprocket" { // an update of a custom resource needs a resourceVersion
		object.SetResourceVersion("")
	}
	return e.admin.Update(e.t.Context(), object, options...)
}

// edited returns a copy of the object with the edit.
func (e driftFixture) edited(object *unstructured.Unstructured) *unstructured.Unstructured {
	e.t.Helper()
	merged, err := mergePatched(object, guardedKinds[e.kind].edit)
	require.NoError(e.t, err)
	return merged
}

// editedCopy returns the declared object with the operator's labels and annotations and the edit.
func (e driftFixture) editedCopy() *unstructured.Unstructured {
	e.t.Helper()
	live, declared := e.getObject(), parseYAML(e.t, guardedKinds[e.kind].declared)[0]
	declared.SetNamespace(e.ns.Name)
	declared.SetLabels(live.GetLabels())
	declared.SetAnnotations(live.GetAnnotations())
	return e.edited(declared)
}

// apply applies editedCopy by server-side apply.
func (e driftFixture) apply(manager string, options ...client.ApplyOption) error {
	return e.admin.Apply(e.t.Context(), client.ApplyConfigurationFromUnstructured(e.editedCopy()),
		append(options, client.FieldOwner(manager), client.ForceOwnership)...)
}

// changeOperatorEntry changes the operator's entry in managedFields.
func changeOperatorEntry(object *unstructured.Unstructured, change func(*metav1.ManagedFieldsEntry)) {
	entries := object.GetManagedFields()
	for i := range entries {
		if populate.IsOwnEntry(&entries[i]) {
			change(&entries[i])
		}
	}
	object.SetManagedFields(entries)
}

// collapseField returns FieldsV1 in which a node has no leaves, which means that the manager owns everything below the
// node.
func collapseField(t *testing.T, fields *metav1.FieldsV1, node string) *metav1.FieldsV1 {
	t.Helper()
	leaves := regexp.MustCompile(`"` + node + `":\{("[^"]+":\{\},?)+\}`)
	require.Regexp(t, leaves, fields.GetRawString())
	return metav1.NewFieldsV1(leaves.ReplaceAllString(fields.GetRawString(), `"`+node+`":{}`))
}

// hidingWrites returns the ways to hide an edit, by name. Each function returns the error of the API server.
func (e driftFixture) hidingWrites() map[string]func() error {
	before := e.getObject()
	patches := func(body string, options ...client.PatchOption) func() error {
		return func() error { return e.patch(body, options...) }
	}
	updates := func(change func(*unstructured.Unstructured), options ...client.UpdateOption) func() error {
		return func() error { return e.update(change, options...) }
	}
	forged := func(change func(*metav1.ManagedFieldsEntry)) func() error {
		return updates(func(object *unstructured.Unstructured) { changeOperatorEntry(object, change) })
	}
	entries, err := json.Marshal(before.GetManagedFields())
	require.NoError(e.t, err)
	all := map[string]func() error{
		"apply as nstpl": func() error { return e.apply(v1alpha1.FieldManager) },
		"patch as nstpl": patches(guardedKinds[e.kind].edit, client.FieldOwner(v1alpha1.FieldManager)),
		"update as nstpl": updates(func(object *unstructured.Unstructured) { object.Object = e.edited(object).Object },
			client.FieldOwner(v1alpha1.FieldManager)),
		"reset by a patch": patches(`{"metadata": {"managedFields": [{}]}}`),
		"reset by an update": updates(func(object *unstructured.Unstructured) {
			object.SetManagedFields([]metav1.ManagedFieldsEntry{{}})
		}),
		"reset by a JSON patch": func() error {
			return e.admin.Patch(e.t.Context(), e.getObject(), client.RawPatch(types.JSONPatchType,
				[]byte(`[{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]`)))
		},
		"edit and reset": patches(`{"metadata": {"managedFields": [{}]}, ` + guardedKinds[e.kind].edit[1:]),
		"another manager's name": forged(func(entry *metav1.ManagedFieldsEntry) {
			entry.Manager = "mine"
		}),
		"an Update": forged(func(entry *metav1.ManagedFieldsEntry) {
			entry.Operation = metav1.ManagedFieldsOperationUpdate
		}),
		"of status": forged(func(entry *metav1.ManagedFieldsEntry) { entry.Subresource = "status" }),
		// A request that changes only times is a no-op, so this one also adds a finalizer.
		"another time": updates(func(object *unstructured.Unstructured) {
			object.SetFinalizers([]string{"example.com/mine"})
			changeOperatorEntry(object, func(entry *metav1.ManagedFieldsEntry) {
				entry.Time = &metav1.Time{Time: entry.Time.AddDate(0, 0, 1)}
			})
		}),
		unservedVersion: forged(func(entry *metav1.ManagedFieldsEntry) {
			entry.APIVersion = "example.com/v0"
		}),
		"a field more": forged(func(entry *metav1.ManagedFieldsEntry) {
			entry.FieldsV1 = metav1.NewFieldsV1(`{"f:more":{},` + entry.FieldsV1.GetRawString()[1:])
		}),
		"no fields": forged(func(entry *metav1.ManagedFieldsEntry) { entry.FieldsV1 = metav1.NewFieldsV1(`{}`) }),
		"a field as whole": forged(func(entry *metav1.ManagedFieldsEntry) {
			entry.FieldsV1 = collapseField(e.t, entry.FieldsV1, guardedKinds[e.kind].node)
		}),
		// The first write is an ordinary edit, after which the operator owns less. The second write tries to restore
		// that.
		"edit, and replace with the old managedFields": func() error {
			if err := e.patch(guardedKinds[e.kind].edit); err != nil {
				return fmt.Errorf("an edit: %w", err)
			}
			return e.patch(fmt.Sprintf(`{"metadata": {"managedFields": %s}}`, entries))
		},
	}
	if e.kind != "Sprocket" {
		// For custom resources, the API server treats an empty list like a missing one.
		all["an empty list"] = updates(func(object *unstructured.Unstructured) {
			object.SetManagedFields([]metav1.ManagedFieldsEntry{})
		})
		all["two updates in a row"] = func() error {
			first, second := e.edited(before), e.edited(before)
			first.SetResourceVersion("")
			second.SetResourceVersion("")
			if err := e.admin.Update(e.t.Context(), first); err != nil {
				return fmt.Errorf("an edit: %w", err)
			}
			return e.admin.Update(e.t.Context(), second)
		}
	} else {
		all["an item as whole"] = forged(func(entry *metav1.ManagedFieldsEntry) {
			entry.FieldsV1 = metav1.NewFieldsV1(strings.Replace(entry.FieldsV1.GetRawString(), `,"f:port":{}`, "", 1))
			entry.FieldsV1 = metav1.NewFieldsV1(strings.Replace(entry.FieldsV1.GetRawString(), `{".":{},"f:name":{}}`,
				"{}", 1))
		})
		// An edit of all declared fields of an object without a schema would change managedFields in the same way.
		all["edit all below a field without schema"] = patches(
			`{"spec": {"a": {"b": {"c": {"d": {"e": {"f": "changed", "g": "changed"}}}}}}}`)
	}
	return all
}

// unservedVersion is one of hidingWrites.
const unservedVersion = "a version that is not served"

// A user who may edit populated objects cannot hide an edit, because only edits may change the operator's entry in
// managedFields.
func TestDriftCannotBeHidden(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	_, err := sharedCluster.kubectl(t.Context(), sprocketDefinition, "apply", "--filename", "-")
	require.NoError(t, err)
	waitEstablished(t, sharedCluster, "sprockets.example.com")
	_, err = sharedCluster.kubectl(t.Context(), deploymentsRole, "apply", "--filename", "-")
	require.NoError(t, err)
	require.NoError(t, sharedCluster.waitAggregatedRules(t.Context()))
	for _, kind := range slices.Sorted(maps.Keys(guardedKinds)) {
		t.Run(kind+"/Report", func(t *testing.T) {
			t.Parallel()
			e := newDriftFixture(t, kind, reportsDrift)
			attacks := e.hidingWrites()
			for _, name := range slices.Sorted(maps.Keys(attacks)) {
				before := e.getObject().GetManagedFields()
				err := attacks[name]()
				// Since Kubernetes 1.37, the API server ignores a list with a version that no custom resource has.
				if name == unservedVersion && err == nil {
					require.Equal(t, before, e.getObject().GetManagedFields())
					continue
				}
				require.True(t, apierrors.IsForbidden(err), "%s: %v\n%v", name, err, e.getObject().GetManagedFields())
				require.ErrorContains(t, err, "needs the verb patch on namespacetemplates/"+e.name("defaults"), name)
			}
			// Only edits were allowed, and the operator reports them.
			e.waitCondition(e.ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
				assert.Contains(c, condition.Message, "guarded: drifted: ")
			})
			e.expectOrdinaryWritesAllowed()
			// A user who may patch the template is allowed all of this.
			e.grant(e.name("patch"),
				userSubject(e.name("admin")),
				policyRule("patch", v1alpha1.GroupVersion.Group, v1alpha1.NamespaceTemplates.Resource,
					e.name("defaults")))
			e.eventually(func(c *assert.CollectT) { assert.NoError(c, e.apply(v1alpha1.FieldManager)) })
		})
		t.Run(kind+"/Correct", func(t *testing.T) {
			t.Parallel()
			e := newDriftFixture(t, kind)
			attacks := e.hidingWrites()
			for _, name := range slices.Sorted(maps.Keys(attacks)) {
				// If the operator corrected the edit in between, the write hides nothing and is allowed.
				if err := attacks[name](); err != nil {
					require.True(t, apierrors.IsForbidden(err) || apierrors.IsConflict(err), "%s: %v", name, err)
				}
				e.waitPresent(e.ns, guardedKinds[kind].declared)
			}
		})
	}
}

// expectOrdinaryWritesAllowed fails unless the API server allows the writes that hide nothing.
func (e driftFixture) expectOrdinaryWritesAllowed() {
	e.t.Helper()
	edit := guardedKinds[e.kind].edit
	for name, try := range map[string]func() error{
		"kubectl patch": func() error { return e.patch(edit, client.FieldOwner("kubectl-patch")) },
		"no manager":    func() error { return e.patch(edit) },
		"kubectl apply": func() error { return e.apply("kubectl") },
		"kubectl edit": func() error {
			return e.update(func(o *unstructured.Unstructured) { o.Object = e.edited(o).Object })
		},
		"metadata": func() error {
			return e.patch(
				`{"metadata": {"labels": {"mine": "too"}, "annotations": {"mine": "too"}, "finalizers": []}}`)
		},
		"a declared one": func() error { return e.patch(`{"metadata": {"labels": {"a": "c"}}}`) },
		"an owner": func() error {
			owner := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Namespace", "name": %q, "uid": %q}`, e.ns.Name,
				e.ns.UID)
			return e.patch(`{"metadata": {"ownerReferences": [` + owner + `]}}`)
		},
		"without managedFields": func() error {
			return e.update(func(o *unstructured.Unstructured) { o.SetManagedFields(nil) })
		},
		"a dry run as nstpl": func() error { return e.apply(v1alpha1.FieldManager, client.DryRunAll) },
	} {
		require.NoError(e.t, try(), name)
	}
	if e.kind != "Sprocket" && e.kind != "Deployment" {
		return
	}
	scale := func(replicas int, manager string, kind types.PatchType) error {
		body := fmt.Sprintf(
			`{"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "guarded", "namespace": %q}, "spec": {"replicas": %d}}`, e.ns.Name, replicas)
		options := []client.SubResourcePatchOption{client.FieldOwner(manager)}
		if kind == types.ApplyPatchType {
			options = append(options, client.ForceOwnership)
		}
		return e.admin.SubResource("scale").Patch(e.t.Context(), e.getObject(), client.RawPatch(kind, []byte(body)),
			options...)
	}
	require.NoError(e.t, scale(2, "kubectl", types.MergePatchType))
	if e.kind == "Deployment" { // the scale of a custom resource cannot be applied
		require.NoError(e.t, scale(3, v1alpha1.FieldManager, types.ApplyPatchType))
	}
	require.NotContains(e.t, e.operatorFields(), "f:replicas", "scaling is drift, whichever manager the request names")
	if e.kind == "Deployment" { // the ClusterRole admin cannot write its status
		return
	}
	status := e.getObject()
	status.Object["status"] = map[string]any{"replicas": int64(2)}
	require.NoError(e.t, e.admin.Status().Update(e.t.Context(), status))
	resetting := e.getObject()
	resetting.SetManagedFields([]metav1.ManagedFieldsEntry{{}})
	require.NoError(e.t, e.admin.Status().Update(e.t.Context(), resetting))
	require.NotEmpty(e.t, e.operatorFields(), "a write of a subresource must not reset the operator's entry")
}

// operatorFields returns the fields of the object that the operator owns.
func (e driftFixture) operatorFields() string {
	e.t.Helper()
	fields := ""
	changeOperatorEntry(e.getObject(), func(entry *metav1.ManagedFieldsEntry) {
		fields = entry.FieldsV1.GetRawString()
	})
	return fields
}

// Admission compares little data, however large the object is.
func TestLargePopulatedObjectsCanBeEdited(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	var data strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&data, "  key-%d: v\n", i)
	}
	s.createTemplate("defaults", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: large}\ndata:\n"+data.String(),
		reportsDrift)
	ns := s.createPopulatedNamespace("a")
	jane := s.newUser(s.name("jane"))
	patch := func(body string, options metav1.PatchOptions) error {
		_, err := jane.CoreV1().ConfigMaps(ns.Name).Patch(t.Context(), "large", types.MergePatchType, []byte(body),
			options)
		return err
	}
	require.NoError(t, patch(`{"data": {"key-1": "changed", "key-2": null, "mine": "too"}}`, metav1.PatchOptions{}))
	require.NoError(t,
		patch(`{"metadata": {"annotations": {"mine": "`+strings.Repeat("x", 200_000)+`"}}}`, metav1.PatchOptions{}))
	require.True(t, apierrors.IsForbidden(patch(`{"metadata": {"managedFields": [{}]}}`, metav1.PatchOptions{})))
	require.True(t,
		apierrors.IsForbidden(patch(`{"data": {"key-1": "more"}}`,
			metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})))
}
