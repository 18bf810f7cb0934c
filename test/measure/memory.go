package measure

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// MiB is the number of bytes in a mebibyte.
const MiB = 1 << 20

// PeakMemory returns the greatest resident memory that a process has had since its start, in bytes.
func PeakMemory(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	var kib float64
	_, value, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(value, &kib); err != nil {
		return 0, fmt.Errorf("process %d has no VmHWM: %w", pid, err)
	}
	return kib * 1024, nil
}

// Run runs a program, and returns how long it took and its peak memory in bytes, or 0 where /proc does not exist. The
// peak that the kernel reports for a child would include the memory of this process at the time of the fork.
func Run(cmd *exec.Cmd) (took time.Duration, peak float64, err error) {
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if now, err := PeakMemory(cmd.Process.Pid); err == nil { // it fails when the program has ended
			peak = max(peak, now)
		}
		select {
		case err := <-exited:
			return time.Since(start), peak, err
		case <-tick.C:
		}
	}
}
