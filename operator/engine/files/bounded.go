package files

import (
	"context"
	"io"
)

// Bounded returns a reader of r that fails with tooLong after n bytes, and with the context's error once that is done.
func Bounded(ctx context.Context, r io.Reader, n int64, tooLong error) io.Reader {
	return &bounded{ctx: ctx, from: r, left: n, tooLong: tooLong}
}

type bounded struct {
	ctx     context.Context
	from    io.Reader
	left    int64 // -1 after the limit
	tooLong error
}

func (b *bounded) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if b.left < 0 {
		return 0, b.tooLong
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.from.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, b.tooLong
	}
	return n, err
}
