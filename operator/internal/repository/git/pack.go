package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
)

// entry is an object of a pack.
type entry struct {
	offset int64
	length int64 // of the object, or of the delta
	size   int64 // of the object, once it is known
	base   int32 // the entry that a delta changes, or -1
	kind   plumbing.ObjectType
}

// pack finds objects in a file with a pack. Only objects whose content was hashed can be found. It is safe for
// concurrent use, if the file is.
type pack struct {
	file    io.ReaderAt
	entries []entry // by offset
	byHash  map[plumbing.Hash]int32
	// partial reports whether some deltas were left out because they need too much memory.
	partial bool
}

// errAbsent means that a pack does not contain an object.
var errAbsent = errors.New("the object is not in the pack")

// indexPack reads a pack from a stream, whose bytes are those of the file, up to its checksum. Every object is decompressed and hashed once, in constant
// memory, except for deltas and their bases.
func indexPack(ctx context.Context, stream io.Reader, file io.ReaderAt, l limits) (*pack, error) {
	x := &indexer{
		ctx: ctx, limits: l, budget: l.inflated,
		pack:   &pack{file: file, byHash: map[plumbing.Hash]int32{}},
		ofHash: map[plumbing.Hash][]int32{},
	}
	if err := x.scan(packfile.NewScanner(stream)); err != nil {
		return nil, err
	}
	if err := x.resolveAll(); err != nil {
		return nil, err
	}
	return x.pack, nil
}

type indexer struct {
	ctx    context.Context
	limits limits
	budget int64 // bytes that may still be decompressed
	pack   *pack

	// The deltas of an entry are children[entry], and next of each until -1. Both are filled after the scan.
	children, next []int32
	// ofHash has the deltas that name their base by its hash.
	ofHash map[plumbing.Hash][]int32
	hashes map[int32]plumbing.Hash // of objects that are no deltas, if any delta names its base by its hash
}

func (x *indexer) spend(bytes int64) error {
	if x.budget -= bytes; bytes < 0 || x.budget < 0 {
		return failf(LimitExceeded, "the files of the repository expand to more than %s: "+
			"keep policies in a repository of their own", size(x.limits.inflated))
	}
	return x.ctx.Err()
}

// scan reads all objects, and hashes those that are no deltas.
func (x *indexer) scan(scanner *packfile.Scanner) error {
	_, count, err := scanner.Header()
	if err != nil {
		return err
	}
	if int64(count) > int64(x.limits.objects) {
		return failf(LimitExceeded, "the commit needs %d objects, more than the allowed %d: "+
			"keep policies in a repository of their own", count, x.limits.objects)
	}
	for range count {
		if err := x.scanObject(scanner); err != nil {
			return err
		}
	}
	_, err = scanner.Checksum()
	return err
}

func (x *indexer) scanObject(scanner *packfile.Scanner) error {
	header, err := scanner.NextObjectHeader()
	if err != nil {
		return err
	}
	if err := x.spend(header.Length); err != nil {
		return err
	}
	at := int32(len(x.pack.entries))
	e := entry{offset: header.Offset, length: header.Length, size: -1, base: -1, kind: header.Type}
	content := io.Discard
	var hasher plumbing.Hasher
	switch header.Type {
	case plumbing.OFSDeltaObject:
		if e.base = x.find(header.OffsetReference); e.base < 0 {
			return errors.New("a delta has no base")
		}
	case plumbing.REFDeltaObject:
		x.ofHash[header.Reference] = append(x.ofHash[header.Reference], at)
	case plumbing.CommitObject, plumbing.TreeObject, plumbing.BlobObject, plumbing.TagObject:
		hasher = plumbing.NewHasher(header.Type, header.Length)
		content, e.size = hasher, header.Length
	default:
		return fmt.Errorf("the object has the unknown type %d", header.Type)
	}
	n, _, err := scanner.NextObject(&interruptible{x.ctx, content})
	if err == nil && n != header.Length {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	x.pack.entries = append(x.pack.entries, e)
	if e.size >= 0 {
		x.pack.byHash[hasher.Sum()] = at
	}
	return nil
}

// interruptible is a writer that fails once its context is done.
type interruptible struct {
	ctx context.Context
	to  io.Writer
}

func (w *interruptible) Write(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.to.Write(p)
}

// find returns the entry at an offset, or -1.
func (x *indexer) find(offset int64) int32 {
	at, found := slices.BinarySearchFunc(x.pack.entries, offset, func(e entry, offset int64) int {
		return int(min(max(e.offset-offset, -1), 1))
	})
	if !found {
		return -1
	}
	return int32(at)
}

// open returns a reader of the content of an entry: an object, or a delta.
func (p *pack) open(e entry) (io.ReadCloser, error) {
	scanner := packfile.NewScanner(io.NewSectionReader(p.file, 0, 1<<62))
	if _, err := scanner.SeekObjectHeader(e.offset); err != nil {
		return nil, err
	}
	return scanner.ReadObject()
}

// inflate returns the content of an entry: an object, or a delta.
func (p *pack) inflate(e entry) ([]byte, error) {
	reader, err := p.open(e)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	content := bytes.NewBuffer(make([]byte, 0, e.length+bytes.MinRead))
	if _, err := content.ReadFrom(reader); err != nil {
		return nil, err
	}
	if int64(content.Len()) != e.length {
		return nil, io.ErrUnexpectedEOF
	}
	return content.Bytes(), nil
}

// stat returns the type and size of an object. It returns errAbsent if the pack does not contain the object.
func (p *pack) stat(hash plumbing.Hash) (plumbing.ObjectType, int64, error) {
	at, found := p.byHash[hash]
	if !found {
		return plumbing.InvalidObject, 0, errAbsent
	}
	e := p.entries[at]
	for e.base >= 0 {
		e.kind = p.entries[e.base].kind
		e.base = p.entries[e.base].base
	}
	return e.kind, e.size, nil
}

// read returns the content of an object of a type and of at most max bytes.
func (p *pack) read(hash plumbing.Hash, kind plumbing.ObjectType, max int64) ([]byte, error) {
	is, size, err := p.stat(hash)
	switch {
	case err != nil:
		return nil, err
	case is != kind:
		return nil, fmt.Errorf("the object is a %s and not a %s", is, kind)
	case size > max:
		return nil, fmt.Errorf("the %s has %d bytes, more than the allowed %d", kind, size, max)
	}
	chain := []int32{p.byHash[hash]}
	for base := p.entries[chain[0]].base; base >= 0; base = p.entries[base].base {
		chain = append(chain, base)
	}
	content, err := p.inflate(p.entries[chain[len(chain)-1]])
	for _, at := range slices.Backward(chain[:len(chain)-1]) {
		if err != nil {
			return nil, err
		}
		var delta []byte
		if delta, err = p.inflate(p.entries[at]); err == nil {
			content, err = applyDelta(content, delta, p.entries[at].size)
		}
	}
	return content, err
}
