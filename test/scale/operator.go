package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"nstpl.dev/nstpl/test/operator"
)

// startOperator starts a program as the operator, and returns when it is ready.
func (b *bench) startOperator(ctx context.Context, binary string) (err error) {
	b.operator, err = operator.Start(operator.Options{
		Binary: binary, Dir: b.dir, Kubeconfig: b.operatorKubeconfig(), Flags: []string{"--leader-elect"},
		Webhooks: b.webhooks,
	})
	if err != nil {
		return err
	}
	return b.operator.AwaitReady(ctx)
}

func (b *bench) stopOperator() error {
	if b.operator == nil || !b.operator.Runs() {
		return nil
	}
	return b.operator.Stop()
}

// reviveOperator starts the operator again, without a limit of its memory, if it has ended by itself.
func (b *bench) reviveOperator(ctx context.Context) error {
	if b.operator.Runs() {
		return nil
	}
	log := strings.TrimSpace(b.operator.Log(""))
	err := fmt.Errorf("the operator has ended by itself before this step; the end of its log: %s",
		log[max(0, len(log)-500):])
	if failed := b.startOperator(ctx, b.options.operator); failed != nil {
		return fmt.Errorf("%w; it cannot be started again: %w", err, failed)
	}
	return err
}

// confine returns a program that runs the operator with a limit of its memory, and how the memory is limited: by a
// cgroup if this process may create one, and otherwise by GOMEMLIMIT, which the operator may exceed. remove removes the
// cgroup after the operator has ended.
func (b *bench) confine() (binary, how string, remove func(), err error) {
	path, err := filepath.Abs(b.options.operator)
	if err != nil {
		return "", "", nil, err
	}
	limit := b.options.memory << 20
	how, enter, remove := fmt.Sprintf("GOMEMLIMIT=%dMiB, since no cgroup can be created", b.options.memory),
		fmt.Sprintf("export GOMEMLIMIT=%d", limit), func() {}
	if group, ok := newCgroup(limit); ok {
		how = fmt.Sprintf("a cgroup of %d MiB", b.options.memory)
		enter = fmt.Sprintf("export MEMORY_LIMIT=%d && echo $$ >'%s/cgroup.procs'", limit, group)
		remove = func() { _ = os.Remove(group) }
	}
	script, err := os.CreateTemp(b.dir, "confined-operator-*")
	if err != nil {
		return "", "", remove, err
	}
	_, err = fmt.Fprintf(script, "#!/bin/sh\n%s && exec '%s' \"$@\"\n", enter, path)
	return script.Name(), how, remove, errors.Join(err, script.Chmod(0o700), script.Close())
}

// newCgroup creates a cgroup with a limit of memory and returns its folder. It tries version 2 and then version 1.
func newCgroup(limit int64) (folder string, ok bool) {
	name := fmt.Sprintf("nstpl-scale-%d-%d", os.Getpid(), time.Now().UnixNano())
	for _, version := range []struct{ root, file string }{
		{"/sys/fs/cgroup", "memory.max"},
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
	} {
		folder := filepath.Join(version.root, name)
		if os.Mkdir(folder, 0o755) != nil {
			continue
		}
		// A new cgroup has the file already. Elsewhere, such as in a plain folder, it must not be created.
		file, err := os.OpenFile(filepath.Join(folder, version.file), os.O_WRONLY, 0)
		if err == nil {
			_, err = fmt.Fprintf(file, "%d\n", limit)
			_ = file.Close()
		}
		if err == nil {
			return folder, true
		}
		_ = os.Remove(folder)
	}
	return "", false
}
