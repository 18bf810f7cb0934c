package artifact

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/files"
)

const (
	commitHash = "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d"
	someDigest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &object.Object))
	return object
}

func reference(kind string) v1alpha1.ArtifactSource {
	return v1alpha1.ArtifactSource{
		APIVersion: "source.toolkit.fluxcd.io/v1", Kind: kind, Namespace: "flux-system", Name: "policies",
	}
}

// A name stands for one content: that of a commit only if nothing else determined the artifact.
func TestNameOfAnArtifact(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind, revision, more, want string
	}{
		"a branch":              {"GitRepository", "main@sha1:" + commitHash, "", commitHash},
		"a branch with a slash": {"GitRepository", "feature/x@sha1:" + commitHash, "", commitHash},
		"a commit":              {"GitRepository", "sha1:" + commitHash, "", commitHash},
		"ignored files": {
			"GitRepository", "main@sha1:" + commitHash, "observedIgnore: '*.md'", someDigest,
		},
		"an empty list of them": {"GitRepository", "main@sha1:" + commitHash, "observedIgnore: ''", someDigest},
		"included repositories": {
			"GitRepository", "main@sha1:" + commitHash, "observedInclude: [{}]", someDigest,
		},
		"included artifacts": {
			"GitRepository", "main@sha1:" + commitHash, "includedArtifacts: [{}]", someDigest,
		},
		"some directories": {
			"GitRepository", "main@sha1:" + commitHash, "observedSparseCheckout: [a]", someDigest,
		},
		"submodules": {
			"GitRepository", "main@sha1:" + commitHash, "observedRecurseSubmodules: true", someDigest,
		},
		"a hash that is too short":    {"GitRepository", "main@sha1:1a2b3c4", "", someDigest},
		"a hash in capital letters":   {"GitRepository", "main@sha1:" + strings.ToUpper(commitHash), "", someDigest},
		"another hash function":       {"GitRepository", "main@sha256:" + commitHash, "", someDigest},
		"an image":                    {"OCIRepository", "latest@" + someDigest, "", someDigest},
		"something that looks alike":  {"Bucket", "main@sha1:" + commitHash, "", someDigest},
		"an artifact of a controller": {"ExternalArtifact", "v1.0.0", "", someDigest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := of(parse(t, "status: {artifact: {url: 'http://a/b', digest: '"+someDigest+"', revision: '"+
				test.revision+"'},"+test.more+"}"), reference(test.kind))
			require.NoError(t, err)
			require.Equal(t, test.want, a.Name())
			require.Equal(t, "the artifact "+test.revision+" of "+test.kind+" flux-system/policies", a.String())
		})
	}
}

func TestObjectsWithoutUsableArtifact(t *testing.T) {
	t.Parallel()
	artifact := func(url, digest string) string {
		return "status: {artifact: {url: '" + url + "', digest: '" + digest + "', revision: v1}}"
	}
	for name, test := range map[string]struct {
		object string
		reason files.Reason
		err    string
	}{
		"a new object": {
			"spec: {}", files.SourceNotReady, "Bucket flux-system/policies has no artifact: wait for Flux to store one",
		},
		"one that fails": {
			"status: {conditions: [{type: Ready, status: 'False', reason: Failed, message: \"no\\u001b bucket\"}]}",
			files.SourceNotReady, "has no artifact: its condition Ready is False: Failed: no bucket",
		},
		"a status of another shape": {
			"status: {artifact: [1], conditions: {a: b}}", files.SourceNotReady, "has no artifact",
		},
		"no digest": {
			artifact("http://a/b", ""), files.NotVerified, "has no digest, so its content cannot be verified",
		},
		"another algorithm": {
			artifact("http://a/b", "blake3:1a"), files.NotVerified, "is not sha256, sha384 or sha512",
		},
		"an algorithm alone": {artifact("http://a/b", "sha256"), files.NotVerified, "is malformed"},
		"a short digest":     {artifact("http://a/b", "sha256:1a2b"), files.NotVerified, "is malformed"},
		"a digest in capital letters": {
			artifact("http://a/b", "sha256:"+strings.ToUpper(someDigest[7:])), files.NotVerified, "is malformed",
		},
		"a digest of another length": {
			artifact("http://a/b", "sha512:"+someDigest[7:]), files.NotVerified, "is malformed",
		},
		"a file": {
			artifact("file:///etc/passwd", someDigest), files.InvalidConfiguration, "the URL of the artifact",
		},
		"a URL without host": {
			artifact("http:///b", someDigest), files.InvalidConfiguration, "the URL of the artifact",
		},
		"a URL with password": {
			artifact("http://a:b@c/d", someDigest), files.InvalidConfiguration, "without credentials",
		},
		"a URL that is broken": {
			artifact("http://a:b/", someDigest), files.InvalidConfiguration, "the URL of the artifact",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := of(parse(t, test.object), reference("Bucket"))
			failed, ok := errors.AsType[*files.Error](err)
			require.True(t, ok, "%v", err)
			require.ErrorContains(t, err, test.err)
			require.Equal(t, test.reason, failed.Reason)
		})
	}
}

// An object that is not ready keeps its artifact.
func TestObjectThatIsNotReady(t *testing.T) {
	t.Parallel()
	a, err := of(parse(t, "status: {artifact: {url: 'http://a/b', digest: '"+someDigest+"'}, conditions: "+
		"[{type: Ready, status: 'False', reason: GitOperationFailed, message: denied}]}"), reference("GitRepository"))
	require.NoError(t, err)
	require.Equal(t, "its condition Ready is False: GitOperationFailed: denied", a.NotReady)
}

func TestOtherKindsCannotBeFollowed(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*v1alpha1.ArtifactSource){
		func(r *v1alpha1.ArtifactSource) { r.Kind = "Secret" },
		func(r *v1alpha1.ArtifactSource) { r.APIVersion = "v1" },
		func(r *v1alpha1.ArtifactSource) { r.APIVersion = "a/b/c" },
	} {
		ref := reference("Bucket")
		change(&ref)
		_, err := Find(t.Context(), nil, ref)
		require.ErrorContains(t, err,
			"cannot be followed: use a GitRepository, OCIRepository, Bucket or ExternalArtifact")
	}
}
