package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// snapshot has the objects that tests must leave as they found them: all cluster-scoped objects, and the objects in
// the namespaces of the snapshot. The keys are as in "ConfigMap nstpl-system/nstpl-selectors".
type snapshot map[string]*unstructured.Unstructured

// difference is an object that exists only before or only after a test, or that the test changed.
type difference struct {
	key           string
	before, after *unstructured.Unstructured
}

func (d difference) String() string {
	switch {
	case d.before == nil && d.after.GetDeletionTimestamp() != nil:
		return fmt.Sprintf("%s is being deleted, with the finalizers %v", d.key, d.after.GetFinalizers())
	case d.before == nil:
		return d.key
	case d.after == nil:
		return d.key + " is missing"
	default:
		return fmt.Sprintf("%s is changed from %s to %s", d.key, content(d.before), content(d.after))
	}
}

// differencesSince returns what differs from an earlier snapshot, ordered by key.
func (s snapshot) differencesSince(before snapshot) []difference {
	var found []difference
	for key, after := range s {
		old := before[key]
		if old == nil || old.GetResourceVersion() != after.GetResourceVersion() && content(old) != content(after) {
			found = append(found, difference{key, old, after})
		}
	}
	for key, old := range before {
		if s[key] == nil {
			found = append(found, difference{key, old, nil})
		}
	}
	slices.SortFunc(found, func(a, b difference) int { return strings.Compare(a.key, b.key) })
	return found
}

// keptAnnotations are written once. Admission denies their removal, or the operator keeps them.
var keptAnnotations = []string{
	v1alpha1.CreatorAnnotation, v1alpha1.UIDRangeAnnotation, v1alpha1.SupplementalGroupsAnnotation, v1alpha1.MCSAnnotation,
	v1alpha1.AccountUIDAnnotation, v1alpha1.NextAccountUIDAnnotation,
}

