package cli

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// OperatorCheckAfter is the time after which a command that waits for the operator checks, once, whether an operator is
// running.
const OperatorCheckAfter = 3 * time.Second

// NoteMissingOperator prints a note if no operator is running. It prints none if the user may not read the lease of the
// operator.
func (s Session) NoteMissingOperator(ctx context.Context, c *cluster.Cluster) {
	operator, err := c.Operator(ctx)
	if apierrors.IsNotFound(err) || err == nil && !operator.Running {
		s.Note("the operator is not running (nothing holds lease %s in namespace %s): "+
			"run 'kubectl get pods -n %[2]s' to check its pods",
			v1alpha1.OperatorLease, v1alpha1.OperatorNamespace)
	}
}
