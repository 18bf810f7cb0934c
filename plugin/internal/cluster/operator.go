package cluster

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Operator is what the operator's lease says about it.
type Operator struct {
	// Version is empty if the lease does not name one.
	Version string
	// Running reports whether an operator holds the lease.
	Running bool
}

// Operator reads the operator's lease. A cluster without an operator has none: the error is then NotFound.
func (c *Cluster) Operator(ctx context.Context) (Operator, error) {
	lease, err := c.Leases.Leases(v1alpha1.OperatorNamespace).Get(ctx, v1alpha1.OperatorLease, metav1.GetOptions{})
	if err != nil {
		return Operator{}, err
	}
	return Operator{Version: lease.Labels[v1alpha1.VersionLabel], Running: isHeld(lease, time.Now())}, nil
}

// isHeld reports whether a lease has a holder who renewed it in time.
func isHeld(lease *coordinationv1.Lease, now time.Time) bool {
	spec := lease.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil ||
		spec.LeaseDurationSeconds == nil {
		return false
	}
	return !now.After(spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds) * time.Second))
}
