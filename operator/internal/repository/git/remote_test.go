package git_test

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/internal/repository/git"
	"nstpl.dev/nstpl/test/gittest"
)

// fooCorp is a tree of policies.
func fooCorp() map[string]string {
	return map[string]string{
		"README.md": "# Policies\n",
		"foo-corp/viewers-rolebinding.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n" +
			"metadata: {name: viewers}\n",
		"foo-corp/audit/namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: audit}\n",
		"foo-corp/online/shipping-app-backend/shipping-prod/namespace.yaml": "apiVersion: v1\nkind: Namespace\n" +
			"metadata: {name: shipping-prod}\n",
	}
}

// below returns the files in a directory, with the paths relative to it.
func below(files map[string]string, directory string) map[string]string {
	inside := map[string]string{}
	for path, content := range files {
		if rest, ok := strings.CutPrefix(path, directory+"/"); ok {
			inside[rest] = content
		}
	}
	return inside
}

// served is a repository and the options to read it.
type served struct {
	*gittest.Repository
	options  git.Options
	maxBytes int64
}

// serve serves a new repository over HTTPS.
func serve(t *testing.T, o gittest.HTTPS) *served {
	t.Helper()
	root := t.TempDir()
	repository := gittest.Init(t, root, "policies.git")
	server := gittest.ServeHTTPS(t, root, o)
	secret := map[string][]byte{"ca.crt": server.CA}
	if o.Username != "" {
		secret["username"], secret["password"] = []byte(o.Username), []byte(o.Password)
	}
	if o.Token != "" {
		secret["bearerToken"] = []byte(o.Token)
	}
	return &served{Repository: repository, options: git.Options{
		URL: server.URL + "/policies.git", Reference: git.Reference{Branch: "main"}, Secret: secret, Dir: t.TempDir(),
	}}
}

// serveSSH serves a new repository over SSH.
func serveSSH(t *testing.T, o gittest.SSH) *served {
	t.Helper()
	root := t.TempDir()
	repository := gittest.Init(t, root, "policies.git")
	if o.Authorized == nil {
		o.Authorized = gittest.NewKey(t, "")
	}
	server := gittest.ServeSSH(t, root, o)
	return &served{Repository: repository, options: git.Options{
		URL: server.URL + "/policies.git", Reference: git.Reference{Branch: "main"}, Dir: t.TempDir(),
		Secret: map[string][]byte{"identity": o.Authorized.Private, "known_hosts": server.KnownHosts},
	}}
}

// serveEither serves a new repository over HTTPS, or over SSH if https is nil.
func serveEither(t *testing.T, https *gittest.HTTPS, ssh *gittest.SSH) *served {
	t.Helper()
	if https != nil {
		return serve(t, *https)
	}
	return serveSSH(t, *ssh)
}

func (s *served) remote(t *testing.T) *git.Remote {
	t.Helper()
	remote, err := git.New(s.options)
	require.NoError(t, err)
	t.Cleanup(remote.Close)
	if s.maxBytes > 0 {
		remote.LimitBytes(s.maxBytes)
	}
	return remote
}

// fetch fetches what the reference points to.
func fetch(t *testing.T, remote *git.Remote) *git.Commit {
	t.Helper()
	hash, err := remote.Resolve(t.Context())
	require.NoError(t, err)
	return fetchHash(t, remote, hash)
}

func fetchHash(t *testing.T, remote *git.Remote, hash string) *git.Commit {
	t.Helper()
	commit, err := remote.Fetch(t.Context(), hash)
	require.NoError(t, err)
	t.Cleanup(func() { commit.Close() })
	require.Equal(t, hash, commit.Hash)
	return commit
}

// contents returns all files of a directory of a commit.
func contents(t *testing.T, commit *git.Commit, directory string) map[string]string {
	t.Helper()
	files, err := commit.Files(t.Context(), directory)
	require.NoError(t, err)
	found := map[string]string{}
	require.NoError(t, fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, path)
		found[path] = string(content)
		return err
	}))
	return found
}

