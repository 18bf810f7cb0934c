package controlplane

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

// supervisor runs its arguments as a command and kills it when standard input ends, which it does when the process that
// holds the other end of the pipe dies in whatever way.
const supervisor = `
exec 9<&0 </dev/null
"$@" 9<&- & child=$!
{ read -r _; kill -KILL $child; } <&9 9<&- & watch=$!
wait $child; status=$?
kill $watch
exit $status
`

// process is one program of a cluster.
type process struct {
	name   string
	log    string        // path
	alive  io.Closer     // closing it ends the process
	exited chan struct{} // closed when it has ended
}

// startProcess runs a program in the folder dir, in a process group of its own: an interrupt from the terminal is for
// the test, which may still need its cluster to clean up.
func startProcess(dir, path string, args ...string) (*process, error) {
	name := filepath.Base(path)
	log, err := os.Create(filepath.Join(dir, name+".log"))
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
	p := &process{name: name, log: log.Name(), alive: alive, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // always an error: it is killed, or it should not have ended
		close(p.exited)
	}()
	return p, nil
}

// stop kills the process and waits for its end.
func (p *process) stop() error {
	err := p.alive.Close()
	<-p.exited
	if errors.Is(err, os.ErrClosed) { // it had ended by itself
		return nil
	}
	return err
}

// tail is the end of what the process has logged.
func (p *process) tail() string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
