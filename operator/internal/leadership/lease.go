// Package leadership keeps a replica from acting as the leader on stale state. A Lease rejects writes once another
// replica may be the leader, and Caches makes a new leader wait until its caches have everything that existed when it
// became the leader.
package leadership

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// The intervals of leader election. Another replica may lead duration after it saw the last renewal, and it looks every
// retryPeriod. A leader renews its lease every renewInterval, and ends itself when that has failed for renewDeadline.
//
// A replica that ends itself needlessly costs a restart, and one that is dead costs duration. An API server that is
// healthy answers a write within a second (the SLO of Kubernetes), so five seconds are several attempts, and an API
// server that takes longer to come back is not helped by a leader that waits for it.
const (
	duration      = 10 * time.Second
	renewDeadline = 5 * time.Second
	retryPeriod   = 500 * time.Millisecond
	renewInterval = 1500 * time.Millisecond
)

// patience is how long after the last renewal a replica may write as the leader. The process ends by then, unless it
// was suspended. Requests that it sent before have the rest of duration to arrive.
const patience = renewInterval + retryPeriod + renewDeadline

// Lease is the lock of leader election. It records when it was last renewed.
type Lease struct {
	resourcelock.Interface
	lock *resourcelock.LeaseLock
	now  func() instant

	mu sync.Mutex
	// renewed is when the last request that renewed the lease was sent. It is nil while this replica does not hold the
	// lease.
	renewed *instant
}

// instant is a time on two clocks: the monotonic clock may stop while the machine is suspended, and the wall clock may
// be changed.
type instant struct {
	monotonic time.Duration
	wall      time.Time
}

// clock returns a function that reads both clocks.
func clock() func() instant {
	start := time.Now()
	return func() instant {
		now := time.Now()
		return instant{monotonic: now.Sub(start), wall: now.Round(0)}
	}
}

// since returns the time between two instants, on the clock on which more time has passed.
func (i instant) since(earlier instant) time.Duration {
	return max(i.monotonic-earlier.monotonic, i.wall.Sub(earlier.wall))
}

// NewLease returns the lock of this process, which does not hold the lease yet.
func NewLease(config *rest.Config, name string, labels map[string]string) (*Lease, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("get the host name of this replica: %w", err)
	}
	config = rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	config.Timeout = renewDeadline / 2 // one request that is never answered must not cost the leadership
	client, err := coordinationv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the client of leader election: %w", err)
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: v1alpha1.OperatorNamespace, Name: name},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
		Labels:     labels,
	}
	return &Lease{Interface: lock, lock: lock, now: clock()}, nil
}

// Elect sets the options of a manager that leads while this process holds the lease. A nil lease means that there is no
// leader election.
func (l *Lease) Elect(options *ctrl.Options) {
	if l == nil {
		return
	}
	options.LeaderElection, options.LeaderElectionReleaseOnCancel = true, true
	options.LeaderElectionID, options.LeaderElectionResourceLockInterface = l.lock.LeaseMeta.Name, l
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod =
		new(duration), new(renewDeadline), new(retryPeriod)
}

// RecordTo records changes of the leader as Events. It must be called before the election begins.
func (l *Lease) RecordTo(recorder resourcelock.EventRecorder) {
	l.lock.LockConfig.EventRecorder = recorder
}

// Create implements resourcelock.Interface. It acquires a lease that does not exist.
func (l *Lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Create(ctx, record) })
}

// Update implements resourcelock.Interface. It acquires, renews or releases the lease. A renewal that is not due yet
// does nothing: the elector looks as often as it would renew, and a standby must look often to lead soon.
func (l *Lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == l.Identity() && !l.isDue() {
		return nil
	}
	return l.write(record, func() error { return l.Interface.Update(ctx, record) })
}

// isDue reports whether the lease is to be acquired or renewed.
func (l *Lease) isDue() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewed == nil || l.now().since(*l.renewed) >= renewInterval
}

func (l *Lease) write(record resourcelock.LeaderElectionRecord, write func() error) error {
	sent := l.now()
	holds := record.HolderIdentity == l.Identity()
	if !holds {
		l.note(nil) // another replica may lead before the answer comes
	}
	err := write()
	if err == nil && holds {
		l.note(&sent)
	}
	return err
}

func (l *Lease) note(renewed *instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = renewed
}

// Held returns nil as long as no other replica can be the leader, and otherwise the reason why another one may be.
func (l *Lease) Held() error {
	l.mu.Lock()
	renewed := l.renewed
	l.mu.Unlock()
	if renewed == nil {
		return errors.New("write rejected: this replica is not the leader")
	}
	if elapsed := l.now().since(*renewed); elapsed > patience {
		return fmt.Errorf(
			"write rejected: the lease of this replica was last renewed %d s ago, so another replica may be the leader",
			int(elapsed.Seconds()))
	}
	return nil
}
