package repository

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/files"
	"nstpl.dev/nstpl/operator/internal/repository/artifact"
	"nstpl.dev/nstpl/operator/internal/repository/git"
)

// treeSource is where the tree of a PolicyRepository comes from: a Git repository, or an object of Flux.
type treeSource interface {
	// newest returns the revision to follow.
	newest(ctx context.Context) (revision, error)
	// revision returns the revision of a commit or artifact that newest has returned now or earlier.
	revision(commit string) revision
	// read returns the files in a directory of a commit or artifact, which newest has returned now or earlier. The
	// error is files.RefusedFiles if some of them cannot be used. It calls wait after the download.
	read(ctx context.Context, commit, directory string, wait wait) (*content, error)
	// keep keeps a commit, so that it can be read again, and forgets all others.
	keep(commit string) error
	close()
}

// wait waits until a commit or artifact that was downloaded may be read, which needs memory.
type wait func(context.Context) error

// revision is what a source contains at a time.
type revision struct {
	// commit is the name that people see and confirm: the hash of a commit, or the digest of an artifact.
	commit string
	// content is the hash of the commit and of the keys that verify it, or the digest of the artifact: if it is the
	// same, so are the content and whether it is trusted.
	content string
}

// content is a directory of a commit or artifact.
type content struct {
	revision
	author, subject string
	// committed is when a commit was made, as its committer says. It is zero for artifacts.
	committed time.Time
	files     fs.FS
	close     func()
}

// sources open the sources of PolicyRepositories.
type sources struct {
	// secrets and objects read from the API server.
	secrets client.Reader
	objects dynamic.Interface
	// dir is the directory for fetched commits.
	dir       string
	artifacts *artifact.Client
}

// open opens the source of a PolicyRepository, of which a commit is in force, with the credentials as they are stored
// now.
func (s *sources) open(
	ctx context.Context, repository *v1alpha1.PolicyRepository, inForce string,
) (treeSource, error) {
	if ref := repository.Spec.SourceRef; ref != nil {
		s.remove(repository.UID) // the commits of a Git repository that it followed before
		return &fluxSource{objects: s.objects, client: s.artifacts, ref: *ref}, nil
	}
	if repository.Spec.Git == nil {
		return nil, files.Failf(files.InvalidConfiguration, "the PolicyRepository has no source: set spec.git or "+
			"spec.sourceRef")
	}
	return s.openGit(ctx, *repository.Spec.Git, inForce, s.dirOf(repository.UID))
}

func (s *sources) dirOf(repository types.UID) string { return filepath.Join(s.dir, string(repository)) }

// fullUID matches the UIDs that the API server gives to objects.
var fullUID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// remove removes what was fetched for a PolicyRepository.
func (s *sources) remove(repository types.UID) {
	if s.dir != "" {
		_ = os.RemoveAll(s.dirOf(repository))
	}
}

// forget removes what was fetched for all PolicyRepositories but those with the given UIDs, also by an earlier process,
// or by a fetch that ended after its PolicyRepository was deleted. What cannot be removed is removed by the next pass.
// The directory may have other files, too.
func (s *sources) forget(exists map[types.UID]bool) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return // nothing was fetched yet, or the next fetch reports the error
	}
	for _, entry := range entries {
		if name := entry.Name(); fullUID.MatchString(name) && !exists[types.UID(name)] {
			s.remove(types.UID(name))
		}
	}
}

// inForce returns the commit or artifact that is in force, if any, with the directory of it that was followed. The
// status names only one that was applied completely: one before that would bring back what the newer one took away.
func (s *sources) inForce(ctx context.Context, repository *v1alpha1.PolicyRepository) (committed, error) {
	rec, err := readRecord(ctx, s.secrets, repository)
	if err != nil {
		return committed{}, err
	}
	return committed{
		commit: cmp.Or(rec.inForce.commit, repository.Status.Commits.Applied),
		path:   cmp.Or(rec.inForce.path, repository.Spec.Path),
	}, nil
}

// openGit opens a Git repository, of which a commit is in force.
func (s *sources) openGit(
	ctx context.Context, spec v1alpha1.GitSource, inForce, dir string,
) (_ treeSource, err error) {
	opened := &gitSource{}
	options := git.Options{
		URL: spec.URL, Reference: git.Reference{Branch: "main"}, Dir: dir, Kept: inForce,
		Wait: func(ctx context.Context) error { return opened.wait(ctx) },
	}
	if spec.Ref != nil {
		options.Reference = git.Reference{Branch: spec.Ref.Branch, Tag: spec.Ref.Tag, Commit: spec.Ref.Commit}
	}
	if spec.SecretRef != nil {
		if options.Secret, err = s.secret(ctx, spec.SecretRef.Name); err != nil {
			return nil, err
		}
	}
	if spec.Verify != nil {
		if opened.keys, err = s.secret(ctx, spec.Verify.SecretRef.Name); err != nil {
			return nil, err
		}
		if len(opened.keys) == 0 { // no keys would mean no verification
			return nil, files.Failf(files.InvalidConfiguration,
				"the Secret %s with trusted keys is empty: add PGP or SSH public keys", spec.Verify.SecretRef.Name)
		}
	}
	if opened.remote, err = git.New(options); err != nil {
		return nil, err
	}
	return opened, nil
}

