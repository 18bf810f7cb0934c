package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/escalation"
)

// rbacKinds are the kinds that grant permissions in a namespace.
var rbacKinds = []schema.GroupVersionResource{
	rbacv1.SchemeGroupVersion.WithResource("roles"), rbacv1.SchemeGroupVersion.WithResource("rolebindings"),
}

// recordedKinds are the kinds whose writes are judged, and the kinds that explain those writes.
var recordedKinds = append(slices.Clone(rbacKinds),
	corev1.SchemeGroupVersion.WithResource("configmaps"), corev1.SchemeGroupVersion.WithResource("resourcequotas"),
	corev1.SchemeGroupVersion.WithResource("serviceaccounts"),
	networkingv1.SchemeGroupVersion.WithResource("networkpolicies"),
	corev1.SchemeGroupVersion.WithResource("namespaces"), v1alpha1.GroupVersion.WithResource("namespacetemplates"),
)

// recorder records writes in the order in which the API server made them, so that it also sees states that last only a
// moment.
type recorder struct {
	kinds   []schema.GroupVersionResource
	client  dynamic.Interface
	prefix  string
	marks   atomic.Int64
	mu      sync.Mutex
	records []escalation.Record
	// lastRevisions has the revision of the last event of each kind.
	lastRevisions map[schema.GroupVersionResource]uint64
	// writers has the user of a write by its revision, and deleters the user of a deletion by the object's UID. All
	// other writes are the operator's.
	writers  map[uint64]string
	deleters map[types.UID]string
	// finishedPrefixes are the prefixes whose objects are no longer recorded.
	finishedPrefixes []string
}

// newRecorder records the writes of objects in namespaces whose names begin with a prefix, and of cluster-scoped
// objects whose own names do.
func newRecorder(t *testing.T, cluster *testCluster, prefix string, kinds ...schema.GroupVersionResource) *recorder {
	t.Helper()
	clients, err := dynamic.NewForConfig(cluster.controlPlane.RESTConfig())
	require.NoError(t, err)
	r := &recorder{
		kinds: kinds, client: clients, prefix: prefix, lastRevisions: map[schema.GroupVersionResource]uint64{},
		writers: map[uint64]string{}, deleters: map[types.UID]string{},
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watches sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		watches.Wait()
	})
	for _, kind := range kinds {
		object := newMarker(kind, prefix)
		_, err := clients.Resource(kind).Namespace(object.GetNamespace()).Create(t.Context(), object,
			metav1.CreateOptions{})
		require.NoError(t, err)
		list, err := clients.Resource(kind).List(t.Context(), metav1.ListOptions{Limit: 1})
		require.NoError(t, err)
		source := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context,
			options metav1.ListOptions) (watch.Interface, error) {
			return clients.Resource(kind).Watch(ctx, options)
		}}
		events, err := toolswatch.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), source)
		require.NoError(t, err)
		watches.Go(func() {
			defer events.Stop()
			for event := range events.ResultChan() {
				r.record(kind, event)
			}
		})
	}
	return r
}

func (r *recorder) record(kind schema.GroupVersionResource, event watch.Event) {
	object, ok := event.Object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	revision := revisionOf(object)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastRevisions[kind] = revision
	gone := slices.ContainsFunc(r.finishedPrefixes, func(prefix string) bool {
		return strings.HasPrefix(namespaceOrName(object), prefix)
	})
	if event.Type != watch.Bookmark && strings.HasPrefix(namespaceOrName(object), r.prefix) && !gone {
		r.records = append(r.records,
			escalation.Record{Revision: revision, Object: object, Deleted: event.Type == watch.Deleted})
	}
}

// namespaceOrName returns the namespace of an object, or the name of a cluster-scoped one.
func namespaceOrName(object metav1.Object) string {
	if object.GetNamespace() != "" {
		return object.GetNamespace()
	}
	return object.GetName()
}

