// Package operator runs the operator as a process with only the permissions of its ServiceAccount.
package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/measure"
	"nstpl.dev/nstpl/test/process"
)

// Options configure a process.
type Options struct {
	// Binary is the path of the operator.
	Binary string
	// Dir is the folder of the log, or Log its path.
	Dir, Log string
	// Kubeconfig is the path of a file that WriteKubeconfig wrote.
	Kubeconfig string
	// Webhooks is the host:port at which webhooks are served; empty means a free one.
	Webhooks string
	// Service is the host:port at which the API server calls webhooks; empty means Webhooks.
	Service string
	// Flags are added to the command line, Env to the environment.
	Flags, Env []string
	// Outlives means that the process does not end with the one that started it.
	Outlives bool
}

// Process is a running operator. It ends with the process that started it, even if that is killed, unless it outlives
// it.
type Process struct {
	*process.Process
	// Metrics, Probes, Webhooks and, of nstpl-sync, Hints are each a host:port.
	Metrics, Probes, Webhooks, Hints string
}

// Start starts an operator and returns at once: see AwaitReady.
func Start(options Options) (*Process, error) {
	addresses, err := process.FreeAddresses(3)
	if err != nil {
		return nil, err
	}
	p := &Process{Metrics: addresses[0], Probes: addresses[1], Webhooks: addresses[2]}
	if options.Webhooks != "" {
		p.Webhooks = options.Webhooks
	}
	service := p.Webhooks
	if options.Service != "" {
		service = options.Service
	}
	_, flags, err := controlplane.Manifests(controlplane.Version())
	if err != nil {
		return nil, err
	}
	flags = append(flags, "--webhook-bind-address="+p.Webhooks, "--webhook-url=https://"+service)
	if err := p.start(options, flags); err != nil {
		return nil, err
	}
	return p, nil
}

// StartSync starts nstpl-sync and returns at once: see AwaitReady. The options about webhooks have no effect.
func StartSync(options Options) (*Process, error) {
	addresses, err := process.FreeAddresses(3)
	if err != nil {
		return nil, err
	}
	p := &Process{Metrics: addresses[0], Probes: addresses[1], Hints: addresses[2]}
	if err := p.start(options, []string{"--hint-bind-address=" + p.Hints}); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Process) start(options Options, flags []string) error {
	log, err := createLog(options)
	if err != nil {
		return err
	}
	defer log.Close()
	flags = append(flags, "--metrics-bind-address="+p.Metrics, "--health-probe-bind-address="+p.Probes)
	cmd := exec.Command(options.Binary, append(flags, options.Flags...)...)
	cmd.Env = append(append(os.Environ(), options.Env...), "KUBECONFIG="+options.Kubeconfig)
	run := process.Run
	if options.Outlives {
		run = process.RunOutliving
	}
	p.Process, err = run(cmd, options.Binary, log)
	return err
}

func createLog(options Options) (*os.File, error) {
	if options.Log != "" {
		return os.Create(options.Log)
	}
	return os.CreateTemp(options.Dir, "operator-*.log")
}

// AwaitReady returns when the operator is ready, or an error with its log if it has ended or is not ready within a
// minute.
func (p *Process) AwaitReady(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			if !p.Runs() {
				return false, errors.New("the process has ended")
			}
			return p.Get(ctx, p.Probes, "/readyz", io.Discard) == nil, nil
		})
	if err != nil {
		return fmt.Errorf("the operator is not ready: %w\n%s", err, p.Log(""))
	}
	return nil
}

// Kill kills the process.
func (p *Process) Kill() error {
	return errors.Join(p.Process.Stop(), p.Check())
}

// Stop stops the process as Kubernetes would. It fails if the process does not end by itself soon.
func (p *Process) Stop() error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.Exited:
	case <-time.After(30 * time.Second):
		return errors.Join(fmt.Errorf("the operator does not end:\n%s", p.Log("")), p.Process.Stop())
	}
	if status := p.State(); !status.Success() && !status.Sys().(syscall.WaitStatus).Signaled() {
		return fmt.Errorf("the operator ended with %s:\n%s", status, p.Log(""))
	}
	return p.Check()
}

// Check fails if the log contains a report of the race detector or a recovered panic.
func (p *Process) Check() error {
	for _, word := range []string{"DATA RACE", "Observed a panic", "panic: "} {
		if found := p.Log(word); found != "" {
			return fmt.Errorf("%s:\n%s", word, p.Log(""))
		}
	}
	return nil
}

// Get writes the process's answer at one of its addresses to w. Any status but 200 is an error.
func (p *Process) Get(ctx context.Context, address, path string, body io.Writer) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", request.URL, response.Status)
	}
	_, err = io.Copy(body, response.Body)
	return err
}

// AllMetrics returns the metrics of the process.
func (p *Process) AllMetrics(ctx context.Context) (measure.Families, error) {
	var text bytes.Buffer
	if err := p.Get(ctx, p.Metrics, "/metrics", &text); err != nil {
		return nil, err
	}
	return measure.Parse(&text)
}

// HasReconciled reports whether the operator has reconciled a number of namespaces and has nothing left to do.
func (p *Process) HasReconciled(ctx context.Context, namespaces int) bool {
	all, err := p.AllMetrics(ctx)
	return err == nil && // the operator may not listen yet
		all.Sum("controller_runtime_reconcile_total", `controller="namespace"`) >= float64(namespaces) &&
		all.Sum("controller_runtime_active_workers", `controller="namespace"`) == 0 &&
		all.Sum("workqueue_depth", `name="namespace"`) == 0
}

// Metric returns the sum of a metric's series that have the labels, each written as name="value".
func (p *Process) Metric(ctx context.Context, name string, labels ...string) (sum float64, found bool, err error) {
	all, err := p.AllMetrics(ctx)
	sum, found = all.Find(name, labels...)
	return sum, found, err
}
