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

// world is a control plane with replicas of the operator, each behind a proxy of its own. Whatever ends is started
// again, as a Deployment would.
type world struct {
	cluster *controlplane.Cluster
	client  client.Client // the administrator's
	audit   *audit.Log
	dir     string
	binary  string
	service *operator.Service
	// address is the service's.
	address  string
	replicas []*replica

	ctx context.Context // ends with the world
	end context.CancelFunc
	// restarts are under way in it.
	restarts sync.WaitGroup
	// crashes are one at a time.
	crashes sync.Mutex

	mu         sync.Mutex
	complaints []error
	runs       int
	backends   map[*replica]string // host:port of the webhooks
}

// newWorld starts everything and returns when namespaces are populated.
func newWorld(ctx context.Context, binary string, replicas int) (w *world, err error) {
	w = &world{binary: binary, backends: map[*replica]string{}}
	w.ctx, w.end = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, w.stop())
		}
	}()
	if w.dir, err = os.MkdirTemp("", "nstpl-faults-"); err != nil {
		return nil, err
	}
	if err := w.startControlPlane(); err != nil {
		return nil, err
	}
	if err := w.install(); err != nil {
		return nil, err
	}
	certificate, authority, err := selfSigned()
	if err != nil {
		return nil, err
	}
	for i := range replicas {
		r, err := w.newReplica(i, certificate, authority)
		if err != nil {
			return nil, err
		}
		w.replicas = append(w.replicas, r)
	}
	for _, r := range w.replicas {
		if err := r.start(); err != nil {
			return nil, err
		}
		if err := r.current().AwaitReady(ctx); err != nil {
			return nil, err
		}
	}
	return w, w.warm()
}

func (w *world) startControlPlane() error {
	policy := filepath.Join(w.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(audit.Policy), 0o600); err != nil {
		return err
	}
	w.audit = &audit.Log{Path: filepath.Join(w.dir, "audit.log")}
	var err error
	w.cluster, err = controlplane.Start(w.ctx, controlplane.Options{APIServerArgs: []string{
		"--audit-policy-file=" + policy, "--audit-log-path=" + w.audit.Path, "--audit-log-mode=blocking",
		"--audit-log-maxsize=100000",
	}})
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	config := w.cluster.RESTConfig()
	config.Timeout = 20 * time.Second // a request may be under way as the API server is killed
	w.client, err = client.New(config, client.Options{Scheme: scheme})
	return err
}

