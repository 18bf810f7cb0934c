package sync_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// fluxTree is a tree of policies in the artifacts of an object of Flux. The test is the controller of the object.
type fluxTree struct {
	*tree
	object *unstructured.Unstructured
	server *httptest.Server

	mu sync.Mutex
	// answers are the answers of the server, by path.
	answers map[string]http.HandlerFunc
}

// newFluxTree creates an object of Flux without an artifact, and the server of its artifacts.
func newFluxTree(t *testing.T, name, kind string) *fluxTree {
	t.Helper()
	x := &fluxTree{tree: &tree{TB: t, name: name}, answers: map[string]http.HandlerFunc{}}
	x.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x.mu.Lock()
		answer := x.answers[r.URL.Path]
		x.mu.Unlock()
		if answer == nil {
			answer = http.NotFound
		}
		answer(w, r)
	}))
	t.Cleanup(x.server.Close)
	x.object = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind,
		"metadata": map[string]any{"namespace": "default", "name": name},
	}}
	return x
}

// create creates the object.
func (x *fluxTree) create() {
	x.Helper()
	x.object.SetResourceVersion("")
	require.NoError(x, cluster.client.Create(x.Context(), x.object))
}

// follow creates the PolicyRepository. Nothing but changes of the object can make it ask again soon.
func (x *fluxTree) follow() {
	x.Helper()
	x.followSpec(v1alpha1.PolicyRepositorySpec{
		SourceRef: &v1alpha1.ArtifactSource{
			APIVersion: "source.toolkit.fluxcd.io/v1", Kind: x.object.GetKind(), Namespace: "default", Name: x.name,
		},
		Path: "policies/" + x.name, Interval: &metav1.Duration{Duration: 24 * time.Hour},
	})
}

// archived returns files of the tree as Flux archives them, and the digest.
func (x *fluxTree) archived(files map[string]string) (archive []byte, digest string) {
	x.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	w := tar.NewWriter(compressed)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: "policies/" + x.name + "/" + path, Mode: 0o644, Size: int64(len(files[path])),
		}
		require.NoError(x, w.WriteHeader(header))
		_, err := w.Write([]byte(files[path]))
		require.NoError(x, err)
	}
	require.NoError(x, w.Close())
	require.NoError(x, compressed.Close())
	sum := sha256.Sum256(out.Bytes())
	return out.Bytes(), "sha256:" + hex.EncodeToString(sum[:])
}

// offer sets the status of the object to an artifact, whose URL has the digest as its path.
func (x *fluxTree) offer(digest, revision string, ready bool) {
	x.Helper()
	condition := map[string]any{"type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored artifact"}
	if !ready {
		condition = map[string]any{
			"type": "Ready", "status": "False", "reason": "PullFailed", "message": "no such host",
		}
	}
	x.object.Object["status"] = map[string]any{
		"artifact": map[string]any{
			"digest": digest, "revision": revision, "url": x.server.URL + "/" + digest, "path": digest,
			"lastUpdateTime": time.Now().UTC().Format(time.RFC3339),
		},
		"conditions": []any{condition},
	}
	require.NoError(x, cluster.client.Status().Update(x.Context(), x.object))
}

// serve has the server answer for a digest.
func (x *fluxTree) serve(digest string, answer http.HandlerFunc) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answers["/"+digest] = answer
}

// publish stores files of the tree as the next artifact, and returns its digest.
func (x *fluxTree) publish(revision string, files map[string]string) string {
	x.Helper()
	archive, digest := x.archived(files)
	x.serve(digest, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive) })
	x.offer(digest, revision, true)
	return digest
}

// isRepaired checks that a ClusterRole of the tree is created again.
func (x *fluxTree) isRepaired(name string) {
	x.Helper()
	require.NoError(x, cluster.client.Delete(x.Context(), role(name)))
	x.waitExists(role(name))
}

