package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/operator"
)

// program is the operator or nstpl-sync.
type program struct {
	// name is the name of its ServiceAccount and of its lease.
	name   string
	binary string // path
	start  func(*replica, operator.Options) (*operator.Process, error)
	// hasWebhooks means that its replicas are added to the service in front of the webhooks.
	hasWebhooks bool
}

// syncAccount is the name of nstpl-sync's ServiceAccount and lease.
const syncAccount = "nstpl-sync"

func theOperator(binary string) program {
	return program{
		name: v1alpha1.OperatorLease, binary: binary, hasWebhooks: true,
		start: func(r *replica, options operator.Options) (*operator.Process, error) {
			options.Service = r.cluster.address
			return operator.Start(options)
		},
	}
}

func nstplSync(binary string) program {
	return program{
		name: syncAccount, binary: binary,
		start: func(r *replica, options operator.Options) (*operator.Process, error) {
			options.Flags = append(options.Flags, "--dir="+r.kubeconfig+".commits") // it stays when the process ends
			return operator.StartSync(options)
		},
	}
}

// replicaSet are the replicas of a program.
type replicaSet struct {
	program
	replicas []*replica
}

func (c *testCluster) newReplicaSet(p program, replicas int) (*replicaSet, error) {
	set := &replicaSet{program: p}
	for i := range replicas {
		r, err := c.newReplica(set, i)
		if err != nil {
			return nil, errors.Join(err, set.close())
		}
		set.replicas = append(set.replicas, r)
	}
	return set, nil
}

// account is the user name with which the replicas make requests.
func (s *replicaSet) account() string {
	return fmt.Sprintf("system:serviceaccount:%s:%s", v1alpha1.OperatorNamespace, s.name)
}

// startAll starts the replicas that do not run, and returns when all are ready and one of them leads.
func (s *replicaSet) startAll(ctx context.Context) error {
	for _, r := range s.replicas {
		if err := r.start(); err != nil {
			return err
		}
		if err := r.current().AwaitReady(ctx); err != nil {
			return err
		}
	}
	return utilwait.PollUntilContextTimeout(ctx, 20*time.Millisecond, settleTimeout, true,
		func(context.Context) (bool, error) {
			leader, _ := s.leader()
			return leader.proxy.leaseWritten.Load() > 0, nil
		})
}

func (s *replicaSet) close() error {
	var errs []error
	for _, r := range s.replicas {
		errs = append(errs, r.close())
	}
	return errors.Join(errs...)
}

// leader returns the replica that wrote the lease last, and the other one, if there is one.
func (s *replicaSet) leader() (leader, standby *replica) {
	leader = s.replicas[0]
	for _, r := range s.replicas[1:] {
		if r.proxy.leaseWritten.Load() > leader.proxy.leaseWritten.Load() {
			leader, standby = r, leader
		} else {
			standby = r
		}
	}
	return leader, standby
}

// arm begins a fault for the replicas that it concerns.
func (s *replicaSet) arm(f fault, seed uint64) {
	leader, standby := s.leader()
	for i, r := range s.replicas {
		own := f
		if f.standby && r != standby || f.do != nothing && r != leader {
			own = fault{}
		}
		r.proxy.arm(own, seed+uint64(i))
		if own.cut || own.cutWatches > 0 {
			r.proxy.server.CloseClientConnections()
		}
	}
}

func (s *replicaSet) disarm() {
	for _, r := range s.replicas {
		r.proxy.disarm()
	}
}

// hasWritesInFlight reports whether writes of replicas have not arrived yet.
func (s *replicaSet) hasWritesInFlight() bool {
	return slices.ContainsFunc(s.replicas, func(r *replica) bool { return r.proxy.inFlight.Load() > 0 })
}

// counted returns the number of writes since arm, and the number of injected faults.
func (s *replicaSet) counted() (writes, injected int) {
	for _, r := range s.replicas {
		more, faults := r.proxy.counted()
		writes, injected = writes+more, injected+faults
	}
	return writes, injected
}

