package git

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"nstpl.dev/nstpl/operator/engine/files"
)

// maxDeltaChain is the longest chain of deltas that git writes.
const maxDeltaChain = 4095

var errDelta = errors.New("a delta is invalid")

// resolveAll hashes the objects that are deltas of others.
func (x *indexer) resolveAll() error {
	x.children = make([]int32, len(x.pack.entries))
	x.next = make([]int32, len(x.pack.entries))
	for i := range x.children {
		x.children[i], x.next[i] = -1, -1
	}
	for i, e := range x.pack.entries {
		if e.base >= 0 {
			x.adopt(e.base, int32(i))
		}
	}
	for i := range x.pack.entries {
		if x.pack.entries[i].kind.IsDelta() {
			continue
		}
		hash := plumbing.ZeroHash
		if len(x.ofHash) > 0 {
			hash = x.hashOf(int32(i))
		}
		x.adoptByHash(int32(i), hash)
		if x.children[i] < 0 {
			continue
		}
		if err := x.resolveBelow(int32(i)); err != nil {
			return err
		}
	}
	if len(x.ofHash) > 0 && !x.pack.partial {
		return errors.New("the pack has deltas of objects that it does not contain")
	}
	return nil
}

// hashOf returns the hash of an entry that is not a delta.
func (x *indexer) hashOf(at int32) plumbing.Hash {
	if x.hashes == nil {
		x.hashes = make(map[int32]plumbing.Hash, len(x.pack.byHash))
		for hash, i := range x.pack.byHash {
			x.hashes[i] = hash
		}
	}
	return x.hashes[at]
}

func (x *indexer) adopt(base, delta int32) {
	x.pack.entries[delta].base = base
	x.next[delta], x.children[base] = x.children[base], delta
}

// adoptByHash gives an entry the deltas that name it by its hash.
func (x *indexer) adoptByHash(base int32, hash plumbing.Hash) {
	for _, delta := range x.ofHash[hash] {
		x.adopt(base, delta)
	}
	delete(x.ofHash, hash)
}

// resolveBelow hashes the deltas of an entry that is not a delta, and the deltas of these.
func (x *indexer) resolveBelow(root int32) error {
	e := x.pack.entries[root]
	if e.length > x.limits.deltaObject {
		x.pack.partial = true
		return nil
	}
	content, err := x.pack.inflate(e)
	if err != nil {
		return err
	}
	return x.resolve(root, content, e.kind, 0, 0)
}

// resolve hashes the deltas of an entry whose content is given. depth is the length of the chain of deltas up to the
// entry, and held is how many bytes of other contents are in memory.
//
// The last delta of each entry is resolved in the loop, when the content of the entry is no longer needed. So a chain
// of deltas needs the memory of two objects, however long it is.
func (x *indexer) resolve(at int32, content []byte, kind plumbing.ObjectType, depth int, held int64) error {
	for ; x.children[at] >= 0; depth++ {
		if held+int64(len(content)) > x.limits.deltaMemory {
			x.pack.partial = true
			return nil
		}
		if depth >= maxDeltaChain {
			return errDelta
		}
		delta := x.children[at]
		for ; x.next[delta] >= 0; delta = x.next[delta] {
			result, err := x.patch(delta, content, kind)
			if err != nil {
				return err
			}
			if result != nil {
				if err := x.resolve(delta, result, kind, depth+1, held+int64(len(content))); err != nil {
					return err
				}
			}
		}
		var err error
		if content, err = x.patch(delta, content, kind); err != nil || content == nil {
			return err
		}
		at = delta
	}
	return nil
}

// patch returns the object that a delta makes of its base, and makes it known by its hash. It returns nil if the
// object is too large to be held in memory.
func (x *indexer) patch(at int32, base []byte, kind plumbing.ObjectType) ([]byte, error) {
	e := &x.pack.entries[at]
	if e.length > x.limits.deltaObject {
		x.pack.partial = true
		return nil, nil
	}
	delta, err := x.pack.inflate(*e)
	if err != nil {
		return nil, err
	}
	if e.size, err = resultSize(delta); err != nil {
		return nil, err
	}
	if err := x.spend(e.size + int64(len(delta))); err != nil {
		return nil, err
	}
	if e.size > x.limits.deltaObject {
		x.pack.partial = true
		return nil, nil
	}
	result, err := applyDelta(base, delta, e.size)
	if err != nil {
		return nil, err
	}
	e.isLFS = files.IsPointer(result, e.size)
	hash := plumbing.ComputeHash(kind, result)
	x.pack.byHash[hash] = at
	x.adoptByHash(at, hash)
	return result, nil
}

// applyDelta returns the object of the given size that a delta makes of its base.
func applyDelta(base, delta []byte, size int64) ([]byte, error) {
	if size == 0 { // PatchDelta does not accept all of these
		return []byte{}, nil
	}
	result, err := packfile.PatchDelta(base, delta)
	if err != nil {
		return nil, errors.Join(errDelta, err)
	}
	if int64(len(result)) != size {
		return nil, errDelta
	}
	return result, nil
}

// resultSize returns the size of the object that a delta makes.
func resultSize(delta []byte) (int64, error) {
	r := bytes.NewReader(delta)
	if _, err := binary.ReadUvarint(r); err != nil {
		return 0, errDelta
	}
	size, err := binary.ReadUvarint(r)
	if err != nil || size > 1<<62 {
		return 0, errDelta
	}
	return int64(size), nil
}
