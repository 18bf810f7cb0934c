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
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("no operator has held lease %s in namespace %s, so unless one runs with --leader-elect=false, "+
			"%s: run 'kubectl nstpl check'", v1alpha1.OperatorLease, v1alpha1.OperatorNamespace, consequence)
	case err == nil && !operator.Running:
		return fmt.Sprintf("the operator is not running (nothing holds lease %s in namespace %s), so %s: "+
			"run 'kubectl nstpl check'", v1alpha1.OperatorLease, v1alpha1.OperatorNamespace, consequence)
	}
	return ""
}

// NoteMissingOperator prints the sentence of MissingOperator as a note. It reports whether it printed one.
func (s Session) NoteMissingOperator(ctx context.Context, c *cluster.Cluster, consequence string) bool {
	missing := MissingOperator(ctx, c, consequence)
	if missing != "" {
		s.Note("%s", missing)
	}
	return missing != ""
}
