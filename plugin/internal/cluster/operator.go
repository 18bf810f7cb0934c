package cluster

import (
	"context"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// SyncLease is the name of the Lease of nstpl-sync.
const SyncLease = "nstpl-sync"

// Leader is the state of the operator or of nstpl-sync according to its lease.
type Leader struct {
	// Version is empty if the lease has no version.
	Version string
	// Running reports whether one holds the lease.
	Running bool
}

// Operator returns the state of the operator. The error is NotFound if no operator has ever run in the cluster.
func (c *Cluster) Operator(ctx context.Context) (Leader, error) {
	return c.Leader(ctx, v1alpha1.OperatorLease)
}

// Leader returns the state of the holder of a lease. The error is NotFound if none has ever held it.
func (c *Cluster) Leader(ctx context.Context, lease string) (Leader, error) {
	found, err := c.Leases.Leases(v1alpha1.OperatorNamespace).Get(ctx, lease, metav1.GetOptions{})
	if err != nil {
		return Leader{}, err
	}
	server, err := c.Server(ctx) // the clock of this machine may be wrong by more than the lease lasts
	if err != nil {
		return Leader{}, err
	}
	_, _, isHeld := HolderOf(found, server.Now)
	return Leader{Version: found.Labels[v1alpha1.VersionLabel], Running: isHeld}, nil
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
