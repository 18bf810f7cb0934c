package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// Commit is a fetched commit. It is safe for concurrent use. Its files can be read until Close is called.
type Commit struct {
	// Hash is the name of the commit object: 40 hexadecimal digits.
	Hash string
	// Author is the name of the author, and their email address in angle brackets.
	Author string
	// When is the time of the commit, which the committer chose.
	When time.Time
	// Subject is the first line of the message, without control characters and of at most 72 characters.
	Subject string

	raw     []byte // the commit object
	tree    plumbing.Hash
	file    *os.File
	objects *pack
	limits  limits
}

// Close closes the file of the commit, which stays stored.
func (c *Commit) Close() error { return c.file.Close() }

// readCommit reads a commit from a pack: a stream of the content that the file has afterwards.
func readCommit(
	ctx context.Context, stream io.Reader, file *os.File, hash plumbing.Hash, l limits,
) (*Commit, error) {
	objects, err := indexPack(ctx, stream, file, l)
	if err != nil {
		return nil, err
	}
	e, err := objects.stat(hash)
	switch {
	case err != nil:
		return nil, err
	case e.kind != plumbing.CommitObject:
		return nil, failf(InvalidContent, "the object %s is a %s and not a commit", hash, e.kind)
	case e.size > l.commit:
		return nil, failf(LimitExceeded, "the commit object %s has %d bytes, more than the allowed %d", hash, e.size,
			l.commit)
	}
	raw, err := objects.read(hash, plumbing.CommitObject, l.commit)
	if err != nil {
		return nil, err
	}
	commit, err := parseCommit(raw)
	if err != nil {
		return nil, failf(InvalidContent, "the commit object %s is malformed", hash).Because(err)
	}
	commit.Hash, commit.file, commit.objects, commit.limits = hash.String(), file, objects, l
	return commit, nil
}

var (
	treeLine = regexp.MustCompile(`^tree ([0-9a-f]{40})$`)
	// identity matches a name, an email address, a time in seconds and a time zone.
	identity = regexp.MustCompile(`^(.*) ?<([^<>]*)> (-?\d{1,18}) [+-]\d{4}$`)
)

// maxAuthor and maxSubject are numbers of characters.
const (
	maxAuthor  = 100
	maxSubject = 72
)

func parseCommit(raw []byte) (*Commit, error) {
	c := &Commit{raw: raw}
	headers, message, _ := bytes.Cut(raw, []byte("\n\n"))
	authors, committers := 0, 0
	for i, line := range strings.Split(strings.TrimSuffix(string(headers), "\n"), "\n") {
		key, value, _ := strings.Cut(line, " ")
		switch {
		case i == 0:
			tree := treeLine.FindStringSubmatch(line)
			if tree == nil {
				return nil, errors.New("the first line is not a tree")
			}
			c.tree = plumbing.NewHash(tree[1])
		case key == "tree":
			return nil, errors.New("there are two trees")
		case key == "author":
			authors++
			c.Author, _ = parseIdentity(value)
		case key == "committer":
			committers++
			_, c.When = parseIdentity(value)
		}
	}
	if authors != 1 || committers != 1 {
		return nil, fmt.Errorf("there are %d authors and %d committers", authors, committers)
	}
	subject, _, _ := strings.Cut(strings.TrimLeft(string(message), "\r\n"), "\n")
	c.Subject = printable(subject, maxSubject)
	return c, nil
}

// parseIdentity returns the name with the email address, and the time. It accepts everything, because the identities of
// old commits are often malformed.
func parseIdentity(text string) (string, time.Time) {
	parts := identity.FindStringSubmatch(text)
	if parts == nil {
		return printable(text, maxAuthor), time.Time{}
	}
	seconds, _ := strconv.ParseInt(parts[3], 10, 64)
	at := time.Unix(seconds, 0).UTC()
	if at.Year() < 0 || at.Year() > 9999 { // such as milliseconds; RFC 3339 has no such years
		at = time.Time{}
	}
	who := strings.TrimSpace(parts[1]) + " <" + parts[2] + ">"
	return printable(strings.TrimSpace(who), maxAuthor), at
}
