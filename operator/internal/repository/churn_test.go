package repository

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// dropped returns two commits of a tree. The second one drops an adopted namespace and the policyspace whose template
// grants something to it. It moves a namespace, and replaces one of its labels.
func dropped(t *testing.T, root string) (before, after *vetted) {
	t.Helper()
	const devs = "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: devs}, " +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}, " +
		"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: devs}]}"
	namespace := func(name, label string) string {
		return "{apiVersion: v1, kind: Namespace, metadata: {name: " + root + "-" + name +
			", labels: {" + label + ": a}}}"
	}
	team, other := root+"-team/", root+"-other/"
	before = treeOf(t, root, "one", map[string]string{
		team + "devs.yaml": devs, team + root + "-adopted/ns.yaml": namespace("adopted", "dropped"),
		team + root + "-moves/ns.yaml": namespace("moves", "dropped"),
	})
	after = treeOf(t, root, "two", map[string]string{other + root + "-moves/ns.yaml": namespace("moves", "added")})
	return before, after
}

// createAdopted creates the namespace that dropped adopts.
func createAdopted(t *testing.T, admin *Repositories, root string) {
	t.Helper()
	require.NoError(t, admin.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: root + "-adopted", Annotations: map[string]string{v1alpha1.AdoptAnnotation: "true"},
	}}))
}

// A user of a namespace may change it before each request of nstpl-sync. What the tree takes away is taken away all the
// same.
func TestChangesByUsersDelayNoRemoval(t *testing.T) {
	t.Parallel()
	cluster, admin := newCluster(t)
	reader := newRepositories(t, cluster.RESTConfig(), nil) // does not know what admin wrote
	const root = "churn"
	repository := createRepository(t, admin, root)
	createAdopted(t, admin, root)
	before, after := dropped(t, root)
	o, err := admin.apply(t.Context(), repository, before)
	require.NoError(t, err)
	require.True(t, o.isComplete(), "%v %v", o.failures, o.Conflicts)

	var changes atomic.Int64
	config := rest.CopyConfig(cluster.RESTConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(request *http.Request) (*http.Response, error) {
			name, isOfNamespace := strings.CutPrefix(request.URL.Path, "/api/v1/namespaces/")
			if isOfNamespace && request.Method == http.MethodPatch {
				change := fmt.Sprintf(`{"metadata": {"annotations": {"user": "%d"}}}`, changes.Add(1))
				ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
				err := admin.Client.Patch(request.Context(), ns, client.RawPatch(types.MergePatchType, []byte(change)))
				if err != nil {
					return nil, err
				}
			}
			return next.RoundTrip(request)
		})
	})
	o, err = newRepositories(t, config, nil).apply(t.Context(), repository, after)
	require.NoError(t, err)
	require.True(t, o.isComplete(), "%v %v", o.failures, o.Conflicts)
	require.Equal(t, []string{
		"Namespace " + root + "-adopted", "Namespace " + root + "-moves", "NamespaceTemplate " + root,
		"PolicySpace " + root, "PolicySpace " + root + "-other",
	}, liveOf(t, reader, root))
	labels := func(name string) map[string]string {
		ns := &corev1.Namespace{}
		require.NoError(t, admin.Live.Get(t.Context(), client.ObjectKey{Name: root + "-" + name}, ns))
		delete(ns.Labels, corev1.LabelMetadataName)
		return ns.Labels
	}
	require.Empty(t, labels("adopted"))
	require.Equal(t, map[string]string{
		"added": "a", v1alpha1.TreeLabel: root, v1alpha1.PolicySpaceLabel: root + "-other",
	}, labels("moves"))
}

// A label that replaces another one is set in the same request, so that no selector misses the namespace meanwhile.
func TestLabelsAreReplacedAtOnce(t *testing.T) {
	t.Parallel()
	cluster, admin := newCluster(t)
	const root = "atonce"
	repository := createRepository(t, admin, root)
	createAdopted(t, admin, root)
	before, after := dropped(t, root)
	o, err := admin.apply(t.Context(), repository, before)
	require.NoError(t, err)
	require.True(t, o.isComplete(), "%v %v", o.failures, o.Conflicts)
	config := rest.CopyConfig(cluster.RESTConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil && strings.HasSuffix(request.URL.Path, "/namespaces/"+root+"-moves") {
				ns := &corev1.Namespace{}
				if err := admin.Live.Get(request.Context(), client.ObjectKey{Name: root + "-moves"}, ns); err != nil {
					return nil, err
				}
				_, had := ns.Labels["dropped"]
				if _, has := ns.Labels["added"]; had == has {
					return nil, errEnded
				}
			}
			return response, err
		})
	})
	o, err = newRepositories(t, config, nil).apply(t.Context(), repository, after)
	require.NoError(t, err)
	require.True(t, o.isComplete(), "%v %v", o.failures, o.Conflicts)
}

// A namespace that cannot be released does not keep the template that grants something to it: the release was to end
// that grant, too.
func TestANamespaceThatCannotBeReleasedKeepsNoTemplate(t *testing.T) {
	t.Parallel()
	cluster, admin := newCluster(t)
	reader := newRepositories(t, cluster.RESTConfig(), nil) // does not know what admin wrote
	const root = "unreleased"
	repository := createRepository(t, admin, root)
	createAdopted(t, admin, root)
	before, after := dropped(t, root)
	o, err := admin.apply(t.Context(), repository, before)
	require.NoError(t, err)
	require.True(t, o.isComplete(), "%v %v", o.failures, o.Conflicts)
	config := rest.CopyConfig(cluster.RESTConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(request *http.Request) (*http.Response, error) {
			if request.Method == http.MethodPatch && strings.HasSuffix(request.URL.Path, "-adopted") {
				return nil, errEnded
			}
			return next.RoundTrip(request)
		})
	})
	o, err = newRepositories(t, config, nil).apply(t.Context(), repository, after)
	require.NoError(t, err)
	require.Len(t, o.failures, 1)
	require.Equal(t, []string{
		"Namespace " + root + "-adopted", "Namespace " + root + "-moves", "NamespaceTemplate " + root,
		"PolicySpace " + root, "PolicySpace " + root + "-other", "PolicySpace " + root + "-team",
	}, liveOf(t, reader, root))
}
