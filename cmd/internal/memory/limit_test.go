package memory

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLimitOf(t *testing.T) {
	const unlimited = "9223372036854771712\n"
	for name, test := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no control groups": {nil, math.MaxInt64},
		"version 2, a container": {map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "402653184\n",
		}, 402653184},
		"version 2, without a limit": {map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n",
		}, math.MaxInt64},
		"version 2, a group above has the limit": {map[string]string{
			"proc/self/cgroup":                                  "0::/kubepods/pod1/container1\n",
			"sys/fs/cgroup/kubepods/pod1/memory.max":            "1000\n",
			"sys/fs/cgroup/kubepods/pod1/container1/memory.max": "max\n",
			"sys/fs/cgroup/kubepods/memory.max":                 "5000\n",
		}, 1000},
		"version 1, a container": {map[string]string{
			"proc/self/cgroup":                           "5:cpu,cpuacct:/pods/1\n4:memory:/pods/1\n1:name=systemd:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "402653184\n",
		}, 402653184},
		"version 1, without a limit": {map[string]string{
			"proc/self/cgroup":                           "4:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": unlimited,
		}, math.MaxInt64},
		"version 1 beside version 2": {map[string]string{
			"proc/self/cgroup": "4:memory:/pod1\n0::/\n",
			"sys/fs/cgroup/memory/pod1/memory.limit_in_bytes": "2000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":      unlimited,
		}, 2000},
		"a path that leaves the folder": {map[string]string{
			"proc/self/cgroup": "0::/../../pod1\n", "sys/fs/cgroup/pod1/memory.max": "3000\n",
		}, 3000},
		"an invalid file": {map[string]string{
			"proc/self/cgroup": "memory\n0::/\n", "sys/fs/cgroup/memory.max": "many\n",
		}, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{}
			for file, content := range test.files {
				root[file] = &fstest.MapFile{Data: []byte(content)}
			}
			require.Equal(t, test.want, limitOf(root))
		})
	}
}

func TestSmallHeapsMayGrowMore(t *testing.T) {
	const mebibyte = 1 << 20
	for inUse, want := range map[uint64]int{
		0: 400, mebibyte: 400, 30 * mebibyte: 220, 48 * mebibyte: 100, 64 * mebibyte: 50, 80 * mebibyte: 30,
		96 * mebibyte: 30, 1000 * mebibyte: 30,
	} {
		require.Equal(t, want, Growth{96 * mebibyte, 30}.percentOf(inUse), "%d MiB in use", inUse/mebibyte)
	}
}

func TestCollectorIsAdaptedAfterEachCollection(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	adapt(Growth{96 << 20, 30}, &cycle{})
	for range 3 { // the finalizer is set again each time
		debug.SetGCPercent(77)
		require.Eventually(t, func() bool {
			runtime.GC()
			percent := debug.SetGCPercent(77)
			return percent >= 200 && percent <= 400
		}, 10*time.Second, time.Millisecond)
	}
}