// content returns the JSON of what a client wrote into an object: without status, server-side metadata, certificates
// and keptAnnotations.
func content(object *unstructured.Unstructured) string {
	fields := maps.Clone(object.Object)
	delete(fields, "status")
	annotations := object.GetAnnotations() // a copy
	for _, key := range keptAnnotations {
		delete(annotations, key)
	}
	fields["metadata"] = struct {
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
		Finalizers  []string          `json:"finalizers,omitempty"`
		IsDeleted   bool              `json:"isDeleted,omitempty"`
	}{object.GetLabels(), annotations, object.GetFinalizers(), object.GetDeletionTimestamp() != nil}
	if webhooks, found, _ := unstructured.NestedSlice(object.Object, "webhooks"); found {
		for _, webhook := range webhooks {
			unstructured.RemoveNestedField(webhook.(map[string]any), "clientConfig", "caBundle")
		}
		fields["webhooks"] = webhooks
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// kindsOfOthers are kinds whose objects the API server and controllers keep.
var kindsOfOthers = []string{
	"APIService", "ComponentStatus", "Endpoints", "EndpointSlice", "Event", "FlowSchema", "IPAddress", "Lease",
	"PriorityLevelConfiguration", "ServiceCIDR",
}

// isKeptByOperator reports whether the operator keeps an object as long as it runs.
func isKeptByOperator(object *unstructured.Unstructured) bool {
	switch object.GetKind() {
	case "Secret":
		return object.GetName() == v1alpha1.WebhookSecret
	case "ConfigMap":
		return object.GetName() == v1alpha1.AllocationsConfigMap
	}
	return false
}

// isRecord reports whether an object says what the operator knows about others. The operator changes it after them.
func isRecord(object *unstructured.Unstructured) bool {
	return object.GetKind() == "ConfigMap" && object.GetName() == v1alpha1.SelectorsConfigMap
}

// readSnapshot returns the current snapshot. It lists the kinds that the first snapshot of the cluster found.
func (cluster *testCluster) readSnapshot(ctx context.Context) (snapshot, error) {
	if cluster.kinds == nil {
		var err error
		if cluster.kinds, err = listedKinds(cluster); err != nil {
			return nil, err
		}
	}
	found := snapshot{}
	var namespaced []*unstructured.Unstructured
	for _, kind := range cluster.kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := cluster.client.List(ctx, list); err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("list %s: %w", kind, err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			if object.GetNamespace() != "" {
				namespaced = append(namespaced, object)
			} else if !isKeptByOperator(object) {
				found[object.GetKind()+" "+object.GetName()] = object
			}
		}
	}
	for _, object := range namespaced {
		namespaces := cluster.pristine
		if namespaces == nil {
			namespaces = found
		}
		if namespaces["Namespace "+object.GetNamespace()] != nil && !isKeptByOperator(object) {
			found[fmt.Sprintf("%s %s/%s", object.GetKind(), object.GetNamespace(), object.GetName())] = object
		}
	}
	return found, nil
}

// listedKinds returns the kinds of a cluster whose objects can be listed and deleted.
func listedKinds(cluster *testCluster) ([]schema.GroupVersionKind, error) {
	server, err := discovery.NewDiscoveryClientForConfig(cluster.controlPlane.RESTConfig())
	if err != nil {
		return nil, err
	}
	groups, err := server.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var kinds []schema.GroupVersionKind
	for _, group := range groups {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range group.APIResources {
			if slices.Contains(resource.Verbs, "list") && slices.Contains(resource.Verbs, "delete") &&
				!slices.Contains(kindsOfOthers, resource.Kind) {
				kinds = append(kinds, version.WithKind(resource.Kind))
			}
		}
	}
	return kinds, nil
}

// TestSnapshotsDiffer checks which differences between two snapshots are found.
func TestSnapshotsDiffer(t *testing.T) {
	t.Parallel()
	object := func(kind, name, version string, change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"kind": kind, "data": map[string]any{"key": "v"}}}
		o.SetName(name)
		o.SetResourceVersion(version)
		for _, apply := range change {
			apply(o)
		}
		return o
	}
	of := func(objects ...*unstructured.Unstructured) snapshot {
		s := snapshot{}
		for _, o := range objects {
			s[o.GetKind()+" "+o.GetName()] = o
		}
		return s
	}
	before := of(object("Namespace", "default", "1"), object("ClusterRole", "edit", "2"))
	for name, test := range map[string]struct {
		after snapshot
		want  []string
	}{
		"nothing": {before, nil},
		"status and managed fields": {of(object("Namespace", "default", "5", func(o *unstructured.Unstructured) {
			o.Object["status"] = map[string]any{"phase": "Active"}
			o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl"}})
		}), before["ClusterRole edit"]), nil},
		"the creator": {of(before["ClusterRole edit"], object("Namespace", "default", "6",
			func(o *unstructured.Unstructured) {
				o.SetAnnotations(map[string]string{v1alpha1.CreatorAnnotation: "admin"})
			})), nil},
		"a namespace": {of(before["Namespace default"], before["ClusterRole edit"], object("Namespace", "left", "3")),
			[]string{"Namespace left"}},
		"an object that is missing": {of(before["Namespace default"]), []string{"ClusterRole edit is missing"}},
		"a label": {of(before["ClusterRole edit"], object("Namespace", "default", "4", func(o *unstructured.Unstructured) {
			o.SetLabels(map[string]string{"a": "b"})
		})), []string{"Namespace default is changed"}},
		"data": {of(before["Namespace default"], object("ClusterRole", "edit", "4", func(o *unstructured.Unstructured) {
			o.Object["data"] = map[string]any{"key": "w"}
		})), []string{"ClusterRole edit is changed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var found []string
			for _, d := range test.after.differencesSince(before) {
				text, _, _ := strings.Cut(d.String(), " from ")
				found = append(found, text)
			}
			require.Equal(t, test.want, found)
		})
	}
}

// joinDifferences returns an error that names the differences, or nil if there are none.
func joinDifferences(differences []difference) error {
	var errs []error
	for _, d := range differences {
		errs = append(errs, errors.New(d.String()))
	}
	return errors.Join(errs...)
}
