package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/cli/bigcluster"
)

// BenchmarkScale runs commands in clusters with 1,000 to 10,000 namespaces, ten objects in each, and as many templates.
// It reports the requests, and the peak memory and the CPU time of the process.
func BenchmarkScale(b *testing.B) {
	commands := []string{
		"status -A", "status -A -o json", "tree", "tree -o json", "diff -A", "diff -A -o json",
		"__complete status team-005", "__complete diff --template space-0",
	}
	for _, namespaces := range []int{1_000, 3_000, 10_000} {
		cluster := bigcluster.New(b, namespaces)
		home := b.TempDir()
		for _, command := range commands {
			b.Run(fmt.Sprintf("%s/namespaces=%d", strings.ReplaceAll(command, " ", "_"), namespaces),
				func(b *testing.B) {
					var peak int
					var used time.Duration
					for b.Loop() {
						cluster.Requests()
						run := exec.Command(filepath.Join(binDir, "kubectl-nstpl"), strings.Fields(command)...)
						run.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig, "HOME="+home)
						peak = max(peak, runMeasured(b, run))
						used += run.ProcessState.UserTime() + run.ProcessState.SystemTime()
					}
					b.ReportMetric(float64(cluster.Requests()), "requests")
					b.ReportMetric(float64(peak)/1024, "MiB")
					b.ReportMetric(used.Seconds()/float64(b.N), "cpu-s/op")
				})
		}
	}
}

// runMeasured runs a program, and returns its peak memory in KiB, or 0 where /proc does not exist. The peak that the
// kernel reports for a child would include the memory of this process at the time of the fork.
func runMeasured(b *testing.B, run *exec.Cmd) (peak int) {
	b.Helper()
	var out strings.Builder
	run.Stdout, run.Stderr = &out, &out
	require.NoError(b, run.Start())
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	status := fmt.Sprintf("/proc/%d/status", run.Process.Pid)
	for {
		select {
		case err := <-ended:
			require.NoError(b, err, "%.2000s", out.String())
			return peak
		case <-time.After(5 * time.Millisecond):
			data, _ := os.ReadFile(status) // fails when the program has ended
			if _, after, ok := strings.Cut(string(data), "VmHWM:"); ok {
				var now int
				if _, err := fmt.Sscan(after, &now); err == nil {
					peak = max(peak, now)
				}
			}
		}
	}
}
