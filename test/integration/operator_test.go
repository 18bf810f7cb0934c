package integration_test

import (
	"context"
	"errors"
	"net"

	"nstpl.dev/nstpl/test/operator"
)

// startReplica returns when the operator is ready.
func startReplica(ctx context.Context, cluster *testCluster, flags ...string) (*operator.Process, error) {
	options := operator.Options{Binary: operatorBinary, Dir: cluster.dir, Kubeconfig: cluster.operatorKubeconfig, Flags: flags}
	if cluster.behindService {
		options.Service = cluster.webhookAddress
	} else if isFree(cluster.webhookAddress) {
		options.Webhooks = cluster.webhookAddress
	}
	o, err := operator.Start(options)
	if err != nil {
		return nil, err
	}
	if err := o.AwaitReady(ctx); err != nil {
		return nil, errors.Join(err, o.Kill())
	}
	return o, nil
}

// isFree reports whether nobody listens at an address. A replica may.
func isFree(address string) bool {
	listener, err := net.Listen("tcp", address)
	return err == nil && listener.Close() == nil
}