// Artifacts of Flux are followed when the status of their object changes, as commits of Git are.
func TestArtifactsOfFluxAreFollowed(t *testing.T) {
	t.Parallel()
	x := newFluxTree(t, "oci", "OCIRepository")
	x.create()
	x.follow()
	require.Contains(t, x.waitReason("SourceNotReady", ""),
		"OCIRepository default/oci has no artifact: wait for Flux to store one; no commit is in force yet")
	first := map[string]string{
		"role.yaml": roleFile("oci-viewer", "get"), "viewers.yaml": bindingFile("viewers", "oci-viewer", "ann"),
		"oci-a/namespace.yaml": namespaceFile("oci-a"), "oci-b/namespace.yaml": namespaceFile("oci-b"),
		"oci-c/namespace.yaml": namespaceFile("oci-c"),
	}
	a := x.publish("latest@sha256:1a2b", first)
	x.waitApplied(a)
	x.waitExists(binding("oci-a", "oci.viewers"))
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.Equal(c, v1alpha1.RepositoryCommits{Fetched: a, Vetted: a, Applied: a}, status.Commits)
		if assert.Len(c, status.History, 1) {
			assert.Equal(c, "latest@sha256:1a2b", status.History[0].Subject)
		}
	})
	x.isRepaired("oci-viewer")

	// A violation changes nothing. It is followed at once, and so is its correction.
	broken := maps.Clone(first)
	broken["oci-b/namespace.yaml"] = namespaceFile("other")
	b := x.publish("latest@sha256:2b3c", broken)
	message := x.waitReason("Violations", b)
	require.Contains(t, message, "artifact "+b[:14]+" breaks a rule: oci/oci-b/namespace.yaml:4: ")
	require.Contains(t, message, "; artifact "+a[:14]+" stays in force")
	x.isRepaired("oci-viewer")

	// Deletions need a confirmation of this artifact.
	d := x.publish("latest@sha256:3c4d", without(first, "oci-b/namespace.yaml", "oci-c/namespace.yaml"))
	require.Contains(t, x.waitReason("DeletionsPending", d),
		"artifact "+d[:14]+" is in force, but would delete 2 namespaces")
	x.annotate(v1alpha1.ConfirmedCommitAnnotation, b)
	x.waitRequestServed()
	x.waitReason("DeletionsPending", d)
	x.mustExist(namespace("oci-b"))
	x.mustExist(namespace("oci-c"))
	x.annotate(v1alpha1.ConfirmedCommitAnnotation, d)
	x.waitGone(namespace("oci-b"))
	x.waitGone(namespace("oci-c"))
	x.waitApplied(d)
}

// While an artifact cannot be used, or does not exist, the one before it stays in force, and is kept in force.
func TestFailuresOfASourceOfFluxChangeNothing(t *testing.T) {
	t.Parallel()
	x := newFluxTree(t, "bucket", "Bucket")
	x.create()
	x.follow()
	files := map[string]string{
		"role.yaml": roleFile("bucket-a", "get"), "bucket-a/namespace.yaml": namespaceFile("bucket-a"),
	}
	a := x.publish("1", files)
	x.waitApplied(a)

	// The server sends something else.
	_, other := x.archived(map[string]string{})
	archive, _ := x.archived(map[string]string{"role.yaml": roleFile("bucket-b", "get")})
	x.serve(other, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive) })
	x.offer(other, "2", true)
	require.Contains(t, x.waitReason("NotVerified", a), "does not have the digest "+other)
	x.mustNotExist(role("bucket-b"))
	x.isRepaired("bucket-a")

	// The server hangs. The next artifact does not wait for it.
	asked := make(chan struct{}, 10)
	x.serve("sha256:"+hex.EncodeToString(make([]byte, 32)), func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	})
	x.offer("sha256:"+hex.EncodeToString(make([]byte, 32)), "3", true)
	<-asked
	x.isRepaired("bucket-a")
	files["role-2.yaml"] = roleFile("bucket-c", "get")
	b := x.publish("4", files)
	x.waitApplied(b)
	inForce := "; artifact " + b[:14] + " stays in force"

	// Flux removed the artifact, or cannot fetch the source.
	_, gone := x.archived(map[string]string{"x": "y"})
	x.offer(gone, "5", true)
	require.Contains(t, x.waitReason("Unreachable", b),
		"(status 404): wait for its controller to store it again"+inForce)
	x.offer(b, "4", false)
	require.Equal(t,
		"Bucket default/bucket is not ready: its condition Ready is False: PullFailed: no such host"+inForce,
		x.waitReason("SourceNotReady", b))
	x.isRepaired("bucket-a")

	// The object is deleted, and created again.
	require.NoError(t, cluster.client.Delete(t.Context(), x.object))
	require.Equal(t, "Bucket default/bucket does not exist: create it, or change spec.sourceRef"+inForce,
		x.waitReason("NotFound", b))
	x.isRepaired("bucket-a")
	x.create()
	x.waitApplied(x.publish("6", map[string]string{"bucket-a/namespace.yaml": namespaceFile("bucket-a")}))
	x.waitGone(role("bucket-a"))
}

