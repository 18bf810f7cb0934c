// Package memory has the garbage collector of Go respect the memory limit of the container.
package memory

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"

	"github.com/go-logr/logr"
)

// Growth is how much the heap may grow before it is collected. Each collection takes time in proportion to the bytes in
// use, so collecting a small heap often costs processor time and saves little memory.
type Growth struct {
	// Size is the size in bytes up to which the heap may grow in any case.
	Size uint64
	// Percent is how much a larger heap may grow, in percent of the bytes in use, as in GOGC.
	Percent int
}

// Collect configures the garbage collector, except for what the environment variables GOMEMLIMIT and GOGC set. The
// Deployments set MEMORY_LIMIT to the limit of the container, in bytes. Go's soft limit becomes nine tenths of it: the
// collector then runs more often before the kernel kills the process. Collect keeps adapting the collector to the heap
// while the process runs.
func Collect(growth Growth) {
	limit, err := strconv.ParseInt(os.Getenv("MEMORY_LIMIT"), 10, 64)
	if os.Getenv("GOMEMLIMIT") == "" && err == nil && limit > 0 {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
	if os.Getenv("GOGC") == "" {
		adapt(growth, &cycle{})
	}
}

// LogUnlimited logs if Go has no memory limit, so that the kernel may kill the process before memory is collected.
func LogUnlimited(log logr.Logger) {
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		log.Info("Go has no memory limit: set MEMORY_LIMIT to the memory limit of the container, in bytes")
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
