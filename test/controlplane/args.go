package controlplane

import (
	"fmt"
	"net"
	"strings"
)

// All programs run in the cluster's folder, and paths are relative to it, because the paths of sockets must be short.
const (
	// in a folder that other users cannot enter, because etcd does not authenticate clients
	etcdURL       = "unix://etcd.sock"
	serviceSubnet = "10.96.0.0/16"
)

// serviceIP is the first of serviceSubnet, which the Service "kubernetes" gets.
var serviceIP = net.IPv4(10, 96, 0, 1)

func etcdArgs() []string {
	return []string{
		"--data-dir=etcd",
		"--listen-client-urls=" + etcdURL,
		"--advertise-client-urls=http://localhost:2379", // required by etcd, but not used
		"--listen-peer-urls=unix://etcd-peer.sock",
		"--unsafe-no-fsync", // the data need not survive a crash of the machine
		"--quota-backend-bytes=8589934592",
		"--log-level=warn",
	}
}

func apiServerArgs(at *port) []string {
	return []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=" + at.address.String(),
		"--advertise-address=" + at.address.String(),
		fmt.Sprintf("--secure-port=%d", at.number),
		"--permit-port-sharing",
		"--endpoint-reconciler-type=none", // a loopback address is not a valid endpoint
		"--tls-cert-file=apiserver.crt",
		"--tls-private-key-file=apiserver.key",
		"--client-ca-file=ca.crt",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=service-account.key",
		"--service-account-signing-key-file=service-account.key",
		"--service-cluster-ip-range=" + serviceSubnet,
		"--authorization-mode=RBAC",
		"--allow-privileged",
		"--max-requests-inflight=1000",
		"--max-mutating-requests-inflight=500",
		"--profiling=false",
	}
}

func controllerManagerArgs() []string {
	controllers := []string{
		"clusterrole-aggregation-controller",
		"deployment-controller",
		"garbage-collector-controller",
		"namespace-controller",
		"replicaset-controller",
		"resourcequota-controller",
		"root-ca-certificate-publisher-controller",
		"serviceaccount-controller",
		"serviceaccount-token-controller",
	}
	return []string{
		"--kubeconfig=controller-manager.kubeconfig",
		"--controllers=" + strings.Join(controllers, ","),
		"--use-service-account-credentials",
		"--service-account-private-key-file=service-account.key",
		"--root-ca-file=ca.crt",
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
		"--profiling=false",
	}
}
