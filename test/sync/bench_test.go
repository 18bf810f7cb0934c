package sync_test

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/measure"
)

// BenchmarkCommit measures how long it takes from a request until a change of one line is in force in all namespaces
// of a tree, compared with a client that knows the change and only writes it. It also reports how long the first commit
// takes for each namespace, and the peak of nstpl-sync's memory.
func BenchmarkCommit(b *testing.B) {
	for _, namespaces := range []int{1000, 5000} {
		b.Run(fmt.Sprintf("namespaces=%d", namespaces), func(b *testing.B) { benchmarkCommit(b, namespaces) })
	}
}

func benchmarkCommit(b *testing.B, namespaces int) {
	b.Helper()
	name := fmt.Sprintf("bench%d", namespaces)
	config := rest.CopyConfig(cluster.RESTConfig())
	config.QPS = -1
	clientset, err := kubernetes.NewForConfig(config)
	require.NoError(b, err)
	files := map[string]string{"viewers.yaml": bindingFile("viewers", "view", "user-0")}
	for i := range namespaces {
		ns := fmt.Sprintf("%s-%d", name, i)
		files[fmt.Sprintf("%s-space-%d/%s/namespace.yaml", name, i/100, ns)] = namespaceFile(ns)
	}
	x := newTree(b, name)
	x.commit(files)
	start := time.Now()
	populated := awaitBinding(b, clientset, name, "user-0", namespaces)
	x.follow(func(repository *v1alpha1.PolicyRepository) {
		repository.Spec.Interval = &metav1.Duration{Duration: 24 * time.Hour}
	})
	<-populated
	first := time.Since(start)
	awaitServiceAccounts(b, clientset, namespaces)
	bare := createNamespace(b, clientset, name+"-bare")

	var synced, floor time.Duration
	rounds := 0
	for b.Loop() {
		rounds++
		user := fmt.Sprintf("user-%d", rounds)
		changed := maps.Clone(files)
		changed["viewers.yaml"] = bindingFile("viewers", "view", user)
		x.git.Commit(b, x.commitOf(changed))
		populated := awaitBinding(b, clientset, name, user, namespaces)
		start := time.Now()
		x.request()
		<-populated
		synced += time.Since(start)

		start = time.Now()
		require.NoError(b, writeBindings(b.Context(), clientset, bare, namespaces))
		floor += time.Since(start)
	}
	b.ReportMetric(first.Seconds(), "s-first-commit")
	b.ReportMetric(synced.Seconds()/float64(rounds), "s/commit")
	b.ReportMetric(synced.Seconds()/floor.Seconds(), "x-bare-client")
	peak, err := measure.PeakMemory(cluster.sync.PID())
	require.NoError(b, err)
	b.ReportMetric(peak/measure.MiB, "MiB-peak")
}

// awaitBinding returns a channel that is closed when the RoleBinding of the tree has a user in all namespaces.
func awaitBinding(b *testing.B, clientset kubernetes.Interface, tree, user string, namespaces int) <-chan struct{} {
	b.Helper()
	done := make(chan struct{})
	list := metav1.ListOptions{LabelSelector: v1alpha1.TemplateNameLabel + "=" + tree}
	events, err := clientset.RbacV1().RoleBindings(metav1.NamespaceAll).Watch(b.Context(), list)
	require.NoError(b, err)
	go func() {
		defer close(done)
		defer events.Stop()
		have := map[string]bool{}
		for event := range events.ResultChan() {
			binding, ok := event.Object.(*rbacv1.RoleBinding)
			if ok && len(binding.Subjects) == 1 && binding.Subjects[0].Name == user {
				have[binding.Namespace] = true
			}
			if len(have) == namespaces {
				return
			}
		}
		b.Error("the watch has ended")
	}()
	return done
}

// awaitServiceAccounts returns when the ServiceAccounts of as many namespaces exist, so that the controller manager has
// nothing left to do for them.
func awaitServiceAccounts(b *testing.B, clientset kubernetes.Interface, namespaces int) {
	b.Helper()
	require.Eventually(b, func() bool {
		list, err := clientset.CoreV1().ServiceAccounts(metav1.NamespaceAll).List(b.Context(),
			metav1.ListOptions{ResourceVersion: "0"})
		return err == nil && len(list.Items) >= namespaces
	}, 5*time.Minute, time.Second)
}

// createNamespace creates a namespace of no tree, and returns its name.
func createNamespace(b *testing.B, clientset kubernetes.Interface, name string) string {
	b.Helper()
	ns := namespace(name)
	_, err := clientset.CoreV1().Namespaces().Create(b.Context(), ns, metav1.CreateOptions{})
	require.NoError(b, err)
	return name
}

// writeBindings applies objects of the same size, as many at a time as the operator does. They are in a namespace of no
// tree, because in those of a tree the operator would delete them.
func writeBindings(ctx context.Context, clientset kubernetes.Interface, namespace string, count int) error {
	var failed atomic.Pointer[error]
	workqueue.ParallelizeUntil(ctx, 16, count, func(i int) {
		name := fmt.Sprintf("bare-%d", i)
		body := fmt.Sprintf(`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {
			"name": %q, "labels": {"example/namespace-template-name": "bench"},
			"annotations": {"example.nstpl.dev/applied-hash": "0123456789abcdef"}},
			"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
			"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "user-%d"}]}`,
			name, time.Now().UnixNano())
		_, err := clientset.RbacV1().RoleBindings(namespace).Patch(ctx, name, types.ApplyPatchType, []byte(body),
			metav1.PatchOptions{FieldManager: "bare"})
		if err != nil {
			failed.Store(&err)
		}
	})
	if err := failed.Load(); err != nil {
		return *err
	}
	return ctx.Err()
}
