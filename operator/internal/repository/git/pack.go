package git

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	gozlib "github.com/go-git/go-git/v5/utils/sync"

	"nstpl.dev/nstpl/operator/engine/files"
)

// entry is an object of a pack.
type entry struct {
	offset int64
	length int64 // of the object, or of the delta
	size   int64 // of the object, once it is known
	base   int32 // the entry that a delta changes, or -1
	kind   plumbing.ObjectType
	isLFS  bool // whether it is a pointer of Git LFS
}

// pack finds objects in a file with a pack. Only objects whose content was hashed can be found. It is safe for
// concurrent use, if the file is.
type pack struct {
	file    io.ReaderAt
	entries []entry // by offset
	byHash  map[plumbing.Hash]int32
	// partial reports whether some deltas were left out because they need too much memory.
	partial bool
	cache   cache
}

// errAbsent means that a pack does not contain an object.
var errAbsent = errors.New("the object is not in the pack")

// indexPack reads a pack from a stream, whose bytes are those of the file, up to its checksum. Every object is
// decompressed and hashed once, in constant memory, except for deltas and their bases.
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
	hashes map[int32]plumbing.Hash // of objects that are not deltas, if any delta names its base by its hash
}

func (x *indexer) spend(bytes int64) error {
	if x.budget -= bytes; bytes < 0 || x.budget < 0 {
		return failf(LimitExceeded, "the files of the repository expand to more than %s: "+
			"keep policies in a repository of their own", size(x.limits.inflated))
	}
	return x.ctx.Err()
}

// scan reads all objects, and hashes those that are not deltas.
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
	var start beginning
	switch header.Type {
	case plumbing.OFSDeltaObject:
		if e.base = x.find(header.OffsetReference); e.base < 0 {
			return errors.New("a delta has no base")
		}
	case plumbing.REFDeltaObject:
		x.ofHash[header.Reference] = append(x.ofHash[header.Reference], at)
	case plumbing.CommitObject, plumbing.TreeObject, plumbing.BlobObject, plumbing.TagObject:
		hasher = plumbing.NewHasher(header.Type, header.Length)
		content, e.size = io.MultiWriter(hasher, &start), header.Length
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
	e.isLFS = files.IsPointer(start.content, e.size)
	x.pack.entries = append(x.pack.entries, e)
	if e.size >= 0 {
		x.pack.byHash[hasher.Sum()] = at
	}
	return nil
}

// beginning is a writer that keeps the first bytes.
type beginning struct{ content []byte }

func (b *beginning) Write(p []byte) (int, error) {
	b.content = append(b.content, p[:min(len(p), files.MaxPointer-len(b.content))]...)
	return len(p), nil
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

// maxHeader is more than the bytes of an entry before its compressed content.
const maxHeader = 64

// inflate returns the content of an entry: an object, or a delta.
func (p *pack) inflate(e entry) ([]byte, error) {
	var header [maxHeader]byte
	n, err := p.file.ReadAt(header[:], e.offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	// The header has a number with the type and the length, and the base of a delta: a number or a hash.
	skip := afterNumber(header[:n])
	switch e.kind {
	case plumbing.OFSDeltaObject:
		skip += afterNumber(header[min(skip, n):n])
	case plumbing.REFDeltaObject:
		skip += len(plumbing.Hash{})
	default:
	}
	buffered := bufio.NewReaderSize(io.NewSectionReader(p.file, e.offset+int64(skip), math.MaxInt64-e.offset-maxHeader),
		int(min(e.length+maxHeader, 32<<10)))
	reader, err := gozlib.GetZlibReader(buffered)
	if err != nil {
		return nil, err
	}
	defer gozlib.PutZlibReader(reader)
	content := make([]byte, e.length)
	_, err = io.ReadFull(reader.Reader, content)
	return content, err
}

// afterNumber returns how many bytes a number has: the last is the first without the highest bit.
func afterNumber(header []byte) int {
	for i, b := range header {
		if b&0x80 == 0 {
			return i + 1
		}
	}
	return len(header)
}

// stat describes an object: its type is not that of a delta. It returns errAbsent if the pack does not contain the
// object.
func (p *pack) stat(hash plumbing.Hash) (entry, error) {
	at, found := p.byHash[hash]
	if !found {
		return entry{}, errAbsent
	}
	e := p.entries[at]
	for e.base >= 0 {
		e.kind, e.base = p.entries[e.base].kind, p.entries[e.base].base
	}
	return e, nil
}

// read returns the content of an object of a type and of at most limit bytes. The caller must not change it.
func (p *pack) read(hash plumbing.Hash, kind plumbing.ObjectType, limit int64) ([]byte, error) {
	e, err := p.stat(hash)
	switch {
	case err != nil:
		return nil, err
	case e.kind != kind:
		return nil, fmt.Errorf("the object is a %s and not a %s", e.kind, kind)
	case e.size > limit:
		return nil, fmt.Errorf("the %s has %d bytes, more than the allowed %d", kind, e.size, limit)
	}
	return p.content(p.byHash[hash])
}

// content returns the content of an object, which the caller must not change.
func (p *pack) content(at int32) ([]byte, error) {
	var chain []int32
	content, found := p.cache.get(at)
	for !found {
		chain = append(chain, at)
		if p.entries[at].base < 0 {
			break
		}
		at = p.entries[at].base
		content, found = p.cache.get(at)
	}
	for _, at := range slices.Backward(chain) {
		e := p.entries[at]
		inflated, err := p.inflate(e)
		if err == nil && e.base >= 0 {
			inflated, err = applyDelta(content, inflated, e.size)
		}
		if err != nil {
			return nil, err
		}
		content = inflated
		p.cache.put(at, content)
	}
	return content, nil
}

// cache keeps the contents of small objects, because those that were read last are often the bases of the next ones.
type cache struct {
	lock     sync.Mutex
	contents map[int32][]byte
	bytes    int
}

// maxCached is the size of an object, and maxCache that of all objects, in bytes.
const (
	maxCached = 64 << 10
	maxCache  = 4 << 20
)

func (c *cache) get(at int32) ([]byte, bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	content, found := c.contents[at]
	return content, found
}

func (c *cache) put(at int32, content []byte) {
	if len(content) > maxCached {
		return
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.bytes += len(content); c.contents == nil || c.bytes > maxCache {
		c.contents, c.bytes = map[int32][]byte{}, len(content)
	}
	c.contents[at] = content
}
