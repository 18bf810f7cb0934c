package repository

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// isConfirmed reports whether a person has confirmed the rollback that waits for it.
func (a answer) isConfirmed(repository *v1alpha1.PolicyRepository) bool {
	return a.problem != nil && a.problem.rollback != nil &&
		a.problem.rollback.Commit == repository.Annotations[v1alpha1.ConfirmedRollbackAnnotation]
}

// mayRollBack reports whether a commit is applied although it is older than the one in force: no signature is required,
// a person has confirmed it, or the PolicyRepository names it by its hash, so that a user who may change the
// PolicyRepository has chosen it.
func mayRollBack(repository *v1alpha1.PolicyRepository, commit string) bool {
	spec := repository.Spec.Git
	return spec == nil || spec.Verify == nil || spec.Ref != nil && spec.Ref.Commit != "" ||
		repository.Annotations[v1alpha1.ConfirmedRollbackAnnotation] == commit
}

// rollback returns the problem that a signed commit is older than the one in force, or nil. A user who may push, but
// not sign, could set the branch back. History is not fetched, so the times that the committers have signed decide.
func (f *follower) rollback(
	ctx context.Context, repository *v1alpha1.PolicyRepository, tree *vetted,
) (*problem, error) {
	if mayRollBack(repository, tree.commit) {
		return nil, nil
	}
	rec, err := readRecord(ctx, f.sources.secrets, repository)
	if err != nil {
		return nil, err
	}
	return rollbackOf(rec.inForce, committed{tree.commit, tree.committed, tree.path}, repository.Name), nil
}

// rollbackOf returns the problem that a commit is older than the one in force, or nil. No commit is older than one
// whose time is unknown.
func rollbackOf(inForce, newest committed, repository string) *problem {
	if inForce.commit == newest.commit || !newest.at.Before(inForce.at) {
		return nil
	}
	return &problem{
		reason: v1alpha1.RepositoryRollbackPending,
		message: fmt.Sprintf("%s of %s is older than %s of %s, so it may be an undone change: confirm it with kubectl "+
			"nstpl sync confirm %s %s", named(newest.commit), newest.at.UTC().Format(time.RFC3339),
			named(inForce.commit), inForce.at.UTC().Format(time.RFC3339), repository, newest.commit),
		rollback: &v1alpha1.PendingRollback{
			Commit: newest.commit, Committed: metav1.NewTime(newest.at),
			InForce: inForce.commit, InForceCommitted: metav1.NewTime(inForce.at),
		},
	}
}
