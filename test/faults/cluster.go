package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/audit"
	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/gittest"
	"nstpl.dev/nstpl/test/operator"
	"nstpl.dev/nstpl/test/process"
)

// testCluster is a control plane with replicas of the operator and of nstpl-sync, each behind its own proxy. Replicas
// that end are started again, like by a Deployment. nstpl-sync runs from the first trial that needs it.
type testCluster struct {
	cluster *controlplane.Cluster
	client  client.Client // has the permissions of an administrator
	audit   *audit.Log
	dir     string
	service *operator.Service
	// address is the address of the service in front of the webhooks.
	address  string
	operator *replicaSet
	sync     *replicaSet
	git      *gittest.HTTPSServer // nil before the first trial of nstpl-sync
	gitFails atomic.Bool

	ctx context.Context // ends when the cluster is stopped
	end context.CancelFunc
	// restarts counts the restarts in progress.
	restarts sync.WaitGroup
	// crashes ensures that one program crashes at a time.
	crashes sync.Mutex
	// crashesBegun and crashesOver count the crashes and, of those, the ones after which the API server is ready again.
	crashesBegun, crashesOver atomic.Int64

	mu         sync.Mutex
	complaints []error
	runs       int
}

// newTestCluster starts a control plane and replicas of the operator, and returns when namespaces are populated.
func newTestCluster(ctx context.Context, p programs, replicas int) (_ *testCluster, err error) {
	c := &testCluster{}
	c.ctx, c.end = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	if c.dir, err = os.MkdirTemp("", "nstpl-faults-"); err != nil {
		return nil, err
	}
	if err := c.startControlPlane(); err != nil {
		return nil, err
	}
	if err := c.install(); err != nil {
		return nil, err
	}
	if c.operator, err = c.newReplicaSet(theOperator(p.operator), replicas); err != nil {
		return nil, err
	}
	if c.sync, err = c.newReplicaSet(nstplSync(p.sync), replicas); err != nil {
		return nil, err
	}
	if err := c.operator.startAll(ctx); err != nil {
		return nil, err
	}
	return c, c.runFirstTrial()
}

func (c *testCluster) startControlPlane() error {
	log, flags, err := audit.NewLog(c.dir)
	if err != nil {
		return err
	}
	c.audit = log
	if c.cluster, err = controlplane.Start(c.ctx, controlplane.Options{APIServerArgs: flags}); err != nil {
		return err
	}
	config := c.cluster.RESTConfig()
	config.Timeout = 20 * time.Second // the API server may be killed during a request
	c.client, err = operator.NewClient(config)
	return err
}

// install applies the manifests and starts a service in front of the webhooks.
func (c *testCluster) install() error {
	if err := operator.Install(c.ctx, c.cluster, "manifests/components/sync/rbac.yaml",
		"manifests/components/expiry/rbac.yaml"); err != nil {
		return err
	}
	account := []string{"create", "serviceaccount", syncAccount, "--namespace", v1alpha1.OperatorNamespace}
	if _, err := c.cluster.RunKubectl(c.ctx, "", account...); err != nil {
		return err
	}
	addresses, err := process.FreeAddresses(1)
	if err != nil {
		return err
	}
	c.address = addresses[0]
	c.service, err = operator.NewService(c.ctx, c.client, c.address)
	return err
}

// programs are the paths of the binaries.
type programs struct{ operator, sync string }

// build compiles the programs into a folder. $NSTPL_TEST_OPERATOR and $NSTPL_TEST_SYNC are the paths of others to test.
func build(ctx context.Context, folder string) (programs, error) {
	return programs{
		operator: cmp.Or(os.Getenv("NSTPL_TEST_OPERATOR"), filepath.Join(folder, v1alpha1.OperatorLease)),
		sync:     cmp.Or(os.Getenv("NSTPL_TEST_SYNC"), filepath.Join(folder, syncAccount)),
	}, operator.Build(ctx, folder, v1alpha1.OperatorLease, syncAccount)
}

// runFirstTrial runs one trial without a fault, so that work that happens only once, such as the aggregation of
// permissions, is done.
func (c *testCluster) runFirstTrial() error {
	t := trial{scenario: populate(), namespaces: 1, policy: v1alpha1.DriftCorrect}
	if failures := c.try(t, newBaselines()).failures; len(failures) > 0 {
		return fmt.Errorf("the operator does not populate a namespace: %s", strings.Join(failures, "; "))
	}
	return nil
}

// stop stops all programs and removes their files. It fails if a replica panicked.
func (c *testCluster) stop() error {
	c.end()
	c.restarts.Wait()
	var errs []error
	for _, set := range []*replicaSet{c.sync, c.operator} {
		if set != nil {
			errs = append(errs, set.close())
		}
	}
	if c.git != nil {
		c.git.Close()
	}
	if c.service != nil {
		errs = append(errs, c.service.Close())
	}
	if c.cluster != nil {
		errs = append(errs, c.cluster.Stop())
	}
	errs = append(errs, c.complaints...)
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// noteProblem records an error that must not happen.
func (c *testCluster) noteProblem(err error) {
	if err != nil && c.ctx.Err() == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.complaints = append(c.complaints, err)
	}
}

// drainProblems returns the recorded errors, and forgets them.
func (c *testCluster) drainProblems() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.complaints
	c.complaints = nil
	return all
}

// serve adds a replica's process to the service when it is ready, and removes it when it has ended.
func (c *testCluster) serve(r *replica, p *operator.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.set.hasWebhooks {
		c.service.SetReady(p.Webhooks, p.Runs())
	}
}

// crash kills a program of the control plane, and starts it again.
func (c *testCluster) crash(program string) {
	c.restarts.Go(func() {
		c.crashes.Lock()
		defer c.crashes.Unlock()
		c.crashesBegun.Add(1)
		c.noteProblem(c.cluster.Restart(c.ctx, program))
		c.crashesOver.Add(1)
	})
}
