package constraint

import (
	"context"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// matchFlag is the operator's flag for whose permission counts, and the same flag of scc review.
const matchFlag = "--scc-match"

// The values of matchFlag. The default of the operator is union.
const (
	matchUnion        = "union"
	matchIntersection = "intersection"
)

// isIntersection reports whether both the creator and the service account of a pod must be able to use a constraint: by
// the flag of the command, or else by the flag in the operator's Deployment.
func (o *review) isIntersection(ctx context.Context, c *cluster.Cluster) (bool, error) {
	if o.match != "" {
		return o.match == matchIntersection, nil
	}
	pods, err := c.DeploymentPods(ctx, v1alpha1.OperatorNamespace, v1alpha1.WebhookName)
	if err != nil {
		return false, err
	}
	values := operatorFlag(pods, matchFlag)
	return len(values) > 0 && values[len(values)-1] == matchIntersection, nil
}
