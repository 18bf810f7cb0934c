package integration_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/process"
)

// operator is a process of the operator.
type operator struct {
	cmd     *exec.Cmd
	log     string // path
	metrics string // host:port
	probes  string // host:port
	// webhooks is the host:port at which they are served.
	webhooks string
	// guard kills the process if this one ends without a word.
	guard  io.WriteCloser
	exited chan struct{}
}

// startOperator returns when the operator is ready.
func startOperator(ctx context.Context, w *world, flags ...string) (*operator, error) {
	log, err := os.CreateTemp(w.dir, "operator-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	addresses, err := process.FreeAddresses(3)
	if err != nil {
		return nil, err
	}
	o := &operator{log: log.Name(), metrics: addresses[0], probes: addresses[1], webhooks: addresses[2], exited: make(chan struct{})}
	if !w.behindService && isFree(w.webhookAddress) {
		o.webhooks = w.webhookAddress
	}
	_, suiting, err := controlplane.Manifests(controlplane.Version())
	if err != nil {
		return nil, err
	}
	flags = slices.Concat(flags, suiting)
	asked := o.webhooks
	if w.behindService {
		asked = w.webhookAddress
	}
	o.cmd = exec.Command(operatorBinary, append(flags, "--metrics-bind-address="+o.metrics, "--health-probe-bind-address="+o.probes,
		"--webhook-bind-address="+o.webhooks, "--webhook-url=https://"+asked)...)
	o.cmd.Env = append(os.Environ(), "KUBECONFIG="+w.operatorKubeconfig)
	o.cmd.Stdout, o.cmd.Stderr = log, log
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := o.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = o.cmd.Wait() // stop looks at the outcome
		close(o.exited)
	}()
	if err := o.startGuard(); err != nil {
		return nil, errors.Join(err, o.kill())
	}
	err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		select {
		case <-o.exited:
			return false, errors.New("it has ended")
		default:
		}
		return o.get(ctx, o.probes, "/readyz", io.Discard) == nil, nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the operator isn't ready: %w\n%s", err, o.logOf("")), o.kill())
	}
	return o, nil
}

// isFree tells whether nobody listens at an address. A replica may.
func isFree(address string) bool {
	listener, err := net.Listen("tcp", address)
	return err == nil && listener.Close() == nil
}

func (o *operator) startGuard() error {
	guard := exec.Command("/bin/sh", "-c", `read -r _ || kill -KILL "$0"`, strconv.Itoa(o.cmd.Process.Pid))
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if o.guard, err = guard.StdinPipe(); err != nil {
		return err
	}
	if err := guard.Start(); err != nil {
		return err
	}
	go func() { _ = guard.Wait() }()
	return nil
}

// kill ends the process as a crash would.
func (o *operator) kill() error {
	return errors.Join(o.signal(syscall.SIGKILL), o.check())
}

// stop ends the process as Kubernetes would. It must end by itself, and soon.
func (o *operator) stop() error {
	if err := o.signal(syscall.SIGTERM); err != nil {
		return err
	}
	if status := o.cmd.ProcessState; !status.Success() && !status.Sys().(syscall.WaitStatus).Signaled() {
		return fmt.Errorf("the operator ended with %s:\n%s", status, o.logOf(""))
	}
	return o.check()
}

func (o *operator) signal(signal os.Signal) error {
	if err := o.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-o.exited:
	case <-time.After(30 * time.Second):
		return errors.Join(fmt.Errorf("the operator doesn't end:\n%s", o.logOf("")), o.cmd.Process.Kill())
	}
	if o.guard != nil {
		_, _ = io.WriteString(o.guard, "\n") // it may have read it before
		_ = o.guard.Close()
	}
	return nil
}

// check fails if the race detector, or a panic that was caught, left a word in the log.
func (o *operator) check() error {
	for _, word := range []string{"DATA RACE", "Observed a panic", "panic: "} {
		if found := o.logOf(word); found != "" {
			return fmt.Errorf("%s:\n%s", word, o.logOf(""))
		}
	}
	return nil
}

// logOf returns the lines of the log that hold a word.
func (o *operator) logOf(word string) string {
	content, err := os.ReadFile(o.log)
	if err != nil {
		return err.Error()
	}
	var found strings.Builder
	for line := range strings.Lines(string(content)) {
		if strings.Contains(line, word) {
			found.WriteString(line)
		}
	}
	return found.String()
}

// metric returns the sum of a metric's series that have the labels, each written as name="value".
func (o *operator) metric(ctx context.Context, name string, labels ...string) (sum float64, found bool, err error) {
	var body strings.Builder
	if err := o.get(ctx, o.metrics, "/metrics", &body); err != nil {
		return 0, false, err
	}
	lines := bufio.NewScanner(strings.NewReader(body.String()))
series:
	for lines.Scan() {
		series, text, _ := cutLast(lines.Text(), " ")
		if base, _, _ := strings.Cut(series, "{"); base != name {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(series, label) {
				continue series
			}
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, false, err
		}
		sum, found = sum+value, true
	}
	return sum, found, lines.Err()
}

func cutLast(s, separator string) (before, after string, found bool) {
	at := strings.LastIndex(s, separator)
	if at < 0 {
		return s, "", false
	}
	return s[:at], s[at+len(separator):], true
}

func (o *operator) get(ctx context.Context, address, path string, body io.Writer) error {
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
