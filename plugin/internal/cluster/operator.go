package cluster

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Operator is the state of the operator according to its lease.
type Operator struct {
	// Version is empty if the lease has no version.
	Version string
	// Running reports whether an operator holds the lease.
	Running bool
}

// Operator returns the state of the operator. The error is NotFound if no operator has ever run in the cluster.
func (c *Cluster) Operator(ctx context.Context) (Operator, error) {
	lease, err := c.Leases.Leases(v1alpha1.OperatorNamespace).Get(ctx, v1alpha1.OperatorLease, metav1.GetOptions{})
	if err != nil {
		return Operator{}, err
	}
	return Operator{Version: lease.Labels[v1alpha1.VersionLabel], Running: isHeld(lease, time.Now())}, nil
}

// isHeld reports whether a lease has a holder and has not expired.
func isHeld(lease *coordinationv1.Lease, now time.Time) bool {
	spec := lease.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil ||
		spec.LeaseDurationSeconds == nil {
		return false
	}
	return !now.After(spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds) * time.Second))
}
