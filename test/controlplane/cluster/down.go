package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// down stops the control plane in dir, if one runs, and removes its files.
func down(ctx context.Context, dir string) error {
	lock, err := openLock(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	message := "no control plane is running"
	for seen := 0; ; {
		free, err := lock.tryLock()
		if err != nil {
			return err
		}
		if free {
			break
		}
		pid, version, err := lock.holder()
		if err != nil {
			return err
		}
		// the file may briefly contain the process number of an earlier holder
		if pid != 0 && pid == seen {
			message = fmt.Sprintf("kubernetes %s is stopped", version)
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("stop the control plane (process %d): %w", pid, err)
			}
		}
		seen = pid
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(poll):
		}
	}
	if err := removeRemains(dir); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, message)
	return nil
}
