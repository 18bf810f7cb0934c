package git

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
)

// request asks for a pack with a commit.
type request struct {
	want  plumbing.Hash
	depth int // how many commits, or 0 for all
	// maxBlob omits larger files, in bytes, if the server can do so.
	maxBlob int64
	offer   *advertisement
}

// firstOf returns the first capability that the server has, or "".
func (r *request) firstOf(capabilities ...string) string {
	for _, c := range capabilities {
		if r.offer.supports(c) {
			return c
		}
	}
	return ""
}

// filters reports whether the server omits large files.
func (r *request) filters() bool { return r.maxBlob > 0 && r.offer.supports("filter") }

// shallow reports whether the server sends the last commits only.
func (r *request) shallow() bool { return r.depth > 0 && r.offer.supports("shallow") }

// isAlone reports whether the server sends a commit without its history.
func (r *request) isAlone() bool { return r.depth == 1 && r.shallow() }

// besides adds ErrBesides to an error if history may have exceeded a limit.
func (r *request) besides(err error) error {
	if failed, ok := errors.AsType[*Error](err); ok && failed.Reason == LimitExceeded && !r.isAlone() {
		return failed.Because(ErrBesides)
	}
	return err
}

// encode returns the request in Git's protocol.
func (r *request) encode() []byte {
	capabilities := []string{}
	for _, c := range []string{
		r.firstOf("multi_ack_detailed", "multi_ack"), // nothing is negotiated, but Azure DevOps demands one of them
		"side-band-64k", // which git has since 2006, so the answer has no other form
		r.firstOf("ofs-delta"),
		r.firstOf("no-progress"),
	} {
		if c != "" {
			capabilities = append(capabilities, c)
		}
	}
	if r.filters() {
		capabilities = append(capabilities, "filter")
	}
	var out bytes.Buffer
	packets := pktline.NewEncoder(&out)
	lines := []string{strings.TrimSpace(fmt.Sprintf("want %s %s", r.want, strings.Join(capabilities, " ")))}
	if r.shallow() {
		lines = append(lines, fmt.Sprintf("deepen %d", r.depth))
	}
	if r.filters() {
		lines = append(lines, fmt.Sprintf("filter blob:limit=%d", r.maxBlob+1))
	}
	for _, line := range lines {
		// Writes to a bytes.Buffer do not fail, and no line is too long for a packet.
		_ = packets.Encode([]byte(line + "\n"))
	}
	_ = packets.Flush()
	_ = packets.Encode([]byte("done\n"))
	return out.Bytes()
}

// decode reads the answer up to the pack, and returns a reader of the pack.
func (r *request) decode(answer io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(answer, 64<<10)
	lines := pktline.NewScanner(buffered)
	inShallow := r.shallow()
	for lines.Scan() {
		line := lines.Bytes()
		switch {
		case len(line) == 0 && inShallow:
			inShallow = false
		case bytes.HasPrefix(line, []byte("shallow ")) || bytes.HasPrefix(line, []byte("unshallow ")):
		case bytes.HasPrefix(line, []byte("ACK ")) && hasStatus(line):
		case bytes.HasPrefix(line, []byte("ACK ")) || bytes.HasPrefix(line, []byte("NAK")):
			return sideband.NewDemuxer(sideband.Sideband64k, buffered), nil
		default:
			return nil, errNotGit
		}
	}
	return nil, errOf(lines, io.ErrUnexpectedEOF)
}

// hasStatus reports whether an ACK is an intermediate one of multi_ack, after which others follow.
func hasStatus(line []byte) bool { return len(bytes.Fields(line)) > 2 }
