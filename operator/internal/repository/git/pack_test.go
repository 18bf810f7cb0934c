package git

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/stretchr/testify/require"
)

// object is an object of a pack that a test makes.
type object struct {
	kind    plumbing.ObjectType
	content []byte
	base    int           // of a delta by offset: the index of its base
	hash    plumbing.Hash // of a delta by hash
	declare int64         // the declared length, if it is not that of the content
}

// makePack returns a pack.
func makePack(t testing.TB, objects ...object) []byte {
	t.Helper()
	var out bytes.Buffer
	out.WriteString("PACK\x00\x00\x00\x02")
	require.NoError(t, binary.Write(&out, binary.BigEndian, uint32(len(objects))))
	var offsets []int
	w := zlib.NewWriter(&out)
	for _, o := range objects {
		at := out.Len()
		offsets = append(offsets, at)
		length := int64(len(o.content))
		if o.declare != 0 {
			length = o.declare
		}
		b := byte(o.kind)<<4 | byte(length&15)
		for length >>= 4; length > 0; length >>= 7 {
			out.WriteByte(b | 0x80)
			b = byte(length & 0x7f)
		}
		out.WriteByte(b)
		switch o.kind {
		case plumbing.OFSDeltaObject:
			distance := at - offsets[o.base]
			encoded := []byte{byte(distance & 0x7f)}
			for distance >>= 7; distance > 0; distance >>= 7 {
				distance--
				encoded = append([]byte{byte(distance&0x7f) | 0x80}, encoded...)
			}
			out.Write(encoded)
		case plumbing.REFDeltaObject:
			out.Write(o.hash[:])
		default:
		}
		w.Reset(&out)
		_, err := w.Write(o.content)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	sum := sha1.Sum(out.Bytes())
	return append(out.Bytes(), sum[:]...)
}

// delta returns a delta that copies the beginning of the base several times, and then adds text.
func delta(base, copied, times int, added string) []byte {
	out := binary.AppendUvarint(nil, uint64(base))
	out = binary.AppendUvarint(out, uint64(copied*times+len(added)))
	for range times {
		out = append(out, 0x80|0x10|0x20|0x40, byte(copied), byte(copied>>8), byte(copied>>16))
	}
	if added != "" {
		out = append(append(out, byte(len(added))), added...)
	}
	return out
}

func index(content []byte, l limits) (*pack, error) {
	return indexPack(context.Background(), bytes.NewReader(content), bytes.NewReader(content), l)
}

func TestPack(t *testing.T) {
	t.Parallel()
	base := bytes.Repeat([]byte("0123456789"), 10)
	blob := func(content string) plumbing.Hash { return plumbing.ComputeHash(plumbing.BlobObject, []byte(content)) }
	first, second := string(base)+"a", string(base)+"ab"
	content := makePack(t,
		object{kind: plumbing.REFDeltaObject, content: delta(101, 101, 1, "b"), hash: blob(first)}, // before its base
		object{kind: plumbing.BlobObject, content: base},
		object{kind: plumbing.OFSDeltaObject, content: delta(100, 100, 1, "a"), base: 1},
		object{kind: plumbing.OFSDeltaObject, content: delta(100, 0, 0, ""), base: 1},
		object{kind: plumbing.REFDeltaObject, content: delta(100, 100, 1, "c"), hash: blob(string(base))},
		object{kind: plumbing.BlobObject, content: base}, // twice
		object{kind: plumbing.BlobObject},
	)
	p, err := index(content, defaultLimits())
	require.NoError(t, err)
	for _, want := range []string{string(base), first, second, string(base) + "c", ""} {
		got, err := p.read(blob(want), plumbing.BlobObject, 1000)
		require.NoError(t, err, want)
		require.Equal(t, want, string(got))
	}
	_, err = p.read(blob(first), plumbing.TreeObject, 1000)
	require.EqualError(t, err, "the object is a blob and not a tree")
	_, err = p.read(blob(first), plumbing.BlobObject, 100)
	require.EqualError(t, err, "the blob has 101 bytes, more than the allowed 100")
	_, err = p.read(blob("x"), plumbing.BlobObject, 100)
	require.ErrorIs(t, err, errAbsent)
}

// Deltas multiply: each of these is a few bytes, and copies its base a hundred times.
func TestPackBombs(t *testing.T) {
	t.Parallel()
	small := limits{inflated: 64 << 20, objects: 5000, deltaObject: 1 << 20, deltaMemory: 4 << 20}
	base := bytes.Repeat([]byte("x"), 1000)
	bomb := []object{{kind: plumbing.BlobObject, content: base}}
	size := len(base)
	for i := range 5 {
		bomb = append(bomb, object{kind: plumbing.OFSDeltaObject, content: delta(size, size, 100, ""), base: i})
		size *= 100
	}
	chain := []object{{kind: plumbing.BlobObject, content: base}}
	for i := range maxDeltaChain + 2 {
		chain = append(chain, object{kind: plumbing.OFSDeltaObject, content: delta(1000+i, 1000+i, 1, "y"), base: i})
	}
	wide := []object{{kind: plumbing.BlobObject, content: bytes.Repeat([]byte("x"), 1<<20)}}
	for i := range 200 {
		wide = append(wide,
			object{kind: plumbing.OFSDeltaObject, content: delta(1<<20, 1<<20-1, 1, string(rune('a'+i%26))+"")})
	}
	tests := map[string]struct {
		objects []object
		err     string // or none, and the pack is partial
	}{
		"deltas that multiply": {bomb, ""},
		"a chain without end":  {chain, "a delta is invalid"},
		"much in all":          {wide, "expand to more than 64 MiB"},
		"too many objects":     {make([]object, 5001), "needs 5001 objects, more than the allowed 5000"},
		"a length without a content": {
			[]object{{kind: plumbing.BlobObject, declare: 1 << 40}}, "expand to more than 64 MiB",
		},
		"a length that is too long": {[]object{{kind: plumbing.BlobObject, declare: 1 << 20}}, "unexpected EOF"},
		"a length that is too short": {
			[]object{{kind: plumbing.BlobObject, content: base, declare: 10}}, "inflated object exceeds declared size",
		},
		"an unknown type": {[]object{{kind: 5, content: base}}, "unknown type 5"},
		"no base": {
			[]object{{kind: plumbing.REFDeltaObject, content: delta(1, 1, 1, "")}}, "that it does not contain",
		},
		"its own base": {
			[]object{{kind: plumbing.OFSDeltaObject, content: delta(1, 1, 1, "")}}, "invalid OFS delta offset",
		},
		"a delta of another base": {
			[]object{
				{kind: plumbing.BlobObject, content: base},
				{kind: plumbing.OFSDeltaObject, content: delta(7, 7, 1, "")},
			},
			"a delta is invalid",
		},
		"a delta that copies too much": {
			[]object{
				{kind: plumbing.BlobObject, content: base},
				{kind: plumbing.OFSDeltaObject, content: delta(1000, 2000, 1, "")},
			},
			"a delta is invalid",
		},
		"an empty delta": {
			[]object{{kind: plumbing.BlobObject, content: base}, {kind: plumbing.OFSDeltaObject}}, "a delta is invalid",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := index(makePack(t, test.objects...), small)
			if test.err == "" {
				require.NoError(t, err)
				require.True(t, p.partial)
				require.Len(t, p.byHash, 2, "the objects that fit")
			} else {
				require.ErrorContains(t, err, test.err)
			}
		})
	}
	t.Run("a checksum that is wrong", func(t *testing.T) {
		content := makePack(t, object{kind: plumbing.BlobObject, content: base})
		content[len(content)-1] ^= 1
		_, err := index(content, small)
		require.ErrorContains(t, err, "checksum mismatch")
	})
}

func FuzzPack(f *testing.F) {
	base := bytes.Repeat([]byte("0123456789"), 10)
	f.Add(makePack(f,
		object{kind: plumbing.BlobObject, content: base},
		object{kind: plumbing.OFSDeltaObject, content: delta(100, 100, 1, "a")},
		object{kind: plumbing.REFDeltaObject, content: delta(100, 100, 3, "b"),
			hash: plumbing.ComputeHash(plumbing.BlobObject, base)},
	))
	f.Add(makePack(f))
	f.Fuzz(func(t *testing.T, content []byte) {
		small := limits{inflated: 1 << 20, objects: 100, deltaObject: 1 << 16, deltaMemory: 1 << 18}
		p, err := index(content, small)
		if err != nil {
			return
		}
		for hash, at := range p.byHash {
			e, err := p.stat(hash)
			if err != nil {
				t.Fatal(err)
			}
			if e.size > small.deltaObject && p.entries[at].base >= 0 {
				t.Fatalf("a delta makes an object of %d bytes", e.size)
			}
			content, err := p.read(hash, e.kind, 1<<20)
			if err != nil || plumbing.ComputeHash(e.kind, content) != hash {
				t.Fatalf("the object %s is another one: %v", hash, err)
			}
		}
	})
}