// requireError requires an error with a text and a reason.
func requireError(t *testing.T, err error, reason git.Reason, text string) {
	t.Helper()
	var known *git.Error
	require.ErrorAs(t, err, &known)
	require.Contains(t, known.Message, text)
	require.Equal(t, reason, known.Reason, known.Message)
	require.NotContains(t, known.Message, "\n")
}

// PolicyRepositories are polled: while nothing changes, that costs the server one request for its references.
func TestResolveIsOneRequest(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	s := serve(t, gittest.HTTPS{Wrap: func(git http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			git.ServeHTTP(w, r)
		})
	}})
	hash := s.Commit(t, gittest.Commit{Files: fooCorp()})
	remote := s.remote(t)
	for poll := range 3 {
		found, err := remote.Resolve(t.Context())
		require.NoError(t, err)
		require.Equal(t, hash, found)
		require.EqualValues(t, poll+1, requests.Load())
	}
}

func TestFetch(t *testing.T) {
	t.Parallel()
	encrypted := gittest.NewKey(t, "open sesame")
	tests := map[string]struct {
		https  *gittest.HTTPS // or
		ssh    *gittest.SSH
		change func(secret map[string][]byte)
	}{
		"https":               {&gittest.HTTPS{}, nil, nil},
		"https, basic":        {&gittest.HTTPS{Username: "u", Password: "p:w"}, nil, nil},
		"https, bearer token": {&gittest.HTTPS{Token: "t0ken"}, nil, nil},
		"https, a line feed after the token": {&gittest.HTTPS{Token: "t0ken"}, nil, func(secret map[string][]byte) {
			secret["bearerToken"] = []byte("t0ken\n")
		}},
		"ssh": {nil, &gittest.SSH{}, nil},
		"ssh, passphrase": {nil, &gittest.SSH{Authorized: encrypted}, func(secret map[string][]byte) {
			secret["password"] = []byte("open sesame")
		}},
		"ssh, a server with several host keys of which one is known": {
			nil, &gittest.SSH{HostKeys: []*gittest.Key{gittest.NewKey(t, ""), gittest.NewKey(t, "")}},
			func(secret map[string][]byte) {
				_, second, _ := strings.Cut(string(secret["known_hosts"]), "\n")
				secret["known_hosts"] = []byte(second)
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveEither(t, test.https, test.ssh)
			if test.change != nil {
				test.change(s.options.Secret)
			}
			s.Commit(t, gittest.Commit{Files: map[string]string{"old": "old"}})
			hash := s.Commit(t, gittest.Commit{Files: fooCorp(), Message: "Add \x1b[31mfoo-corp\u202e\n\nMore."})
			remote := s.remote(t)
			commit := fetch(t, remote)
			require.Equal(t, hash, commit.Hash)
			require.Equal(t, "Ada <ada@example.com>", commit.Author)
			require.Equal(t, gittest.Start, commit.When)
			require.Equal(t, "Add [31mfoo-corp", commit.Subject)
			require.Equal(t, fooCorp(), contents(t, commit, ""))
			require.Equal(t, below(fooCorp(), "foo-corp"), contents(t, commit, "foo-corp/"))
			files, err := commit.Files(t.Context(), "foo-corp")
			require.NoError(t, err)
			require.NoError(t, fstest.TestFS(files, slices.Collect(maps.Keys(below(fooCorp(), "foo-corp")))...))
		})
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	for name, https := range map[string]*gittest.HTTPS{"https": {}, "ssh": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testReferences(t, serveEither(t, https, &gittest.SSH{}))
		})
	}
}

