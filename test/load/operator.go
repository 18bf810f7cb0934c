package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/measure"
	"nstpl.dev/nstpl/test/process"
)

// operator is a running operator.
type operator struct {
	address string // the address of its metrics
	stop    context.CancelFunc
	ended   chan struct{}
}

// startOperator starts the operator, which ends with ctx. If it ends by itself, the run fails.
func (b *bench) startOperator(ctx context.Context) error {
	addresses, err := process.FreeAddresses(2)
	if err != nil {
		return err
	}
	address, webhooks := addresses[0], addresses[1]
	log, err := os.Create(filepath.Join(b.dir, "operator.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	_, flags, err := controlplane.Manifests(controlplane.Version())
	if err != nil {
		return err
	}
	flags = append(flags, "--metrics-bind-address="+address, "--health-probe-bind-address=0",
		"--webhook-bind-address="+webhooks, "--webhook-url=https://"+webhooks)
	ctx, stop := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, b.sizes.operator, flags...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+b.operatorKubeconfig())
	cmd.Stdout = log
	cmd.Stderr = log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that it does not get interrupts from the terminal
	if err := cmd.Start(); err != nil {
		stop()
		return fmt.Errorf("start the operator: %w", err)
	}
	b.operator = &operator{address: address, stop: stop, ended: make(chan struct{})}
	go func(ended chan struct{}) {
		defer close(ended)
		if err := cmd.Wait(); ctx.Err() == nil {
			output, _ := os.ReadFile(log.Name())
			b.fail(fmt.Errorf("the operator has ended by itself (%w):\n%s", err, output[max(0, len(output)-4096):]))
		}
	}(b.operator.ended)
	return nil
}

// end stops the operator, if it was started, and waits until it has ended.
func (o *operator) end() {
	if o != nil {
		o.stop()
		<-o.ended
	}
}

// metrics returns the operator's metrics.
func (o *operator) metrics(ctx context.Context) (measure.Families, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return measure.Parse(answer.Body)
}

func (b *bench) operatorKubeconfig() string {
	return filepath.Join(b.dir, "kubeconfig")
}

// asOperator writes a kubeconfig with only the permissions of the operator's ServiceAccount, and returns its content.
func (b *bench) asOperator(ctx context.Context) (*rest.Config, error) {
	day := int64(24 * 60 * 60)
	token, err := b.client.CoreV1().ServiceAccounts(v1alpha1.OperatorNamespace).CreateToken(ctx, "nstpl-operator",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}},
		metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("get a token for the operator: %w", err)
	}
	config, err := clientcmd.LoadFromFile(b.cluster.Kubeconfig)
	if err != nil {
		return nil, err
	}
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	if err := clientcmd.WriteToFile(*config, b.operatorKubeconfig()); err != nil {
		return nil, err
	}
	return clientcmd.BuildConfigFromFlags("", b.operatorKubeconfig())
}
