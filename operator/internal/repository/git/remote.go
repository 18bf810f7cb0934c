package git

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"

	"nstpl.dev/nstpl/operator/engine/files"
)

// Options describe a remote repository.
type Options struct {
	// URL is the address of the repository: https://HOST/PATH or ssh://USER@HOST/PATH.
	URL       string
	Reference Reference
	// Secret is the data of a Secret with the keys of Flux, or nil: username and password, or bearerToken, and ca.crt
	// for https; identity, known_hosts, and password as the passphrase of identity, for ssh.
	Secret map[string][]byte
	// Dir is the directory for fetched commits, which belongs to this Remote alone. It is created if it does not exist.
	Dir string
	// Kept is a commit that stays stored, if it is, as after Remote.Keep. It may be empty.
	Kept string
	// Wait waits until a fetched commit may be read, which needs memory. nil does not wait. The download does not wait.
	Wait func(context.Context) error
}

// Remote is a repository on a server. It must be used by one goroutine at a time; Commits may be used by many.
type Remote struct {
	address   *address
	reference Reference
	transport transport
	store     *store
	limits    limits
	kept      string // a commit that stays stored
}

// New returns a Remote. It sends no request. It removes from the directory what a killed process left unfinished.
func New(o Options) (*Remote, error) {
	a, err := parseAddress(o.URL)
	if err != nil {
		return nil, err
	}
	if err := o.Reference.check(); err != nil {
		return nil, err
	}
	c, err := parseCredentials(a, o.Secret)
	if err != nil {
		return nil, err
	}
	r := &Remote{address: a, reference: o.Reference, limits: defaultLimits(), kept: o.Kept}
	if r.store, err = openStore(o.Dir, r.limits); err != nil {
		return nil, err
	}
	if o.Wait != nil {
		r.store.wait = o.Wait
	}
	if a.scheme == "ssh" {
		r.transport, err = newSSHTransport(a, c, o.Dir)
	} else {
		r.transport = newHTTPSTransport(a, c)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Close closes idle connections. Fetched commits stay in the directory.
func (r *Remote) Close() { r.transport.close() }

// Resolve returns the hash of the commit that the reference points to now. It costs one request for the list of
// references. A reference to a commit is its own answer, without a request.
func (r *Remote) Resolve(ctx context.Context) (string, error) {
	if r.reference.Commit != "" {
		return r.reference.Commit, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	l, offer, err := r.open(ctx, plumbing.ZeroHash)
	if err != nil {
		return "", err
	}
	l.close()
	if err := r.checkTip(offer); err != nil {
		return "", err
	}
	return offer.tip.String(), nil
}

// checkTip reports whether the reference exists.
func (r *Remote) checkTip(offer *advertisement) error {
	switch {
	case offer.references == 0:
		return failf(NotFound, "%s is empty: push a commit", r.address)
	case offer.tip.IsZero():
		return failf(NotFound, "%s does not have the %s", r.address, r.reference)
	}
	return nil
}

// open connects to the server and reads the list of references.
func (r *Remote) open(ctx context.Context, commit plumbing.Hash) (link, *advertisement, error) {
	l, err := r.transport.connect(ctx)
	if err != nil {
		return nil, nil, r.address.explain(ctx, err, "")
	}
	name := ""
	if r.reference.Commit == "" {
		name = r.reference.name()
	}
	tooLong := failf(LimitExceeded, "%s lists its references in more than %s", r.address, size(r.limits.advertisement)).
		Because(ErrBesides)
	offer, err := readAdvertisement(files.Bounded(ctx, l.references(), r.limits.advertisement, tooLong), name, commit)
	if err != nil {
		err = r.explain(ctx, l, err)
		l.close()
		return nil, nil, err
	}
	return l, offer, nil
}

// explain explains why an answer ended too early or is not in the protocol of Git.
func (r *Remote) explain(ctx context.Context, l link, err error) error {
	message := ""
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		message = l.message()
	}
	return r.address.explain(ctx, err, message)
}

// Keep makes a commit stay in the directory until Keep is called with another one, so that the commit that is in force
// survives the fetch of one that is not accepted. It removes all other commits. "" removes all.
func (r *Remote) Keep(commit string) error {
	r.kept = commit
	return r.store.keepOnly(commit)
}

// Fetch returns a commit. It downloads the commit without its history, unless it is stored already. Of the commits that
// were fetched before, only the kept one stays stored.
//
// Some servers send commits by their hash only if a branch or tag points to them. If one does not any more, Fetch
// downloads the last 100 commits of the branch or tag instead. For a reference to a commit, Fetch downloads the whole
// history of the default branch, within a limit of its size.
func (r *Remote) Fetch(ctx context.Context, commit string) (*Commit, error) {
	if !fullHash.MatchString(commit) {
		return nil, failf(InvalidConfiguration, "%q is not a commit", printable(commit, 64))
	}
	if stored, err := r.store.load(ctx, commit); stored != nil || err != nil {
		return stored, err
	}
	// At most the kept commit and the new one use space.
	if err := r.store.keepOnly(r.kept); err != nil {
		return nil, err
	}
	hash := plumbing.NewHash(commit)
	network, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	l, offer, err := r.open(network, hash)
	if err != nil {
		return nil, err
	}
	defer func() { l.close() }()
	q := &request{want: hash, depth: 1, maxBlob: r.limits.tree.File, offer: offer}
	switch {
	case offer.sendsAnyCommit():
	case !offer.want.IsZero():
		q.want = offer.want
	default:
		if err := r.requestHistory(q); err != nil {
			return nil, err
		}
	}
	file, err := r.download(network, l, q, hash)
	if err != nil {
		return nil, q.besides(r.explain(network, l, err))
	}
	fetched, err := r.receive(ctx, file, q, hash)
	if err != nil {
		discard(file)
		return nil, q.besides(r.explain(ctx, l, err))
	}
	return fetched, nil
}

// discard closes and removes an unfinished file.
func discard(file *os.File) {
	file.Close()
	os.Remove(file.Name())
}

// requestHistory requests the history that should contain a commit, which cannot be requested alone.
func (r *Remote) requestHistory(q *request) error {
	if r.reference.Commit == "" {
		q.want, q.depth = q.offer.tip, branchHistory
		return r.checkTip(q.offer)
	}
	q.want, q.depth = q.offer.head, 0
	if q.offer.references == 0 {
		return failf(NotFound, "%s is empty: push a commit", r.address)
	}
	if q.offer.head.IsZero() {
		return r.notSent()
	}
	return nil
}

// notSent returns the error for a commit that the server does not send.
func (r *Remote) notSent() error {
	if r.reference.Commit != "" {
		return failf(NotFound, "%s does not send the commit %s, which is not in the history of the default branch: "+
			"use a tag or a branch", r.address, r.reference.Commit)
	}
	return failf(NotFound, "the commit is no longer one of the last %d of the %s of %s", branchHistory, r.reference,
		r.address)
}

// download sends a request and returns a file with the answer.
func (r *Remote) download(ctx context.Context, l link, q *request, commit plumbing.Hash) (*os.File, error) {
	answer, err := l.request(ctx, q.encode())
	if err != nil {
		return nil, err
	}
	stream, err := q.decode(answer)
	if err != nil {
		if line, ok := errors.AsType[*pktline.ErrorLine](err); ok && q.want == commit {
			return nil, failf(NotFound, "%s does not send the commit %s: the server says: %s",
				r.address, commit, firstLine(line.Text)).Because(err)
		}
		return nil, err
	}
	file, err := r.store.create()
	if err != nil {
		return nil, err
	}
	tooLarge := failf(LimitExceeded, "the commit of %s has more than %s in compressed form: "+
		"keep policies in a repository of their own", r.address, size(r.limits.pack))
	if _, err := io.Copy(&diskWriter{file}, files.Bounded(ctx, stream, r.limits.pack, tooLarge)); err != nil {
		discard(file)
		return nil, err
	}
	return file, nil
}

// receive finds a commit in a file with a pack, and stores the file.
func (r *Remote) receive(ctx context.Context, file *os.File, q *request, commit plumbing.Hash) (*Commit, error) {
	if err := r.store.wait(ctx); err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, storageFailed(err)
	}
	fetched, err := readCommit(ctx, file, file, commit, r.limits)
	if errors.Is(err, errAbsent) && q.want != commit {
		return nil, r.notSent()
	}
	if err != nil {
		return nil, err
	}
	return fetched, r.store.finish(file, commit.String())
}

// diskWriter tells errors of the disk from those of the server.
type diskWriter struct{ file *os.File }

func (w *diskWriter) Write(p []byte) (int, error) {
	n, err := w.file.Write(p)
	if err != nil {
		err = storageFailed(err)
	}
	return n, err
}
