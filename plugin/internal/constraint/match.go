package constraint

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/scc"
)

// matchFlag is the operator's flag for whose permission counts, and the same flag of scc review.
const matchFlag = "--scc-match"

// The values of matchFlag. The default of the operator is union.
const (
	matchUnion        = "union"
	matchIntersection = "intersection"
)

// readFlags sets what flags of the operator decide, as far as no flag of the command does.
func (o *review) readFlags(ctx context.Context, e *environment) error {
	e.isIntersection, e.exempt = o.match == matchIntersection, scc.ExemptNamespaces
	pods, err := e.reader.DeploymentPods(ctx, v1alpha1.OperatorNamespace, v1alpha1.WebhookName)
	if apierrors.IsForbidden(err) {
		assumed := "no " + exemptFlag + " is assumed"
		if o.match == "" {
			assumed = fmt.Sprintf("%s=%s and no %s are assumed: specify %[1]s", matchFlag, matchUnion, exemptFlag)
		}
		o.Note("you may not read the operator's Deployment, so %s", assumed)
		return nil
	}
	if err != nil {
		return err
	}
	e.exempt = exemptNamespaces(pods)
	if values := operatorFlag(pods, matchFlag); o.match == "" && len(values) > 0 {
		e.isIntersection = values[len(values)-1] == matchIntersection
	}
	return nil
}
