package repository

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"nstpl.dev/nstpl/manifests/crd"
	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/test/controlplane"
)

// errEnded is the error of all requests of a process that has ended.
var errEnded = errors.New("the process has ended")

// ending is a transport that ends at a write: before it is sent, or before its answer arrives. Then all requests fail.
type ending struct {
	http.RoundTripper
	at      int64
	after   bool
	writes  atomic.Int64
	isEnded atomic.Bool
}

func (e *ending) RoundTrip(request *http.Request) (*http.Response, error) {
	if e.isEnded.Load() {
		return nil, errEnded
	}
	if request.Method != http.MethodGet && e.writes.Add(1) == e.at {
		e.isEnded.Store(true)
		if e.after {
			if response, err := e.RoundTripper.RoundTrip(request); err == nil {
				response.Body.Close()
			}
		}
		return nil, errEnded
	}
	return e.RoundTripper.RoundTrip(request)
}

// newRepositories returns a controller without caches, as of a process that has just begun.
func newRepositories(t *testing.T, config *rest.Config, end *ending) *Repositories {
	t.Helper()
	config = rest.CopyConfig(config)
	if end != nil {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			end.RoundTripper = next
			return end
		})
	}
	api, err := client.New(config, client.Options{Scheme: testScheme(t)})
	require.NoError(t, err)
	return &Repositories{
		Client: api, Live: api, Cluster: &Cluster{Cached: api, Config: config},
		woken: make(chan event.GenericEvent, 64), Recorder: &events.FakeRecorder{},
	}
}

// apply calls applyTree as a pass does.
func (r *Repositories) apply(
	ctx context.Context, repository *v1alpha1.PolicyRepository, tree *vetted,
) (outcome, error) {
	list := &v1alpha1.PolicyRepositoryList{}
	if err := r.Live.List(ctx, list); err != nil {
		return outcome{}, err
	}
	return r.applyTree(ctx, repository, tree, ownersOf(list))
}

func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	add := runtime.NewSchemeBuilder(corev1.AddToScheme, rbacv1.AddToScheme, apiextensionsv1.AddToScheme,
		v1alpha1.AddToScheme)
	require.NoError(t, add.AddToScheme(scheme))
	return scheme
}

// treeOf returns the tree of a commit.
func treeOf(t *testing.T, root, commit string, files map[string]string) *vetted {
	t.Helper()
	in := fstest.MapFS{}
	for path, content := range files {
		in[path] = &fstest.MapFile{Data: []byte(content)}
	}
	result, err := hierarchy.Load(in, root)
	require.NoError(t, err)
	require.Empty(t, result.Violations)
	compiled, err := result.Tree.Compile(v1alpha1.AuthoritativeDelete)
	require.NoError(t, err)
	declared, err := inventory.Declare(compiled)
	require.NoError(t, err)
	return &vetted{commit: commit, root: root, declared: declared}
}

// newCluster starts a control plane with the kinds of nstpl. It returns a controller for it that never ends.
func newCluster(t *testing.T) (*controlplane.Cluster, *Repositories) {
	t.Helper()
	cluster := controlplane.New(t)
	admin := newRepositories(t, cluster.RESTConfig(), nil)
	definitions, err := crd.All()
	require.NoError(t, err)
	for _, definition := range definitions {
		require.NoError(t, admin.Client.Create(t.Context(), definition))
	}
	require.NoError(t, admin.Client.Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.OperatorNamespace},
	}))
	return cluster, admin
}

// createRepository creates a PolicyRepository whose tree has the same name.
func createRepository(t *testing.T, admin *Repositories, name string) *v1alpha1.PolicyRepository {
	t.Helper()
	repository := &v1alpha1.PolicyRepository{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.PolicyRepositorySpec{Git: &v1alpha1.GitSource{URL: "https://example.com/a"}, Path: name},
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) { // until the kind is served
		assert.NoError(c, admin.Client.Create(t.Context(), repository))
	}, 30*time.Second, 50*time.Millisecond)
	return repository
}

func roleFile(name string) string {
	return "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: " + name +
		"}, rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}"
}

// object returns a namespace.
func object(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}
}

// transport is a RoundTripper.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// liveOf returns the objects whose names begin with a prefix.
func liveOf(t *testing.T, admin *Repositories, prefix string) []string {
	t.Helper()
	live, err := admin.Cluster.live(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	var found []string
	for id, object := range live {
		if id.Name != prefix && !strings.HasPrefix(id.Name, prefix+"-") {
			continue
		}
		line := id.Kind + " " + id.Name
		if object.GetDeletionTimestamp() != nil {
			line += ", being deleted"
		}
		found = append(found, line)
	}
	slices.Sort(found)
	return found
}
