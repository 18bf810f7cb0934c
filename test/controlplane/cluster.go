// Package controlplane runs real Kubernetes control planes for tests, the demo and the benchmarks. It starts etcd,
// kube-apiserver and kube-controller-manager, compiled from their Go modules, on loopback by default. Several control
// planes can run at the same time.
package controlplane

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"nstpl.dev/nstpl/test/process"
)

// Options configure a control plane. The zero value is valid.
type Options struct {
	// Version of Kubernetes, such as "1.36.3"; empty means Version().
	Version string
	// Dir is the folder to create for all files; empty means a temporary one.
	Dir string
	// Address is the IP address at which the API server listens; empty means 127.0.0.1.
	Address string
	// APIServerArgs are added to kube-apiserver's command line and override its defaults, and so do
	// ControllerManagerArgs.
	APIServerArgs, ControllerManagerArgs []string
	// OneCPU has each program use one CPU. It then needs a fifth less CPU time, which counts where other programs keep
	// the other CPUs busy. It is not for tests with hundreds of requests at the same time.
	OneCPU bool
	// Progress receives messages about the build, if one is necessary; nil means standard error.
	Progress io.Writer
}

// Cluster is a control plane. It has no nodes: pods are stored and stay pending.
type Cluster struct {
	// Kubeconfig is the path of a kubeconfig whose user is in the group system:masters.
	Kubeconfig string
	// Kubectl is the path of a kubectl of the cluster's version.
	Kubectl string
	// Dir has the cluster's data and a log of each program. It is empty for an existing cluster that this package did
	// not start.
	Dir string

	// authority is nil for an existing cluster.
	authority *authority
	config    *rest.Config
	port      *port
	processes []*process.Process
	// restarting is held while one of the processes is replaced.
	restarting sync.Mutex
	// commands are the command lines of the processes, by name.
	commands map[string][]string
}

// Start starts a control plane. It returns when the API server is ready, the default namespace is populated and the
// built-in roles exist. ctx limits the start and not the life of the cluster, which ends with Stop or with this
// process, even if that is killed.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if opts.Progress == nil {
		opts.Progress = os.Stderr
	}
	assets, err := Build(ctx, cmp.Or(opts.Version, Version()), opts.Progress)
	if err != nil {
		return nil, err
	}
	dir, err := makeDir(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("make a folder for the control plane: %w", err)
	}
	c := &Cluster{
		Kubeconfig: filepath.Join(dir, "kubeconfig"),
		Kubectl:    filepath.Join(assets, "kubectl"),
		Dir:        dir,
		commands:   map[string][]string{},
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("it took longer than two minutes"))
	defer cancel()
	if err := c.start(ctx, assets, opts); err != nil {
		return nil, errors.Join(fmt.Errorf("start the control plane: %w", err), c.Stop())
	}
	return c, nil
}

// Existing returns a cluster that runs already, which Stop does not stop. No certificates can be made for it.
func Existing(kubeconfig, kubectl string) (*Cluster, error) {
	c := &Cluster{Kubeconfig: kubeconfig, Kubectl: kubectl}
	return c, c.loadConfig()
}

func makeDir(dir string) (string, error) {
	if dir == "" {
		return os.MkdirTemp("", "nstpl-controlplane-")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	return dir, os.Mkdir(dir, 0o700)
}

// start assumes only that the folder exists. Stop reverts it, even if it failed halfway.
func (c *Cluster) start(ctx context.Context, assets string, opts Options) error {
	address := net.ParseIP(cmp.Or(opts.Address, "127.0.0.1")).To4()
	if address == nil {
		return fmt.Errorf("%q is no IPv4 address", opts.Address)
	}
	var err error
	if c.port, err = reservePort(address); err != nil {
		return err
	}
	if c.authority, err = writeCredentials(c.Dir, c.port); err != nil {
		return err
	}
	if err := c.loadConfig(); err != nil {
		return err
	}
	command := func(name string, args ...[]string) []string {
		var limit []string
		if opts.OneCPU {
			limit = []string{"env", "GOMAXPROCS=1"}
		}
		return slices.Concat(limit, []string{filepath.Join(assets, name)}, slices.Concat(args...))
	}
	if err := c.run("etcd", command("etcd", etcdArgs())); err != nil {
		return err
	}
	if err := c.run("kube-apiserver",
		command("kube-apiserver", apiServerArgs(c.port), opts.APIServerArgs)); err != nil {
		return err
	}
	if err := c.await(ctx, ready); err != nil {
		return err
	}
	if err := c.run("kube-controller-manager",
		command("kube-controller-manager", controllerManagerArgs(), opts.ControllerManagerArgs)); err != nil {
		return err
	}
	return c.await(ctx, bootstrapped)
}

func (c *Cluster) loadConfig() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return fmt.Errorf("load %s: %w", c.Kubeconfig, err)
	}
	config.QPS = -1 // the API server limits requests itself
	c.config = config
	return nil
}

func (c *Cluster) run(name string, command []string) error {
	p, err := process.Start(c.Dir, name, command[0], command[1:]...)
	if err != nil {
		return err
	}
	c.processes = append(c.processes, p)
	c.commands[name] = command
	return nil
}

// Restart kills one of the cluster's programs, such as kube-apiserver, and starts it again with the same arguments and
// data. It returns when the API server is ready. Of the other methods, only Wait may be called concurrently.
func (c *Cluster) Restart(ctx context.Context, name string) error {
	c.restarting.Lock()
	defer c.restarting.Unlock()
	at := slices.IndexFunc(c.processes, func(p *process.Process) bool { return p.Name == name })
	if at < 0 {
		return fmt.Errorf("restart %s: the cluster has no such program", name)
	}
	if err := c.processes[at].Stop(); err != nil {
		return fmt.Errorf("restart %s: %w", name, err)
	}
	command := c.commands[name]
	next, err := process.Start(c.Dir, name, command[0], command[1:]...)
	if err != nil {
		return fmt.Errorf("restart %s: %w", name, err)
	}
	c.processes[at] = next
	if err := c.await(ctx, ready); err != nil {
		return fmt.Errorf("restart %s: %w", name, err)
	}
	return nil
}

// RESTConfig returns a copy of the administrator's client configuration, without a rate limit.
func (c *Cluster) RESTConfig() *rest.Config {
	return rest.CopyConfig(c.config)
}

// RunKubectl runs the cluster's kubectl as an administrator and returns its standard output.
func (c *Cluster) RunKubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.Kubectl, append([]string{"--kubeconfig", c.Kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s%s", strings.Join(args, " "), err, &stderr, &stdout)
	}
	return stdout.String(), nil
}

// Wait returns nil when ctx is done, or an error as soon as one of the cluster's programs ends by itself.
func (c *Cluster) Wait(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		c.restarting.Lock()
		err := c.crash()
		c.restarting.Unlock()
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// crash returns an error with the program that has ended and the end of its log.
func (c *Cluster) crash() error {
	for _, p := range c.processes {
		if !p.Runs() {
			return fmt.Errorf("%s has ended by itself; the end of its log:\n%s", p.Name, p.Tail())
		}
	}
	return nil
}

// Stop kills the control plane and removes its files. It does nothing for an existing cluster. It may be called
// repeatedly.
func (c *Cluster) Stop() error {
	var errs []error
	for _, p := range c.processes {
		errs = append(errs, p.Stop())
	}
	if c.port != nil {
		errs = append(errs, c.port.release())
	}
	c.processes, c.port = nil, nil
	if c.Dir != "" {
		errs = append(errs, os.RemoveAll(c.Dir))
	}
	return errors.Join(errs...)
}
