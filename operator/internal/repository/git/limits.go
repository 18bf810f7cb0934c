package git

import (
	"time"

	"nstpl.dev/nstpl/operator/engine/files"
)

const (
	resolveTimeout = 30 * time.Second
	fetchTimeout   = 5 * time.Minute // a download, without the time to read it
)

// limits bounds what a server, or the author of a commit, can make a fetch use. All sizes are in bytes.
type limits struct {
	pack          int64 // a pack on disk
	inflated      int64 // all objects of a pack together, after decompression and with resolved deltas
	objects       int   // the number of objects in a pack
	deltaObject   int64 // an object that is made from, or is the base of, a delta; such objects are held in memory
	deltaMemory   int64 // all bases that are held in memory at the same time
	advertisement int64 // the list of references
	commit        int64 // a commit object
	directory     int64 // a tree object, which lists a directory
	tree          files.Limits
}

func defaultLimits() limits {
	return limits{
		pack:          256 << 20,
		inflated:      4 << 30,
		objects:       500_000,
		deltaObject:   16 << 20,
		deltaMemory:   64 << 20,
		advertisement: 64 << 20,
		commit:        1 << 20,
		directory:     4 << 20,
		tree:          files.DefaultLimits(),
	}
}

// branchHistory is how many commits of a branch are fetched if the server does not send a commit by its hash.
const branchHistory = 100