// secret returns the data of a Secret in the operator's namespace.
func (s *sources) secret(ctx context.Context, name string) (map[string][]byte, error) {
	secret := &corev1.Secret{}
	err := s.secrets.Get(ctx, types.NamespacedName{Namespace: v1alpha1.OperatorNamespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, files.Failf(files.InvalidConfiguration, "the Secret %s/%s does not exist: create it",
			v1alpha1.OperatorNamespace, name)
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", v1alpha1.OperatorNamespace, name, err)
	}
	return secret.Data, nil
}

// gitSource is a Git repository.
type gitSource struct {
	remote *git.Remote
	// wait is that of the commit that is being read.
	wait wait
	// keys must have signed commits, unless they are nil.
	keys map[string][]byte
}

func (s *gitSource) newest(ctx context.Context) (revision, error) {
	tip, err := s.remote.Resolve(ctx)
	return s.revision(tip), err
}

func (s *gitSource) revision(commit string) revision {
	content := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(s.keys)) {
		fmt.Fprintf(content, "%s %d\n%s", name, len(s.keys[name]), s.keys[name])
	}
	return revision{commit: commit, content: fmt.Sprintf("%s %x", commit, content.Sum(nil))}
}

func (s *gitSource) read(ctx context.Context, hash, directory string, wait wait) (*content, error) {
	s.wait = wait
	commit, err := s.remote.Fetch(ctx, hash)
	if err != nil {
		return nil, err
	}
	c, err := s.readCommit(ctx, commit, directory)
	if err != nil {
		commit.Close()
		return nil, err
	}
	return c, nil
}

// readCommit returns the files of a fetched commit, whose signature it verifies before.
func (s *gitSource) readCommit(ctx context.Context, commit *git.Commit, directory string) (*content, error) {
	if s.keys != nil {
		if err := git.Verify(commit, s.keys); err != nil {
			return nil, err
		}
	}
	files, err := commit.Files(ctx, directory)
	if err != nil {
		return nil, err
	}
	return &content{
		revision: s.revision(commit.Hash), author: commit.Author, subject: commit.Subject, committed: commit.When,
		files: files, close: func() { commit.Close() },
	}, nil
}

func (s *gitSource) keep(commit string) error { return s.remote.Keep(commit) }

func (s *gitSource) close() { s.remote.Close() }

// fluxSource is an object of Flux.
type fluxSource struct {
	objects dynamic.Interface
	client  *artifact.Client
	ref     v1alpha1.ArtifactSource
	// offered is the artifact that the object had when it was read, or nil.
	offered *artifact.Artifact
}

func (s *fluxSource) newest(ctx context.Context) (revision, error) {
	var err error
	if s.offered, err = artifact.Find(ctx, s.objects, s.ref); err != nil {
		return revision{}, err
	}
	if s.offered.NotReady != "" {
		return revision{},
			files.Failf(files.SourceNotReady, "%s is not ready: %s", s.offered.Source, s.offered.NotReady)
	}
	return s.revision(s.offered.Name()), nil
}

// revision returns a revision without a digest if the object does not have the artifact now.
func (s *fluxSource) revision(name string) revision {
	if s.offered == nil || s.offered.Name() != name {
		return revision{commit: name}
	}
	return revision{commit: name, content: s.offered.Digest}
}

// read downloads the artifact that the object has now. Objects have no older ones.
func (s *fluxSource) read(ctx context.Context, name, directory string, wait wait) (*content, error) {
	if s.offered == nil || s.offered.Name() != name {
		return nil, files.Failf(files.NotFound, "%s %s/%s does not have the %s any more", s.ref.Kind, s.ref.Namespace,
			s.ref.Name, named(name))
	}
	downloaded, err := s.client.Download(ctx, s.offered, directory, wait)
	if err != nil {
		return nil, err
	}
	const maxSubject = 72
	return &content{
		revision: s.revision(name), subject: files.Printable(s.offered.Revision, maxSubject), files: downloaded,
		close: func() {},
	}, nil
}

// keep does nothing: artifacts are not stored.
func (*fluxSource) keep(string) error { return nil }

func (*fluxSource) close() {}
