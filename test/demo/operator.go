package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/process"
)

// startOperator starts the operator with the rights of its ServiceAccount and no others, and with more flags. It
// returns when the operator is ready and new namespaces are stamped. The operator outlives this process, and ends with
// the cluster: it can't keep its lease then.
func startOperator(ctx context.Context, sh shell, log string, more ...string) (*exec.Cmd, error) {
	kubeconfig := filepath.Join(filepath.Dir(log), "operator.kubeconfig")
	if err := writeOperatorKubeconfig(ctx, sh, kubeconfig); err != nil {
		return nil, err
	}
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	addresses, err := process.FreeAddresses(2)
	if err != nil {
		return nil, err
	}
	webhooks, probes := addresses[0], addresses[1]
	_, flags, err := controlplane.Manifests(controlplane.Version())
	if err != nil {
		return nil, err
	}
	flags = append(flags, "--leader-elect", "--metrics-bind-address=127.0.0.1:0",
		"--health-probe-bind-address="+probes, "--webhook-bind-address="+webhooks, "--webhook-url=https://"+webhooks)
	operator := exec.Command(filepath.Join(sh.bin, "nstpl-operator"), append(flags, more...)...)
	operator.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	operator.Stdout = file
	operator.Stderr = file
	operator.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of make and its terminal
	if err := operator.Start(); err != nil {
		return nil, err
	}
	return operator, awaitOperator(ctx, sh, probes)
}

// awaitOperator waits for the operator, and until the API server enforces the admission policies.
func awaitOperator(ctx context.Context, sh shell, probes string) error {
	const probe = "kubectl create namespace probe --dry-run=server --output=yaml"
	var said bytes.Buffer
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+probes+"/readyz", nil)
			if err != nil {
				return false, err
			}
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				return false, nil //nolint:nilerr // it doesn't listen yet
			}
			said.Reset()
			return answer.StatusCode == http.StatusOK && sh.run(ctx, probe, &said) == nil &&
				strings.Contains(said.String(), v1alpha1.CreatorAnnotation), answer.Body.Close()
		})
	if err != nil {
		return fmt.Errorf("the operator isn't ready: %w: %s", err, &said)
	}
	return nil
}

// writeOperatorKubeconfig writes the cluster's kubeconfig with a token of the operator's ServiceAccount for its user.
func writeOperatorKubeconfig(ctx context.Context, sh shell, path string) error {
	return writeKubeconfigOf(ctx, sh, "nstpl-operator", path)
}

// writeKubeconfigOf writes the cluster's kubeconfig with a token of a ServiceAccount for its user.
func writeKubeconfigOf(ctx context.Context, sh shell, account, path string) error {
	var token bytes.Buffer
	create := "kubectl create token " + account + " --namespace " + v1alpha1.OperatorNamespace + " --duration=24h"
	if err := sh.run(ctx, create, &token); err != nil {
		return err
	}
	config, err := clientcmd.LoadFromFile(sh.kubeconfig)
	if err != nil {
		return err
	}
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: strings.TrimSpace(token.String())}
	}
	return clientcmd.WriteToFile(*config, path)
}