func testReferences(t *testing.T, s *served) {
	t.Helper()
	first := s.Commit(t, gittest.Commit{Files: map[string]string{"a": "1"}})
	// No reference names this commit itself.
	s.Git(t, "tag", "--annotate", "--message=x", "annotated")
	s.Git(t, "tag", "--annotate", "--message=x", "nested", "annotated")
	second := s.Commit(t, gittest.Commit{Files: map[string]string{"a": "2"}})
	s.Git(t, "tag", "light")
	slash := s.Commit(t, gittest.Commit{Branch: "team/a", Files: map[string]string{"a": "3"}})
	s.Git(t, "tag", "tree", "main^{tree}")
	tests := map[string]struct {
		reference git.Reference
		want      string
		err       string
	}{
		"branch":          {git.Reference{Branch: "main"}, second, ""},
		"branch in a dir": {git.Reference{Branch: "team/a"}, slash, ""},
		"tag":             {git.Reference{Tag: "light"}, second, ""},
		"annotated tag":   {git.Reference{Tag: "annotated"}, first, ""},
		"tag of a tag":    {git.Reference{Tag: "nested"}, first, ""},
		"commit":          {git.Reference{Commit: second}, second, ""},
		"no such branch":  {git.Reference{Branch: "light"}, "", "/policies.git does not have the branch light"},
		"no such tag":     {git.Reference{Tag: "main"}, "", "/policies.git does not have the tag main"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := s.options
			o.Reference, o.Dir = test.reference, t.TempDir()
			remote, err := git.New(o)
			require.NoError(t, err)
			defer remote.Close()
			got, err := remote.Resolve(t.Context())
			if test.err != "" {
				requireError(t, err, git.NotFound, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got)
			require.NotEmpty(t, contents(t, fetchHash(t, remote, got), "."))
		})
	}
	t.Run("tag of a tree", func(t *testing.T) {
		o := s.options
		o.Reference = git.Reference{Tag: "tree"}
		remote, err := git.New(o)
		require.NoError(t, err)
		defer remote.Close()
		hash, err := remote.Resolve(t.Context())
		require.NoError(t, err)
		_, err = remote.Fetch(t.Context(), hash)
		requireError(t, err, git.InvalidContent, "is a tree and not a commit")
	})
}

func TestRepositoryChanges(t *testing.T) {
	t.Parallel()
	for name, https := range map[string]*gittest.HTTPS{"https": {}, "ssh": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveEither(t, https, &gittest.SSH{})
			remote := s.remote(t)
			_, err := remote.Resolve(t.Context())
			requireError(t, err, git.NotFound, "/policies.git is empty: push a commit")

			s.Commit(t, gittest.Commit{Files: map[string]string{"a": "1"}})
			first := fetch(t, remote)
			require.Equal(t, map[string]string{"a": "1"}, contents(t, first, "."))

			s.Commit(t, gittest.Commit{Files: map[string]string{"a": "2"}, Orphan: true})
			require.Equal(t, map[string]string{"a": "2"}, contents(t, fetch(t, remote), "."), "after a force-push")
			require.Equal(t, map[string]string{"a": "1"}, contents(t, first, "."), "the old one can still be read")

			// A commit that is pushed after Resolve.
			hash, err := remote.Resolve(t.Context())
			require.NoError(t, err)
			other := s.remote(t)
			s.Commit(t, gittest.Commit{Files: map[string]string{"a": "3"}})
			require.Equal(t, map[string]string{"a": "2"}, contents(t, fetchHash(t, other, hash), "."))

			// A force-push after Resolve.
			hash, err = remote.Resolve(t.Context())
			require.NoError(t, err)
			s.Commit(t, gittest.Commit{Files: map[string]string{"a": "4"}, Orphan: true})
			_, err = remote.Fetch(t.Context(), hash)
			requireError(t, err, git.NotFound, "the commit is no longer one of the last 100 of the branch main")

			s.Git(t, "update-ref", "-d", "refs/heads/main")
			_, err = remote.Resolve(t.Context())
			requireError(t, err, git.NotFound, "is empty")
			s.Commit(t, gittest.Commit{Branch: "other", Files: map[string]string{"a": "5"}})
			_, err = remote.Resolve(t.Context())
			requireError(t, err, git.NotFound, "does not have the branch main")
			_, err = remote.Fetch(t.Context(), hash)
			requireError(t, err, git.NotFound, "does not have the branch main")
		})
	}
}

