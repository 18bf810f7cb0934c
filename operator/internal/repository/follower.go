package repository

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/repository/git"
)

// defaultInterval is the default of spec.interval.
const defaultInterval = time.Minute

// follower asks a Git server for new commits of one PolicyRepository.
type follower struct {
	secrets client.Reader
	dir     string
	// notify is called after each answer.
	notify func()

	mu sync.Mutex
	// busy is true while a goroutine asks the server.
	busy bool
	// asked is when the last answer came, and requested the request of kubectl nstpl sync now that it served.
	asked     time.Time
	requested string
	answer    answer

	// source is the part of the spec that the answer is about.
	source string
	// Only the goroutine that asks uses the remote repository.
	remote *git.Remote
}

// answer is what a follower knows.
type answer struct {
	// fetched is the newest commit that was downloaded.
	fetched string
	// tree is the tree of the newest commit without violations, or nil if there is none.
	tree *vetted
	// problem is why a newer commit than that of the tree is not followed, or nil.
	problem *problem
}

// problem is why a commit is not followed.
type problem struct {
	reason, message string
	// passes is true if the problem may pass by itself.
	passes         bool
	violations     []v1alpha1.RepositoryViolation
	violationCount int
}

// problemOf returns the problem of an error.
func problemOf(err error) *problem {
	if err == nil {
		return nil
	}
	if broken, ok := errors.AsType[*violationsError](err); ok {
		return broken.problem()
	}
	p := &problem{reason: "FetchFailed", message: err.Error(), passes: true}
	if failed, ok := errors.AsType[*git.Error](err); ok {
		p.reason = string(failed.Reason)
		p.passes = failed.Reason == git.Unreachable || failed.Reason == git.StorageFailed
	}
	return p
}

// follow returns the latest answer, and after which time it should be called again. It begins to ask the server if that
// is due.
func (f *follower) follow(ctx context.Context, repository *v1alpha1.PolicyRepository) (answer, string, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	interval := defaultInterval
	if repository.Spec.Interval != nil {
		interval = repository.Spec.Interval.Duration
	}
	requested := repository.Annotations[v1alpha1.SyncRequestedAnnotation]
	source := sourceOf(repository)
	isNew := f.source != source && !f.busy
	if wait := interval - time.Since(f.asked); wait > 0 && requested == f.requested && !isNew {
		return f.answer, f.requested, wait
	}
	if !f.busy {
		f.busy = true
		before := f.answer
		repository = repository.DeepCopy()
		go func() {
			after := f.ask(ctx, repository, before)
			f.mu.Lock()
			f.answer, f.asked, f.requested, f.busy = after, time.Now(), requested, false
			f.source = source
			f.mu.Unlock()
			f.notify()
		}()
	}
	return f.answer, f.requested, interval
}

// sourceOf returns the part of a spec on which the answers depend.
func sourceOf(repository *v1alpha1.PolicyRepository) string {
	data, err := json.Marshal([]any{repository.Spec.Git, repository.Spec.Path})
	if err != nil {
		return err.Error() // it was decoded from JSON
	}
	return string(data)
}

// ask asks the server. If the newest commit is not valid and no tree is known, it fetches the commit that is in force
// according to the status, so that a restart does not stop its repair.
func (f *follower) ask(ctx context.Context, repository *v1alpha1.PolicyRepository, before answer) answer {
	after := answer{fetched: before.fetched, tree: before.tree}
	keys, err := f.open(ctx, repository)
	if err != nil {
		after.problem = problemOf(err)
		return after
	}
	defer f.remote.Close()
	tip, err := f.remote.Resolve(ctx)
	if err != nil {
		after.problem = problemOf(err)
		return f.withApplied(ctx, repository, keys, after)
	}
	path := repository.Spec.Path
	if f.source == sourceOf(repository) && before.tree.isOf(tip, path) {
		after.fetched = tip
		return after
	}
	tree, err := fetch(ctx, f.remote, tip, path, keys)
	if err != nil {
		after.problem = problemOf(err)
		if after.problem.violationCount > 0 {
			after.fetched = tip
		}
		return f.withApplied(ctx, repository, keys, after)
	}
	if err := f.remote.Keep(tip); err != nil {
		after.problem = problemOf(err)
	}
	after.fetched, after.tree = tip, tree
	return after
}

// withApplied adds the tree that is in force to an answer that has none.
func (f *follower) withApplied(
	ctx context.Context, repository *v1alpha1.PolicyRepository, keys map[string][]byte, after answer,
) answer {
	applied := repository.Status.Commits.Applied
	if after.tree != nil || applied == "" {
		return after
	}
	tree, err := fetch(ctx, f.remote, applied, repository.Spec.Path, keys)
	if err != nil {
		after.problem.message = fmt.Sprintf("%s; and the commit in force cannot be fetched, so it is not repaired: %v",
			after.problem.message, err)
		return after
	}
	after.tree = tree
	return after
}

// open opens the remote repository with the credentials as they are stored now. It returns the keys that must have
// signed commits, or nil.
func (f *follower) open(
	ctx context.Context, repository *v1alpha1.PolicyRepository,
) (keys map[string][]byte, err error) {
	source := repository.Spec.Git
	options := git.Options{
		URL: source.URL, Reference: git.Reference{Branch: "main"}, Dir: filepath.Join(f.dir, string(repository.UID)),
	}
	if source.Ref != nil {
		options.Reference = git.Reference{Branch: source.Ref.Branch, Tag: source.Ref.Tag, Commit: source.Ref.Commit}
	}
	if source.SecretRef != nil {
		if options.Secret, err = f.secret(ctx, source.SecretRef.Name); err != nil {
			return nil, err
		}
	}
	if source.Verify != nil {
		if keys, err = f.secret(ctx, source.Verify.SecretRef.Name); err != nil {
			return nil, err
		}
		if len(keys) == 0 { // no keys would mean no verification
			return nil, &git.Error{Reason: git.InvalidConfiguration, Message: fmt.Sprintf(
				"the Secret %s with trusted keys is empty: add PGP or SSH public keys", source.Verify.SecretRef.Name)}
		}
	}
	f.remote, err = git.New(options)
	return keys, err
}

// secret returns the data of a Secret in the operator's namespace.
func (f *follower) secret(ctx context.Context, name string) (map[string][]byte, error) {
	secret := &corev1.Secret{}
	err := f.secrets.Get(ctx, types.NamespacedName{Namespace: v1alpha1.OperatorNamespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, &git.Error{Reason: git.InvalidConfiguration, Message: fmt.Sprintf(
			"the Secret %s/%s does not exist: create it", v1alpha1.OperatorNamespace, name)}
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", v1alpha1.OperatorNamespace, name, err)
	}
	return secret.Data, nil
}

// followers holds the followers of all PolicyRepositories, by UID.
type followers struct {
	mu  sync.Mutex
	all map[types.UID]*follower
}

// get returns the follower of a PolicyRepository. New creates it if there is none.
func (s *followers) get(uid types.UID, create func() *follower) *follower {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[types.UID]*follower{}
	}
	if s.all[uid] == nil {
		s.all[uid] = create()
	}
	return s.all[uid]
}

// keep forgets the followers of all other PolicyRepositories.
func (s *followers) keep(uids []types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.all, func(uid types.UID, _ *follower) bool { return !slices.Contains(uids, uid) })
}
