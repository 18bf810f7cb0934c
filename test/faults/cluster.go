package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/audit"
	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/operator"
	"nstpl.dev/nstpl/test/process"
)

// testCluster is a control plane with replicas of the operator, each behind its own proxy. Replicas that end are
// started again, like by a Deployment.
type testCluster struct {
	cluster *controlplane.Cluster
	client  client.Client // has the permissions of an administrator
	audit   *audit.Log
	dir     string
	binary  string
	service *operator.Service
	// address is the address of the service in front of the webhooks.
	address  string
	replicas []*replica

	ctx context.Context // ends when the cluster is stopped
	end context.CancelFunc
	// restarts counts the restarts in progress.
	restarts sync.WaitGroup
	// crashes ensures that one program crashes at a time.
	crashes sync.Mutex

	mu         sync.Mutex
	complaints []error
	runs       int
	backends   map[*replica]string // host:port of the webhooks
}

// newTestCluster starts a control plane and replicas, and returns when namespaces are populated.
func newTestCluster(ctx context.Context, binary string, replicas int) (c *testCluster, err error) {
	c = &testCluster{binary: binary, backends: map[*replica]string{}}
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
	certificate, authority, err := selfSigned()
	if err != nil {
		return nil, err
	}
	for i := range replicas {
		r, err := c.newReplica(i, certificate, authority)
		if err != nil {
			return nil, err
		}
		c.replicas = append(c.replicas, r)
	}
	for _, r := range c.replicas {
		if err := r.start(); err != nil {
			return nil, err
		}
		if err := r.current().AwaitReady(ctx); err != nil {
			return nil, err
		}
	}
	return c, c.runFirstTrial()
}

func (c *testCluster) startControlPlane() error {
	policy := filepath.Join(c.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(audit.Policy), 0o600); err != nil {
		return err
	}
	c.audit = &audit.Log{Path: filepath.Join(c.dir, "audit.log")}
	var err error
	c.cluster, err = controlplane.Start(c.ctx, controlplane.Options{APIServerArgs: []string{
		"--audit-policy-file=" + policy, "--audit-log-path=" + c.audit.Path, "--audit-log-mode=blocking",
		"--audit-log-maxsize=100000",
	}})
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	config := c.cluster.RESTConfig()
	config.Timeout = 20 * time.Second // the API server may be killed during a request
	c.client, err = client.New(config, client.Options{Scheme: scheme})
	return err
}