// install applies the manifests and puts a service before the webhooks.
func (w *world) install() error {
	folder, _, err := controlplane.Manifests(controlplane.Version())
	if err != nil {
		return err
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	if err := w.kubectl("apply", "--kustomize", filepath.Join(root, folder)); err != nil {
		return err
	}
	if err := w.kubectl("wait", "--for=condition=Established", "crd", "--all"); err != nil {
		return err
	}
	addresses, err := process.FreeAddresses(1)
	if err != nil {
		return err
	}
	w.address = addresses[0]
	w.service, err = operator.NewService(w.ctx, w.client, w.address)
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

func (w *world) kubectl(args ...string) error {
	cmd := exec.CommandContext(w.ctx, w.cluster.Kubectl, append(args, "--kubeconfig", w.cluster.Kubeconfig)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// warm runs one trial without any fault: what happens once, such as the aggregation of rights, is over then.
func (w *world) warm() error {
	t := trial{scenario: populate(), namespaces: 1, policy: v1alpha1.DriftCorrect}
	if failures := w.try(t, newBaselines()).failures; len(failures) > 0 {
		return fmt.Errorf("the operator does not populate a namespace: %s", strings.Join(failures, "; "))
	}
	return nil
}

// stop ends everything and removes what was written. It fails if an operator panicked.
func (w *world) stop() error {
	w.end()
	w.restarts.Wait()
	var errs []error
	for _, r := range w.replicas {
		errs = append(errs, r.close())
	}
	if w.service != nil {
		errs = append(errs, w.service.Close())
	}
	if w.cluster != nil {
		errs = append(errs, w.cluster.Stop())
	}
	errs = append(errs, w.complaints...)
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}

// complain notes what must not happen.
func (w *world) complain(err error) {
	if err != nil && w.ctx.Err() == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.complaints = append(w.complaints, err)
	}
}

// complained returns what happened that must not, and forgets it.
func (w *world) complained() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.complaints
	w.complaints = nil
	return all
}

// leader returns the replica that wrote to the lease last, and another one, if there is one.
func (w *world) leader() (leader, standby *replica) {
	leader = w.replicas[0]
	for _, r := range w.replicas[1:] {
		if r.proxy.leaseWritten.Load() > leader.proxy.leaseWritten.Load() {
			leader, standby = r, leader
		} else {
			standby = r
		}
	}
	return leader, standby
}

// arm has a fault happen to those replicas that it concerns.
func (w *world) arm(f fault, seed uint64) {
	leader, standby := w.leader()
	for i, r := range w.replicas {
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

func (w *world) disarm() {
	for _, r := range w.replicas {
		r.proxy.disarm()
	}
}

// underWay reports whether writes have left replicas and not arrived.
func (w *world) underWay() bool {
	return slices.ContainsFunc(w.replicas, func(r *replica) bool { return r.proxy.underWay.Load() > 0 })
}

// counted returns how many writes there were since a fault was armed, and how many faults were injected.
func (w *world) counted() (writes, injected int) {
	for _, r := range w.replicas {
		more, faults := r.proxy.counted()
		writes, injected = writes+more, injected+faults
	}
	return writes, injected
}

// replica is one of the operators: the process of the moment, and what outlives it.
type replica struct {
	world      *world
	proxy      *proxy
	kubeconfig string

	mu      sync.Mutex
	process *operator.Process
	// held keeps the operator from being started again.
	held bool
}

func (w *world) newReplica(number int, certificate tls.Certificate, authority []byte) (*replica, error) {
	p, err := newProxy(certificate, w.cluster.RESTConfig(), newJudge())
	if err != nil {
		return nil, err
	}
	r := &replica{world: w, proxy: p, kubeconfig: filepath.Join(w.dir, fmt.Sprintf("replica-%d.kubeconfig", number))}
	p.deeds = map[deed]func(){
		kill:           r.kill,
		suspend:        func() { w.complain(r.current().Signal(syscall.SIGSTOP)) },
		crashAPIServer: func() { w.crash("kube-apiserver") },
		crashEtcd:      func() { w.crash("etcd") },
	}
	return r, operator.WriteKubeconfig(w.ctx, w.cluster, r.kubeconfig, func(c *clientcmdapi.Cluster) {
		c.Server, c.CertificateAuthorityData = "https://"+p.address, authority
	})
}

func (r *replica) current() *operator.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process
}

// start starts the operator, unless it runs or is held, and has it started again when it ends.
func (r *replica) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held || r.world.ctx.Err() != nil || r.process != nil && r.process.Runs() {
		return nil
	}
	var err error
	r.process, err = operator.Start(operator.Options{
		Binary: r.world.binary, Dir: r.world.dir, Kubeconfig: r.kubeconfig, Service: r.world.address,
		Flags: []string{"--leader-elect=true"},
	})
	if err != nil {
		return err
	}
	started := r.process
	r.world.restarts.Go(func() {
		if started.AwaitReady(r.world.ctx) == nil {
			r.world.serve(r, started)
		}
	})
	r.world.restarts.Go(func() {
		select {
		case <-started.Exited:
			r.world.serve(r, started)
			r.world.complain(started.Kill()) // it has ended: this looks at what it said
			r.release()
			r.world.complain(r.start())
		case <-r.world.ctx.Done():
		}
	})
	return nil
}

// serve has the service ask a replica's process, which is ready, or not, if it has ended.
func (w *world) serve(r *replica, p *operator.Process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.backends, r)
	if p.Runs() {
		w.backends[r] = p.Webhooks
	}
	w.service.Use(slices.Sorted(maps.Values(w.backends))...)
}

// kill ends the operator as a crash would, and returns when it has ended.
func (r *replica) kill() {
	p := r.current()
	r.world.complain(p.Signal(syscall.SIGKILL))
	<-p.Exited
}

// hold kills the operator and keeps it from being started again, and letGo ends that.
func (r *replica) hold() {
	r.keep()
	r.kill()
}

// stop is hold, but the operator ends as Kubernetes would have it.
func (r *replica) stop() error {
	r.keep()
	return r.current().Stop()
}

func (r *replica) keep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = true
}

func (r *replica) letGo() error {
	r.mu.Lock()
	r.held = false
	r.mu.Unlock()
	return r.start()
}

// release gives up the lease of an operator that is dead, so that nobody has to wait 15 seconds for it to run out.
func (r *replica) release() {
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.OperatorLease}
	_ = utilwait.PollUntilContextTimeout(r.world.ctx, 20*time.Millisecond, 20*time.Second, true,
		func(ctx context.Context) (bool, error) {
			if leader, _ := r.world.leader(); leader != r {
				return true, nil // another one has taken it
			}
			if err := r.world.client.Get(ctx, key, lease); err != nil {
				return client.IgnoreNotFound(err) == nil, nil
			}
			nobody, soon := "", int32(1)
			lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &nobody, &soon
			return r.world.client.Update(ctx, lease) == nil, nil
		})
}

// crash kills a program of the control plane, and has it started again.
func (w *world) crash(program string) {
	w.restarts.Go(func() {
		w.crashes.Lock()
		defer w.crashes.Unlock()
		w.complain(w.cluster.Restart(w.ctx, program))
	})
}

func (r *replica) close() error {
	var errs []error
	if r.process != nil {
		_ = r.process.Signal(syscall.SIGCONT) // it may have been stopped
		errs = append(errs, r.process.Kill())
	}
	return errors.Join(append(errs, r.proxy.close())...)
}

// selfSigned returns a certificate for 127.0.0.1 and, as PEM, what vouches for it.
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
