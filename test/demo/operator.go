package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// startOperator starts the operator with the rights of its ServiceAccount and no others. It outlives this process, and
// ends with the cluster: it can't keep its lease then.
func startOperator(ctx context.Context, sh shell, log string) (*exec.Cmd, error) {
	kubeconfig := filepath.Join(filepath.Dir(log), "operator.kubeconfig")
	if err := writeOperatorKubeconfig(ctx, sh, kubeconfig); err != nil {
		return nil, err
	}
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	webhooks, err := freeAddress()
	if err != nil {
		return nil, err
	}
	operator := exec.Command(filepath.Join(sh.bin, "nstpl-operator"), "--leader-elect",
		"--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0",
		"--webhook-bind-address="+webhooks, "--webhook-url=https://"+webhooks)
	operator.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	operator.Stdout = file
	operator.Stderr = file
	operator.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of make and its terminal
	return operator, operator.Start()
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// writeOperatorKubeconfig writes the cluster's kubeconfig with a token of the operator's ServiceAccount for its user.
func writeOperatorKubeconfig(ctx context.Context, sh shell, path string) error {
	var token bytes.Buffer
	create := "kubectl create token nstpl-operator --namespace " + v1alpha1.OperatorNamespace + " --duration=24h"
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