// install applies the manifests and starts a service in front of the webhooks.
func (c *testCluster) install() error {
	folder, _, err := controlplane.Manifests(controlplane.Version())
	if err != nil {
		return err
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	if err := c.kubectl("apply", "--kustomize", filepath.Join(root, folder)); err != nil {
		return err
	}
	if err := c.kubectl("wait", "--for=condition=Established", "crd", "--all"); err != nil {
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

// moduleRoot returns the folder of go.mod, in or above the working directory.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod in the working directory or above it: run this in the project's folder")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

// buildOperator compiles the operator.
func buildOperator(ctx context.Context, path string) error {
	out, err := exec.CommandContext(ctx, "go", "build", "-o", path,
		"nstpl.dev/nstpl/cmd/nstpl-operator").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the operator: %w\n%s", err, out)
	}
	return nil
}

func (c *testCluster) kubectl(args ...string) error {
	cmd := exec.CommandContext(c.ctx, c.cluster.Kubectl, append(args, "--kubeconfig", c.cluster.Kubeconfig)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
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

// stop stops all programs and removes their files. It fails if an operator panicked.
func (c *testCluster) stop() error {
	c.end()
	c.restarts.Wait()
	var errs []error
	for _, r := range c.replicas {
		errs = append(errs, r.close())
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

// leader returns the replica that wrote the lease last, and the other one, if there is one.
func (c *testCluster) leader() (leader, standby *replica) {
	leader = c.replicas[0]
	for _, r := range c.replicas[1:] {
		if r.proxy.leaseWritten.Load() > leader.proxy.leaseWritten.Load() {
			leader, standby = r, leader
		} else {
			standby = r
		}
	}
	return leader, standby
}

// arm begins a fault for the replicas that it concerns.
func (c *testCluster) arm(f fault, seed uint64) {
	leader, standby := c.leader()
	for i, r := range c.replicas {
		own := f
		if f.standby && r != standby || f.do != nothing && r != leader {
			own = fault{}
		}
		r.proxy.arm(own, seed+uint64(i))
		if own.cut || own.cutWatches > 0 {
			r.proxy.cutConnections()
		}
	}
}

func (c *testCluster) disarm() {
	for _, r := range c.replicas {
		r.proxy.disarm()
	}
}

// hasWritesInFlight reports whether writes of replicas have not arrived yet.
func (c *testCluster) hasWritesInFlight() bool {
	return slices.ContainsFunc(c.replicas, func(r *replica) bool { return r.proxy.inFlight.Load() > 0 })
}

// counted returns the number of writes since arm, and the number of injected faults.
func (c *testCluster) counted() (writes, injected int) {
	for _, r := range c.replicas {
		more, faults := r.proxy.counted()
		writes, injected = writes+more, injected+faults
	}
	return writes, injected
}

// replica is one of the operators: its current process, and what remains when that ends.
type replica struct {
	cluster    *testCluster
	proxy      *proxy
	kubeconfig string

	mu      sync.Mutex
	process *operator.Process
	// startPrevented prevents that the operator is started again.
	startPrevented bool
}

func (c *testCluster) newReplica(number int, certificate tls.Certificate, authority []byte) (*replica, error) {
	p, err := newProxy(certificate, c.cluster.RESTConfig(), newInjector())
	if err != nil {
		return nil, err
	}
	r := &replica{cluster: c, proxy: p, kubeconfig: filepath.Join(c.dir, fmt.Sprintf("replica-%d.kubeconfig", number))}
	p.actions = map[action]func(){
		kill:           r.kill,
		suspend:        func() { c.noteProblem(r.current().Signal(syscall.SIGSTOP)) },
		crashAPIServer: func() { c.crash("kube-apiserver") },
		crashEtcd:      func() { c.crash("etcd") },
	}
	return r, operator.WriteKubeconfig(c.ctx, c.cluster, r.kubeconfig, func(c *clientcmdapi.Cluster) {
		c.Server, c.CertificateAuthorityData = "https://"+p.address, authority
	})
}

func (r *replica) current() *operator.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process
}

// start starts the operator, unless it runs or must not be started, and starts it again whenever it ends.
func (r *replica) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.startPrevented || r.cluster.ctx.Err() != nil || r.process != nil && r.process.Runs() {
		return nil
	}
	var err error
	r.process, err = operator.Start(operator.Options{
		Binary: r.cluster.binary, Dir: r.cluster.dir, Kubeconfig: r.kubeconfig, Service: r.cluster.address,
		Flags: []string{"--leader-elect=true"},
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

// serve adds a replica's process to the service when it is ready, and removes it when it has ended.
func (c *testCluster) serve(r *replica, p *operator.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.backends, r)
	if p.Runs() {
		c.backends[r] = p.Webhooks
	}
	c.service.Use(slices.Sorted(maps.Values(c.backends))...)
}

// kill kills the operator, and returns when it has ended.
func (r *replica) kill() {
	p := r.current()
	r.cluster.noteProblem(p.Signal(syscall.SIGKILL))
	<-p.Exited
}

// preventStart kills the operator, and prevents that it is started again until allowStart is called.
func (r *replica) preventStart() {
	r.keepStopped()
	r.kill()
}

// stop is like preventStart, but stops the operator as Kubernetes would.
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

// release releases the lease of a dead operator, which would otherwise be valid for up to 15 seconds.
func (r *replica) release() {
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.OperatorLease}
	_ = utilwait.PollUntilContextTimeout(r.cluster.ctx, 20*time.Millisecond, 20*time.Second, true,
		func(ctx context.Context) (bool, error) {
			if leader, _ := r.cluster.leader(); leader != r {
				return true, nil // another replica has acquired it
			}
			if err := r.cluster.client.Get(ctx, key, lease); err != nil {
				return client.IgnoreNotFound(err) == nil, nil
			}
			nobody, soon := "", int32(1)
			lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &nobody, &soon
			return r.cluster.client.Update(ctx, lease) == nil, nil
		})
}

// crash kills a program of the control plane, and starts it again.
func (c *testCluster) crash(program string) {
	c.restarts.Go(func() {
		c.crashes.Lock()
		defer c.crashes.Unlock()
		c.noteProblem(c.cluster.Restart(c.ctx, program))
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

// selfSigned returns a certificate for 127.0.0.1, and its CA certificate as PEM.
func selfSigned() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "nstpl-faults"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(0, 1, 0), IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
