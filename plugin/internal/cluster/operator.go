package cluster

import (
	"context"
	"strings"
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
	_, _, isHeld := HolderOf(lease, time.Now())
	return Operator{Version: lease.Labels[v1alpha1.VersionLabel], Running: isHeld}, nil
}

// HolderOf returns the host whose program holds a lease, or held it last, how long ago it renewed the lease, and
// whether it still holds it. The host is empty if the lease was released.
func HolderOf(lease *coordinationv1.Lease, now time.Time) (host string, since time.Duration, isHeld bool) {
	spec := lease.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil ||
		spec.LeaseDurationSeconds == nil {
		return "", 0, false
	}
	host, _, _ = strings.Cut(*spec.HolderIdentity, "_")
	since = max(now.Sub(spec.RenewTime.Time), 0)
	return host, since, since <= time.Duration(*spec.LeaseDurationSeconds)*time.Second
}
