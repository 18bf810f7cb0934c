package main

import (
	"context"
	"fmt"
	"path/filepath"

	"nstpl.dev/nstpl/test/operator"
)

// startOperator starts the operator. If it ends by itself, the run fails.
func (b *bench) startOperator(ctx context.Context) error {
	started, err := operator.Start(operator.Options{
		Binary: b.sizes.operator, Dir: b.dir, Kubeconfig: b.operatorKubeconfig(),
	})
	if err != nil {
		return err
	}
	ctx, stopWatching := context.WithCancel(ctx)
	b.background.Go(func() {
		select {
		case <-started.Exited:
			log := started.Log("")
			b.fail(fmt.Errorf("the operator has ended by itself:\n%s", log[max(0, len(log)-4096):]))
		case <-ctx.Done():
		}
	})
	b.operator = started
	b.stopOperator = func() error {
		stopWatching()
		return started.Stop()
	}
	return nil
}

func (b *bench) operatorKubeconfig() string {
	return filepath.Join(b.dir, "kubeconfig")
}
