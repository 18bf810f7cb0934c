package git

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
)

// advertisement is what a server says about a repository at the beginning, reduced to what is asked for.
type advertisement struct {
	capabilities []string
	references   int           // how many references the repository has
	tip          plumbing.Hash // of the reference that was asked for; that of the commit, if it is an annotated tag
	head         plumbing.Hash
	// want is what can be requested to get the commit that was asked for: the commit itself if a reference names it, or
	// an annotated tag that points to it. It is zero if there is neither.
	want plumbing.Hash
	tag  plumbing.Hash // of the last reference that was read
}

// peeledSuffix follows the name of an annotated tag in the line that names its commit.
const peeledSuffix = "^{}"

var sha256Hash = regexp.MustCompile(`^[0-9a-f]{64}$`)

// errNotGit means that an answer is not in Git's protocol.
var errNotGit = errors.New("the answer is not in the protocol of Git")

// readAdvertisement reads a list of references, of any length, to its end, and keeps what concerns a reference and a
// commit. Both may be empty.
func readAdvertisement(r io.Reader, reference string, commit plumbing.Hash) (*advertisement, error) {
	a := &advertisement{}
	lines := pktline.NewScanner(r)
	first, service := true, false
	for lines.Scan() {
		line := lines.Bytes()
		switch {
		case first && !service && bytes.HasPrefix(line, []byte("# service=")):
			service = true
			if !lines.Scan() || len(lines.Bytes()) != 0 {
				return nil, errOf(lines, errNotGit)
			}
		case len(line) == 0:
			return a, nil
		case first:
			first = false
			head, capabilities, found := bytes.Cut(line, []byte{0})
			if found {
				a.capabilities = strings.Fields(string(capabilities))
			}
			if err := a.add(head, reference, commit); err != nil {
				return nil, err
			}
		case bytes.HasPrefix(line, []byte("shallow ")):
		default:
			if err := a.add(line, reference, commit); err != nil {
				return nil, err
			}
		}
	}
	return nil, errOf(lines, io.ErrUnexpectedEOF)
}

// errOf returns the error of a scanner, or another if it has none.
func errOf(lines *pktline.Scanner, other error) error {
	if err := lines.Err(); err != nil {
		return err
	}
	return other
}

// add reads a line with a hash and the name of a reference.
func (a *advertisement) add(line []byte, reference string, commit plumbing.Hash) error {
	hash, name, found := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
	switch {
	case sha256Hash.MatchString(hash):
		return failf(InvalidConfiguration, "the repository names its objects by SHA-256, which is not supported: "+
			"use a repository with SHA-1")
	case !found || name == "" || !fullHash.MatchString(hash):
		return errNotGit
	}
	at := plumbing.NewHash(hash)
	if at.IsZero() {
		return nil // an empty repository advertises its capabilities this way
	}
	a.references++
	if name == "HEAD" {
		a.head = at
	}
	if name == reference || name == reference+peeledSuffix {
		a.tip = at
	}
	isPeeled := strings.HasSuffix(name, peeledSuffix)
	switch {
	case at != commit:
	case !isPeeled:
		a.want = at
	case a.want.IsZero():
		a.want = a.tag
	}
	if !isPeeled {
		a.tag = at // an annotated tag is followed by the commit that it points to
	}
	return nil
}

func (a *advertisement) supports(capability string) bool {
	return slices.Contains(a.capabilities, capability)
}

// sendsAnyCommit reports whether a commit can be requested that no reference points to.
func (a *advertisement) sendsAnyCommit() bool {
	return a.supports("allow-reachable-sha1-in-want") || a.supports("allow-any-sha1-in-want")
}
