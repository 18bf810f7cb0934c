package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/test/measure"
	"nstpl.dev/nstpl/test/operator"
	"nstpl.dev/nstpl/test/process"
)

// restartDelay is how long after its end a replica is started again.
const restartDelay = time.Second

// replicas are operators behind a Service. One that ends is started again, as by a kubelet.
type replicas struct {
	*bench
	service *operator.Service
	remove  []func()
	end     context.CancelFunc
	running sync.WaitGroup

	mu sync.Mutex
	// all are the processes by the address of their webhooks.
	all map[string]*operator.Process
	// leader is the address of the replica that led at first.
	leader string
	errs   []error
}

// startReplicas replaces the operator by two replicas, each with little memory. The first of them leads.
func (b *bench) startReplicas(ctx context.Context) (r *replicas, err error) {
	b.progress.part("two replicas start", 0)
	if err := b.stopOperator(); err != nil {
		return nil, err
	}
	r = &replicas{bench: b, all: map[string]*operator.Process{}}
	ctx, r.end = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, r.stop())
		}
	}()
	reader, err := client.New(b.config, client.Options{})
	if err != nil {
		return r, err
	}
	if r.service, err = operator.NewService(ctx, reader, b.webhooks); err != nil {
		return r, err
	}
	addresses, err := process.FreeAddresses(2)
	if err != nil {
		return r, err
	}
	r.leader = addresses[0]
	for _, address := range addresses {
		program, _, remove, err := b.confine()
		if err != nil {
			return r, err
		}
		r.remove = append(r.remove, remove)
		replica, err := r.start(ctx, program, address)
		if err != nil {
			return r, err
		}
		r.running.Go(func() { r.keep(ctx, replica, program, address) })
	}
	return r, nil
}

// start starts a replica, and returns when it is ready.
func (r *replicas) start(ctx context.Context, program, address string) (*operator.Process, error) {
	replica, err := operator.Start(operator.Options{
		Binary: program, Dir: r.dir, Kubeconfig: r.operatorKubeconfig(), Flags: []string{"--leader-elect"},
		Webhooks: address, Service: r.webhooks,
	})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.all[address] = replica
	r.mu.Unlock()
	if err := replica.AwaitReady(ctx); err != nil {
		return replica, err
	}
	r.service.SetReady(address, true)
	return replica, nil
}

// keep starts a replica again whenever it has ended, until ctx ends or the replica does not become ready.
func (r *replicas) keep(ctx context.Context, replica *operator.Process, program, address string) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-replica.Exited:
		}
		r.service.SetReady(address, false)
		r.fail(replica.Kill()) // ends its guard, and looks for panics in its log
		if measure.Pause(ctx, restartDelay) != nil {
			return
		}
		next, err := r.start(ctx, program, address)
		if err != nil && ctx.Err() == nil && (next == nil || next.Runs()) {
			r.fail(err)
			return
		}
		replica = next // which may have ended, because the API server cannot be reached
	}
}

// fail records an error, which may be nil. It is returned when the replicas stop.
func (r *replicas) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

// killLeader kills the replica that led at first.
func (r *replicas) killLeader() error {
	r.service.SetReady(r.leader, false)
	r.mu.Lock()
	leader := r.all[r.leader]
	r.mu.Unlock()
	return leader.Kill()
}

// peakMemory returns the greatest resident memory that a replica has had since it started, in bytes.
func (r *replicas) peakMemory() (peak float64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, replica := range r.all {
		if !replica.Runs() {
			continue
		}
		one, failed := measure.PeakMemory(replica.PID())
		peak, err = max(peak, one), errors.Join(err, failed)
	}
	return peak, err
}

// stop stops all replicas and the Service.
func (r *replicas) stop() error {
	r.end()
	r.running.Wait()
	errs := r.errs
	for _, replica := range r.all {
		if replica.Runs() {
			errs = append(errs, replica.Stop())
		}
	}
	for _, remove := range r.remove {
		remove()
	}
	if r.service != nil {
		errs = append(errs, r.service.Close())
	}
	return errors.Join(errs...)
}
