// Package process runs programs that end with the process that started them.
package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// supervisor runs its arguments as a command and kills it when standard input ends, which happens when the process at
// the other end of the pipe ends, even if that is killed.
const supervisor = `
exec 9<&0 </dev/null
"$@" 9<&- & child=$!
{ read -r _; kill -KILL $child; } <&9 9<&- & watch=$!
wait $child; status=$?
kill $watch
exit $status
`

// Process is a running program.
type Process struct {
	Name string
	// Exited is closed when the program has ended.
	Exited chan struct{}

	log   string    // path
	alive io.Closer // closing it kills the process
}

// Start runs a program in the folder dir, and logs its output to name.log there. The program gets its own process
// group, so that interrupts from the terminal reach only the test, which needs the cluster to clean up.
func Start(dir, name, path string, args ...string) (*Process, error) {
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", supervisor, "supervise", path}, args...)...)
	cmd.Dir = dir
	cmd.Stdout = log
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	alive, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{Name: name, log: log.Name(), alive: alive, Exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // always an error, because the program is killed or should not have ended
		close(p.Exited)
	}()
	return p, nil
}

// Stop kills the process and waits for its end.
func (p *Process) Stop() error {
	err := p.alive.Close()
	<-p.Exited
	if errors.Is(err, os.ErrClosed) { // it has ended by itself
		return nil
	}
	return err
}

// Tail returns the end of the log.
func (p *Process) Tail() string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
