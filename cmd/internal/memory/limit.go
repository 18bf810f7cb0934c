// Package memory has the garbage collector of Go respect the memory limit of the container.
package memory

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
)

// Growth is how much the heap may grow before it is collected. Each collection takes time in proportion to the bytes in
// use, so collecting a small heap often costs processor time and saves little memory.
type Growth struct {
	// Size is the size in bytes up to which the heap may grow in any case.
	Size uint64
	// Percent is how much a larger heap may grow, in percent of the bytes in use, as in GOGC.
	Percent int
}

// Collect configures the garbage collector, except for what the environment variables GOMEMLIMIT and GOGC set. Where
// the process has a memory limit, Go's soft limit becomes nine tenths of it: the collector then runs more often before
// the kernel kills the process. Collect keeps adapting the collector to the heap while the process runs.
func Collect(growth Growth) {
	if limit := limitOf(os.DirFS("/")); os.Getenv("GOMEMLIMIT") == "" && limit < math.MaxInt64 {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
	if os.Getenv("GOGC") == "" {
		adapt(growth, &cycle{})
	}
}

// cycle is garbage until the next collection, whose end its finalizer tells. It has a pointer, because a finalizer of a
// tiny object without pointers may never run.
type cycle struct{ _ *cycle }

// adapt sets how much the heap may grow until the next collection, and does so again after it.
func adapt(growth Growth, next *cycle) {
	inUse := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(inUse)
	debug.SetGCPercent(growth.percentOf(inUse[0].Value.Uint64()))
	runtime.SetFinalizer(next, func(ended *cycle) { adapt(growth, ended) })
}

// percentOf returns how much a heap may grow, in percent of the bytes in use. It is a multiple of 10, so that small
// changes of the heap change nothing.
func (g Growth) percentOf(inUse uint64) int {
	most := max(400, g.Percent)
	if inUse == 0 {
		return most
	}
	left := g.Size - min(g.Size, inUse)
	return min(most, max(g.Percent, int(left*100/inUse)/10*10))
}

// limitOf returns the memory limit of this process in bytes: the least of those of its control group and the groups
// above it. It returns math.MaxInt64 if there is none. Inside a container, the paths of groups may be those on the
// node, where the container's own group is mounted as the root.
func limitOf(root fs.FS) int64 {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return math.MaxInt64
	}
	least := int64(math.MaxInt64)
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // hierarchy:controllers:path
		if len(parts) != 3 {
			continue
		}
		var folder, file string
		switch {
		case parts[0] == "0":
			folder, file = "sys/fs/cgroup", "memory.max" // version 2
		case parts[1] == "memory":
			folder, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes" // version 1
		default:
			continue
		}
		for group := path.Clean("/" + parts[2]); ; group = path.Dir(group) {
			least = min(least, read(root, path.Join(folder, group, file)))
			if group == "/" {
				break
			}
		}
	}
	return least
}

// read returns the limit in a file, or math.MaxInt64 if there is no file or no limit. Version 1 of control groups
// writes a number close to the largest one instead of no limit.
func read(root fs.FS, name string) int64 {
	content, err := fs.ReadFile(root, name)
	if err != nil {
		return math.MaxInt64
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	if err != nil || limit <= 0 || limit > math.MaxInt64/2 {
		return math.MaxInt64
	}
	return limit
}