func TestReferenceToACommit(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		configure string // of the server
		want      func(first, lost string) (reference, err string)
	}{
		"a commit in the history of the default branch": {"false", func(first, _ string) (string, string) {
			return first, ""
		}},
		"any commit, if the server sends it": {"true", func(_, lost string) (string, string) { return lost, "" }},
		"a commit that no branch has": {"false", func(_, lost string) (string, string) {
			return lost, "which is not in the history of the default branch: use a tag or a branch"
		}},
		"a commit that does not exist": {"true", func(string, string) (string, string) {
			missing := strings.Repeat("12", 20)
			return missing, "does not send the commit " + missing + ": the server says: upload-pack: not our ref"
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, gittest.HTTPS{})
			s.Git(t, "config", "uploadpack.allowAnySHA1InWant", test.configure)
			lost := s.Commit(t, gittest.Commit{Files: map[string]string{"a": "0"}})
			first := s.Commit(t, gittest.Commit{Files: map[string]string{"a": "1"}, Orphan: true})
			s.Commit(t, gittest.Commit{Files: map[string]string{"a": "2"}})
			reference, message := test.want(first, lost)
			s.options.Reference = git.Reference{Commit: reference}
			remote := s.remote(t)
			commit, err := remote.Fetch(t.Context(), reference)
			if message != "" {
				requireError(t, err, git.NotFound, message)
				return
			}
			require.NoError(t, err)
			defer commit.Close()
			require.Equal(t, reference, commit.Hash)
			require.Len(t, contents(t, commit, "."), 1)
		})
	}
}

// A server may itself have a shallow clone, whose first commits have parents that it does not have.
func TestShallowServer(t *testing.T) {
	t.Parallel()
	s := serve(t, gittest.HTTPS{})
	for i := range 5 {
		s.Commit(t, gittest.Commit{Files: map[string]string{"a": strings.Repeat("x", i)}})
	}
	clone := filepath.Join(filepath.Dir(s.Dir), "shallow.git")
	s.Git(t, "clone", "--quiet", "--bare", "--depth=2", "file://"+s.Dir, clone)
	s.options.URL = strings.Replace(s.options.URL, "policies.git", "shallow.git", 1)
	remote := s.remote(t)
	require.Equal(t, map[string]string{"a": "xxxx"}, contents(t, fetch(t, remote), "."))
	s.options.Reference = git.Reference{Commit: s.Git(t, "rev-parse", "main~1")}
	require.Equal(t, map[string]string{"a": "xxx"}, contents(t, fetch(t, s.remote(t)), "."))
	s.options.Reference = git.Reference{Commit: s.Git(t, "rev-parse", "main~2")}
	_, err := s.remote(t).Fetch(t.Context(), s.options.Reference.Commit)
	requireError(t, err, git.NotFound, "is not in the history of the default branch")
}

// Reading a commit needs memory, so it waits, unlike the download.
func TestReadingACommitWaits(t *testing.T) {
	t.Parallel()
	s := serve(t, gittest.HTTPS{})
	hash := s.Commit(t, gittest.Commit{Files: map[string]string{"a": "1"}})
	over := errors.New("the process ends")
	var downloaded []os.DirEntry
	s.options.Wait = func(context.Context) error {
		var err error
		downloaded, err = os.ReadDir(s.options.Dir)
		return errors.Join(err, over)
	}
	_, err := s.remote(t).Fetch(t.Context(), hash)
	require.ErrorIs(t, err, over)
	require.Len(t, downloaded, 1)
	info, err := os.ReadDir(s.options.Dir)
	require.NoError(t, err)
	require.Empty(t, info)

	waits := 0
	s.options.Wait = func(context.Context) error {
		waits++
		return nil
	}
	remote := s.remote(t)
	fetchHash(t, remote, hash)
	fetchHash(t, remote, hash)
	require.Equal(t, 2, waits, "the second time, it was stored")
}

