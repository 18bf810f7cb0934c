package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/controlplane"
)

// operatorKubeconfig writes a kubeconfig with the rights of the operator's ServiceAccount and no others.
func operatorKubeconfig(ctx context.Context, cluster *controlplane.Cluster, client kubernetes.Interface, path string) error {
	day := int64(24 * 60 * 60)
	token, err := client.CoreV1().ServiceAccounts(v1alpha1.OperatorNamespace).CreateToken(ctx, "nstpl-operator",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	config, err := clientcmd.LoadFromFile(cluster.Kubeconfig)
	if err != nil {
		return err
	}
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	return clientcmd.WriteToFile(*config, path)
}

// operator is a running operator.
type operator struct {
	metrics, probes string // addresses
	stop            context.CancelFunc
	ended           chan struct{}
}

// startOperator runs the program in dir, where its kubeconfig is. It ends with ctx; an end of its own goes to crashed.
func startOperator(ctx context.Context, program, dir string, crashed func(error)) (*operator, error) {
	metrics, err := freeAddress()
	if err != nil {
		return nil, err
	}
	probes, err := freeAddress()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "operator.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	ctx, stop := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, program, "--metrics-bind-address="+metrics, "--health-probe-bind-address="+probes)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "operator.kubeconfig"))
	cmd.Stdout = log
	cmd.Stderr = log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt from the terminal is not for it
	if err := cmd.Start(); err != nil {
		stop()
		return nil, fmt.Errorf("start the operator: %w", err)
	}
	o := &operator{metrics: metrics, probes: probes, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(o.ended)
		if err := cmd.Wait(); ctx.Err() == nil {
			crashed(fmt.Errorf("the operator has ended by itself (%w):\n%s", err, tail(log.Name())))
		}
	}()
	return o, nil
}

// end asks the operator, if it was started, to end, and waits until it has.
func (o *operator) end() {
	if o == nil {
		return
	}
	o.stop()
	<-o.ended
}

// ready tells whether the operator says that it is.
func (o *operator) ready(ctx context.Context) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.probes+"/readyz", nil)
	if err != nil {
		return false, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, ctx.Err() // not listening yet
	}
	return answer.StatusCode == http.StatusOK, answer.Body.Close()
}

// scrape reads the operator's own metrics.
func (o *operator) scrape(ctx context.Context) (families, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.metrics+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return parse(answer.Body)
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// tail returns the last lines of a file.
func tail(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
