// Package process runs programs that end with the process that started them.
package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Process is a running program.
type Process struct {
	Name string
	// Exited is closed when the program has ended.
	Exited chan struct{}

	cmd *exec.Cmd
	log string // path
}

// Start runs a program in the folder dir, and logs its output to name.log there.
func Start(dir, name, path string, args ...string) (*Process, error) {
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	return Run(cmd, name, log)
}

// Run starts a command and logs its output. The command ends with this process, even if that is killed.
func Run(cmd *exec.Cmd, name string, log *os.File) (*Process, error) {
	p, err := RunOutliving(cmd, name, log)
	if err != nil {
		return nil, err
	}
	if err := p.startGuard(); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// RunOutliving is Run for a command that does not end with this process.
func RunOutliving(cmd *exec.Cmd, name string, log *os.File) (*Process, error) {
	cmd.Stdout, cmd.Stderr = log, log
	// Interrupts from the terminal must reach only this process, which needs the command to clean up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{Name: name, cmd: cmd, log: log.Name(), Exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // State has the exit code
		close(p.Exited)
	}()
	return p, nil
}

// startGuard starts a shell that kills the program when this process ends: then its standard input ends without a line.
func (p *Process) startGuard() error {
	guard := exec.Command("/bin/sh", "-c", `read -r _ || kill -KILL "$0"`, strconv.Itoa(p.PID()))
	guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	alive, err := guard.StdinPipe()
	if err != nil {
		return err
	}
	if err := guard.Start(); err != nil {
		return err
	}
	go func() {
		<-p.Exited
		_, _ = io.WriteString(alive, "\n") // the guard may have ended already
		_ = guard.Wait()
	}()
	return nil
}

// PID returns the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Runs reports whether the program has not ended.
func (p *Process) Runs() bool {
	select {
	case <-p.Exited:
		return false
	default:
		return true
	}
}

// State returns how the program ended. It has not ended if the state is nil.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Signal sends a signal, such as SIGSTOP. It does nothing if the program has ended.
func (p *Process) Signal(signal os.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Stop kills the program and waits for its end.
func (p *Process) Stop() error {
	err := p.Signal(syscall.SIGKILL)
	<-p.Exited
	return err
}

// Log returns the lines of the log that contain a text.
func (p *Process) Log(word string) string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	var found strings.Builder
	for line := range strings.Lines(string(content)) {
		if strings.Contains(line, word) {
			found.WriteString(line)
		}
	}
	return found.String()
}

// Tail returns the end of the log.
func (p *Process) Tail() string {
	lines := strings.Split(strings.TrimSpace(p.Log("")), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
