package cli

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// OperatorCheckAfter is the time after which a command that waits for the operator checks, once, whether an operator
// leads.
const OperatorCheckAfter = 3 * time.Second

// MissingOperator reads the state of the operator and returns the sentence of NoOperator.
func MissingOperator(ctx context.Context, c *cluster.Cluster, consequence string) string {
	operator, err := c.Operator(ctx)
	return NoOperator(operator, err, consequence)
}

// NoOperator returns a sentence that says that no operator leads, and what that means for a command, such as
// "states may be old". It returns an empty string if an operator leads, or if that is unknown: the user may not read
// the lease of the operator.
func NoOperator(operator cluster.Leader, err error, consequence string) string {
	return noLeader("operator", v1alpha1.OperatorLease, operator, err, consequence)
}

// NoSync returns the sentence that says that no nstpl-sync leads, as NoOperator does for the operator.
func NoSync(leader cluster.Leader, err error) string {
	return noLeader("nstpl-sync", cluster.SyncLease, leader, err, "nothing is fetched, repaired or deleted")
}

// noLeader does not say that the program is not running: one that runs without leader election leaves the lease as it
// is, and the lease of an earlier one stays.
func noLeader(program, lease string, leader cluster.Leader, err error, consequence string) string {
	if leader.Running || err != nil && !apierrors.IsNotFound(err) {
		return ""
	}
	return fmt.Sprintf("no %s holds lease %s in namespace %s, so unless one runs with --leader-elect=false, %s: "+
		"run 'kubectl nstpl check'", program, lease, v1alpha1.OperatorNamespace, consequence)
}

// NoteMissingOperator prints the sentence of MissingOperator as a note. It reports whether it printed one.
func (s Session) NoteMissingOperator(ctx context.Context, c *cluster.Cluster, consequence string) bool {
	missing := MissingOperator(ctx, c, consequence)
	if missing != "" {
		s.Note("%s", missing)
	}
	return missing != ""
}
