package integration_test

import (
	"context"
	"errors"
	"net"

	"nstpl.dev/nstpl/test/operator"
)

// startOperator returns when the operator is ready.
func startOperator(ctx context.Context, w *world, flags ...string) (*operator.Process, error) {
	options := operator.Options{Binary: operatorBinary, Dir: w.dir, Kubeconfig: w.operatorKubeconfig, Flags: flags}
	if w.behindService {
		options.Service = w.webhookAddress
	} else if isFree(w.webhookAddress) {
		options.Webhooks = w.webhookAddress
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
