package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"nstpl.dev/nstpl/test/measure"
)

const mebibyte = 1 << 20

// measureCommands runs the plugin's commands that read everything.
func (b *bench) measureCommands(ctx context.Context) error {
	var failed []string
	for _, command := range []struct {
		args    []string
		seconds float64
	}{
		{[]string{"diff", "-A"}, 5},
		{[]string{"status", "-A"}, 2},
		{[]string{"tree"}, 2},
		{[]string{"vet", b.tree}, 3},
	} {
		name := strings.Replace(strings.Join(command.args, " "), b.tree, "DIR", 1)
		b.progress.part("kubectl nstpl "+name, 0)
		var took time.Duration
		var peak float64
		var err error
		work, measured := measure.During(ctx, b.client, func() error {
			took, peak, err = b.runPlugin(ctx, command.args)
			return nil
		})
		if ctx.Err() != nil || measured != nil {
			return fmt.Errorf("kubectl nstpl %s: %w", name, errors.Join(context.Cause(ctx), measured))
		}
		b.printRequests(name, work)
		b.add(measurement{Name: name + ": time", Unit: "s", Growth: linear, Goal: atMost(command.seconds)},
			took.Seconds())
		b.add(measurement{Name: name + ": peak memory", Unit: "MiB", Growth: linear, Goal: atMost(300)}, peak/mebibyte)
		b.add(measurement{Name: name + ": the API server's CPU time", Unit: "s", Growth: linear}, work.CPU.Seconds())
		if err != nil {
			failed = append(failed, fmt.Sprintf("kubectl nstpl %s: %s", name, err))
		}
	}
	if len(failed) > 0 {
		return errors.New(strings.Join(failed, "; "))
	}
	return nil
}

// runPlugin runs a command of the plugin. It returns its time and the greatest resident memory that it had, in bytes.
// An exit code other than 0 is an error: every namespace should be as declared.
func (b *bench) runPlugin(ctx context.Context, args []string) (took time.Duration, peak float64, err error) {
	cmd := exec.CommandContext(ctx, b.options.plugin, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+b.cluster.Kubeconfig)
	var complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &complaints
	took, peak, err = measure.Run(cmd)
	if err != nil {
		text := complaints.String()
		err = fmt.Errorf("%w: %s", err, text[:min(len(text), 500)])
	}
	return took, peak, err
}
