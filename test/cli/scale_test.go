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
	"nstpl.dev/nstpl/test/measure"
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
					var peak float64
					var used time.Duration
					for b.Loop() {
						cluster.Requests()
						run := exec.Command(filepath.Join(binDir, "kubectl-nstpl"), strings.Fields(command)...)
						run.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig, "HOME="+home)
						var out strings.Builder
						run.Stdout, run.Stderr = &out, &out
						_, now, err := measure.Run(run)
						require.NoError(b, err, "%.2000s", out.String())
						peak = max(peak, now)
						used += run.ProcessState.UserTime() + run.ProcessState.SystemTime()
					}
					b.ReportMetric(float64(cluster.Requests()), "requests")
					b.ReportMetric(peak/measure.MiB, "MiB")
					b.ReportMetric(used.Seconds()/float64(b.N), "cpu-s/op")
				})
		}
	}
}