// replica is one of the replicas of a program: its current process, and what remains when that ends.
type replica struct {
	set        *replicaSet
	cluster    *testCluster
	proxy      *proxy
	kubeconfig string

	mu      sync.Mutex
	process *operator.Process
	// startPrevented prevents that the program is started again.
	startPrevented bool
}

func (c *testCluster) newReplica(set *replicaSet, number int) (*replica, error) {
	p, err := newProxy(c.cluster.RESTConfig())
	if err != nil {
		return nil, err
	}
	r := &replica{
		set: set, cluster: c, proxy: p,
		kubeconfig: filepath.Join(c.dir, fmt.Sprintf("%s-%d.kubeconfig", set.name, number)),
	}
	p.actions = map[action]func(){
		kill:           r.kill,
		suspend:        func() { c.noteProblem(r.current().Signal(syscall.SIGSTOP)) },
		crashAPIServer: func() { c.crash("kube-apiserver") },
		crashEtcd:      func() { c.crash("etcd") },
	}
	return r, operator.WriteKubeconfigOf(c.ctx, c.cluster, set.name, r.kubeconfig, p.server)
}

func (r *replica) current() *operator.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process
}

// start starts the program, unless it runs or must not be started, and starts it again whenever it ends.
func (r *replica) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.startPrevented || r.cluster.ctx.Err() != nil || r.process != nil && r.process.Runs() {
		return nil
	}
	var err error
	r.process, err = r.set.program.start(r, operator.Options{
		Binary: r.set.binary, Dir: r.cluster.dir, Kubeconfig: r.kubeconfig, Flags: []string{"--leader-elect=true"},
	})
	if err != nil {
		return err
	}
	started := r.process
	r.cluster.restarts.Go(func() {
		if started.AwaitReady(r.cluster.ctx) == nil {
			r.cluster.serve(r, started)
		}
	})
	r.cluster.restarts.Go(func() {
		select {
		case <-started.Exited:
			r.cluster.serve(r, started)
			r.cluster.noteProblem(started.Kill()) // it has ended: Kill checks its log
			r.release()
			r.cluster.noteProblem(r.start())
		case <-r.cluster.ctx.Done():
		}
	})
	return nil
}

// kill kills the process, and returns when it has ended.
func (r *replica) kill() {
	p := r.current()
	r.cluster.noteProblem(p.Signal(syscall.SIGKILL))
	<-p.Exited
}

// preventStart kills the process, and prevents that it is started again until allowStart is called.
func (r *replica) preventStart() {
	r.keepStopped()
	r.kill()
}

// stop is like preventStart, but stops the process as Kubernetes would.
func (r *replica) stop() error {
	r.keepStopped()
	return r.current().Stop()
}

func (r *replica) keepStopped() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.startPrevented = true
}

func (r *replica) allowStart() error {
	r.mu.Lock()
	r.startPrevented = false
	r.mu.Unlock()
	return r.start()
}

// release releases the lease of a dead process, which would otherwise be valid for up to 15 seconds.
func (r *replica) release() {
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: v1alpha1.OperatorNamespace, Name: r.set.name}
	_ = utilwait.PollUntilContextTimeout(r.cluster.ctx, 20*time.Millisecond, 20*time.Second, true,
		func(ctx context.Context) (bool, error) {
			if leader, _ := r.set.leader(); leader != r {
				return true, nil // another replica has acquired it
			}
			if err := r.cluster.client.Get(ctx, key, lease); err != nil {
				return client.IgnoreNotFound(err) == nil, nil
			}
			noHolder, soon := "", int32(1)
			lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &noHolder, &soon
			return r.cluster.client.Update(ctx, lease) == nil, nil
		})
}

func (r *replica) close() error {
	var errs []error
	if r.process != nil {
		_ = r.process.Signal(syscall.SIGCONT) // it may be suspended
		errs = append(errs, r.process.Kill())
	}
	return errors.Join(append(errs, r.proxy.close())...)
}