func TestStoredCommits(t *testing.T) {
	t.Parallel()
	s := serve(t, gittest.HTTPS{})
	stored := func() []string {
		var names []string
		entries, err := os.ReadDir(s.options.Dir)
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, strings.TrimSuffix(e.Name(), ".pack"))
		}
		return names
	}
	commit := func(content string) string {
		return s.Commit(t, gittest.Commit{Files: map[string]string{"a": content}})
	}
	first := commit("1")
	remote := s.remote(t)
	fetch(t, remote)
	second := commit("2")
	fetch(t, remote)
	require.Equal(t, []string{second}, stored(), "only the last one stays")
	require.NoError(t, remote.Keep(second))
	commit("3")
	fetch(t, remote)
	fourth := commit("4")
	fetch(t, remote)
	require.ElementsMatch(t, []string{second, fourth}, stored(), "the kept one and the last one stay")

	// After a restart, with a server that is down.
	unfinished := filepath.Join(s.options.Dir, "fetch-123.tmp")
	require.NoError(t, os.WriteFile(unfinished, []byte("PACK"), 0o600))
	foreign := filepath.Join(s.options.Dir, "notes")
	require.NoError(t, os.WriteFile(foreign, nil, 0o600))
	s.Git(t, "update-ref", "-d", "refs/heads/main")
	restarted := s.remote(t)
	require.NoFileExists(t, unfinished)
	require.FileExists(t, foreign)
	require.NoError(t, os.Remove(foreign))
	require.Equal(t, map[string]string{"a": "2"}, contents(t, fetchHash(t, restarted, second), "."))
	_, err := restarted.Fetch(t.Context(), first)
	requireError(t, err, git.NotFound, "is empty")

	// A file that is damaged, or has another commit than its name says, is thrown away, and fetched the next time.
	names, err := filepath.Glob(filepath.Join(s.options.Dir, "*"+second+"*"))
	require.NoError(t, err)
	require.Empty(t, names, "nothing was kept after the restart")
	s.Git(t, "update-ref", "refs/heads/main", fourth)
	fetchHash(t, restarted, fourth)
	names, err = filepath.Glob(filepath.Join(s.options.Dir, "*.pack"))
	require.NoError(t, err)
	require.Len(t, names, 1)
	content, err := os.ReadFile(names[0])
	require.NoError(t, err)
	for _, damage := range []func() []byte{
		func() []byte { return content[:len(content)-5] },
		func() []byte { return append([]byte("PACX"), content[4:]...) },
		func() []byte { return nil },
	} {
		require.NoError(t, os.WriteFile(names[0], damage(), 0o600))
		_, err := s.remote(t).Fetch(t.Context(), fourth)
		requireError(t, err, git.StorageFailed, "cannot be read and was removed: the commit is fetched again")
		require.Equal(t, map[string]string{"a": "4"}, contents(t, fetchHash(t, s.remote(t), fourth), "."))
	}
	require.NoError(t, os.Rename(names[0], strings.Replace(names[0], fourth, first, 1)))
	s.options.Reference = git.Reference{Commit: first}
	_, err = s.remote(t).Fetch(t.Context(), first)
	requireError(t, err, git.StorageFailed, "cannot be read and was removed: the commit is fetched again")
	require.Equal(t, map[string]string{"a": "1"}, contents(t, fetchHash(t, s.remote(t), first), "."))

	// After a change to a URL with no repository, the commit in force stays stored until another one is kept.
	s.options.URL = strings.Replace(s.options.URL, "policies.git", "other.git", 1)
	s.options.Kept = first
	other := s.remote(t)
	_, err = other.Fetch(t.Context(), second)
	requireError(t, err, git.NotFound, "does not exist")
	require.Equal(t, map[string]string{"a": "1"}, contents(t, fetchHash(t, other, first), "."))
	require.NoError(t, other.Keep(second))
	require.Empty(t, stored())
}

func TestTimes(t *testing.T) {
	t.Parallel()
	s := serve(t, gittest.HTTPS{})
	when := time.Date(1999, 12, 31, 23, 59, 59, 0, time.UTC)
	s.Commit(t, gittest.Commit{Files: map[string]string{"a": "1"}, Time: when, Message: strings.Repeat("é", 100)})
	commit := fetch(t, s.remote(t))
	require.Equal(t, when, commit.When)
	require.Equal(t, strings.Repeat("é", 71)+"…", commit.Subject)
}

// requireEmpty requires that a directory is empty.
func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}