// A kind that is not installed yet is followed after it was installed.
func TestAKindOfFluxThatIsInstalledLater(t *testing.T) {
	t.Parallel()
	x := newFluxTree(t, "later", "ExternalArtifact")
	x.follow()
	require.Contains(t, x.waitReason("NotFound", ""),
		"the kind ExternalArtifact of source.toolkit.fluxcd.io/v1 is not installed: install the source controller of Flux")
	_, err := kubectl(t.Context(), "apply", "--filename", "testdata/externalartifacts.yaml")
	require.NoError(t, err)
	x.eventually(func(c *assert.CollectT) { assert.NoError(c, cluster.client.Create(t.Context(), x.object)) })
	a := x.publish("v1.0.0", map[string]string{"later-a/namespace.yaml": namespaceFile("later-a")})
	x.request()
	x.waitApplied(a)
}

// After a restart, the artifact in force is read again if its object still has it. If not, nothing is deleted, and the
// status says that nothing is repaired. The test is not parallel, since it restarts the process of all tests.
func TestARestartReadsTheArtifactAgain(t *testing.T) {
	const commit = "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d"
	x := newFluxTree(t, "again", "GitRepository")
	x.create()
	x.follow()
	files := map[string]string{
		"role.yaml": roleFile("again-a", "get"), "again-a/namespace.yaml": namespaceFile("again-a"),
	}
	a := x.publish("main@sha1:"+commit, files)
	x.waitApplied(commit)
	restart := func(between func()) {
		t.Helper()
		require.NoError(t, cluster.sync.Stop())
		between()
		startSync(t, cluster.syncOptions)
	}
	restart(func() {
		x.offer(a, "main@sha1:"+commit, false)
		require.NoError(t, cluster.client.Delete(t.Context(), role("again-a")))
	})
	require.Contains(t, x.waitReason("SourceNotReady", ""), "; commit 1a2b3c4 stays in force")
	x.waitExists(role("again-a"))

	var b string
	restart(func() {
		b = x.publish("main", map[string]string{"again-a/namespace.yaml": namespaceFile("other")})
	})
	message := x.waitReason("Violations", b)
	require.Contains(t, message, "; and commit 1a2b3c4, which is in force, cannot be fetched, so it is not repaired: "+
		"GitRepository default/again does not have the commit 1a2b3c4 any more; commit 1a2b3c4 stays in force")
	x.mustExist(namespace("again-a"))
	x.mustExist(role("again-a"))
	x.waitApplied(x.publish("main", files))
}

// A PolicyRepository has exactly one source, of a kind that can be followed.
func TestAPolicyRepositoryHasOneSource(t *testing.T) {
	t.Parallel()
	git := &v1alpha1.GitSource{URL: "https://git.example.com/policies.git"}
	ref := func(version, kind, ns string) *v1alpha1.ArtifactSource {
		return &v1alpha1.ArtifactSource{APIVersion: version, Kind: kind, Namespace: ns, Name: "policies"}
	}
	const v1 = "source.toolkit.fluxcd.io/v1"
	for name, test := range map[string]struct {
		git *v1alpha1.GitSource
		ref *v1alpha1.ArtifactSource
		err string
	}{
		"none":          {nil, nil, "spec has exactly one of git and sourceRef"},
		"both":          {git, ref(v1, "Bucket", "default"), "spec has exactly one of git and sourceRef"},
		"another kind":  {nil, ref(v1, "HelmChart", "default"), "spec.sourceRef.kind: Unsupported value"},
		"another group": {nil, ref("v1", "Bucket", "default"), "spec.sourceRef.apiVersion: Unsupported value"},
		"no namespace":  {nil, ref(v1, "Bucket", ""), "spec.sourceRef.namespace"},
		"a path":        {nil, ref(v1, "Bucket", "a/b"), "spec.sourceRef.namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := cluster.client.Create(t.Context(), &v1alpha1.PolicyRepository{
				ObjectMeta: metav1.ObjectMeta{Name: "one-source"},
				Spec:       v1alpha1.PolicyRepositorySpec{Git: test.git, SourceRef: test.ref, Path: "one-source"},
			}, client.DryRunAll)
			require.ErrorContains(t, err, test.err)
		})
	}
}