func revisionOf(object metav1.Object) uint64 {
	revision, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		panic(err) // the API server always sets it
	}
	return revision
}

// noteWrite records the user of the write that returned an object.
func (r *recorder) noteWrite(user string, object metav1.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writers[revisionOf(object)] = user
}

// noteDeletion records the user who deletes an object.
func (r *recorder) noteDeletion(user string, object metav1.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deleters[object.GetUID()] = user
}

// newMarker returns an object that is changed only to find out how far a watch has come.
func newMarker(kind schema.GroupVersionResource, prefix string) *unstructured.Unstructured {
	kinds := map[string]string{
		"roles": "Role", "rolebindings": "RoleBinding", "configmaps": "ConfigMap", "resourcequotas": "ResourceQuota",
		"serviceaccounts": "ServiceAccount",
		"networkpolicies": "NetworkPolicy", "namespaces": "Namespace", "namespacetemplates": "NamespaceTemplate",
	}
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(kind.GroupVersion().WithKind(kinds[kind.Resource]))
	object.SetName("marker-of-" + prefix)
	switch kind.Resource {
	case "namespaces":
	case "namespacetemplates":
		object.Object["spec"] = map[string]any{
			"namespaces": map[string]any{
				"labelSelector": map[string]any{"matchLabels": map[string]any{"no": "namespace"}},
			},
		}
	case "rolebindings":
		object.Object["roleRef"] = map[string]any{"apiGroup": rbacv1.GroupName, "kind": "Role", "name": "marker"}
		fallthrough
	default:
		object.SetNamespace(metav1.NamespaceDefault)
	}
	return object
}

// waitRecorded waits until all earlier writes are recorded. It returns a revision that is not older than any of them.
func (r *recorder) waitRecorded(ctx context.Context) (uint64, error) {
	wanted := map[schema.GroupVersionResource]uint64{}
	var first uint64
	body := fmt.Appendf(nil, `{"metadata": {"annotations": {"marked": "%d"}}}`, r.marks.Add(1))
	for _, kind := range r.kinds {
		object := newMarker(kind, r.prefix)
		marked, err := r.client.Resource(kind).Namespace(object.GetNamespace()).Patch(ctx, object.GetName(),
			types.MergePatchType, body, metav1.PatchOptions{})
		if err != nil {
			return 0, fmt.Errorf("mark %s: %w", kind.Resource, err)
		}
		if wanted[kind] = revisionOf(marked); first == 0 {
			first = wanted[kind]
		}
	}
	return first,
		wait.PollUntilContextTimeout(ctx, 2*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			for kind, revision := range wanted {
				if r.lastRevisions[kind] < revision {
					return false, nil
				}
			}
			return true, nil
		})
}

// isCreatedByKubernetes reports whether an object is one that Kubernetes creates in every namespace and that no
// template has populated.
func isCreatedByKubernetes(object *unstructured.Unstructured) bool {
	_, populated := object.GetLabels()[v1alpha1.TemplateNameLabel]
	return !populated &&
		(object.GetKind() == "ServiceAccount" && object.GetName() == "default" ||
			object.GetName() == "kube-root-ca.crt")
}

// finishRecords returns the records of namespaces and templates with a prefix, with their writers. Later writes to them
// are no longer recorded.
func (r *recorder) finishRecords(prefix string) []escalation.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	var taken, rest []escalation.Record
	for _, record := range r.records {
		if !strings.HasPrefix(namespaceOrName(record.Object), prefix) {
			rest = append(rest, record)
			continue
		}
		if record.Writer = r.writers[record.Revision]; record.Deleted {
			record.Writer = r.deleters[record.Object.GetUID()]
		} else if record.Writer == "" && isCreatedByKubernetes(record.Object) {
			record.Writer = "kubernetes"
		}
		taken = append(taken, record)
	}
	r.records, r.finishedPrefixes = rest, append(r.finishedPrefixes, prefix)
	return taken
}
