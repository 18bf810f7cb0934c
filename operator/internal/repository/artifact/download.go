package artifact

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"time"

	"nstpl.dev/nstpl/operator/engine/files"
)

// limits bounds what a server, or the author of an artifact, can make a download use. All sizes are in bytes.
type limits struct {
	time     time.Duration // a download
	download int64         // an artifact, which is compressed and held in memory
	unpacked int64         // all of an artifact after decompression, with what is not below the path
	entries  int           // files, directories and others in an artifact
	tree     files.Limits
}

func defaultLimits() limits {
	return limits{
		time: time.Minute, download: 64 << 20, unpacked: 1 << 30, entries: 500_000, tree: files.DefaultLimits(),
	}
}

// Client downloads artifacts. It is safe for concurrent use.
type Client struct {
	http   *http.Client
	limits limits
}

// NewClient returns a Client. It uses no proxy, because artifacts are served in the cluster.
func NewClient() *Client {
	return &Client{limits: defaultLimits(), http: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect },
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    15 * time.Second,
			ResponseHeaderTimeout:  30 * time.Second,
			MaxResponseHeaderBytes: 1 << 20,
			DisableCompression:     true, // the digest is that of the file as it is stored
			DisableKeepAlives:      true,
		},
	}}
}

// errRedirect means that a server redirects, to where the author of the object could not have had a request sent.
var errRedirect = errors.New("redirects are not followed")

// Download returns the directory at a path of the artifact, such as foo-corp, or its root for "" and ".". Symbolic
// links have fs.ModeSymlink, and are not followed. Directories whose names begin with a dot are left out. Download
// calls wait before it unpacks the artifact.
//
// The error is files.RefusedFiles if the tree has hard links, devices, sparse files, pointers of Git LFS or files of
// more than 8 MiB, or a *files.Error.
func (c *Client) Download(
	ctx context.Context, a *Artifact, directory string, wait func(context.Context) error,
) (fs.FS, error) {
	at, err := files.CleanPath(directory)
	if err != nil {
		return nil, err
	}
	content, err := c.get(ctx, a)
	if err != nil {
		return nil, err
	}
	if err := verify(a, content); err != nil {
		return nil, err
	}
	if err := wait(ctx); err != nil {
		return nil, err
	}
	return unpack(ctx, content, a.String(), at, c.limits)
}

// get returns the file at the URL of an artifact.
func (c *Client) get(ctx context.Context, a *Artifact) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.limits.time)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL, nil)
	if err != nil {
		return nil, checkURL(a)
	}
	request.Header.Set("User-Agent", "nstpl-sync")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.explain(ctx, a, err)
	}
	defer response.Body.Close()
	at := files.Printable(a.URL, files.MaxText)
	switch {
	case response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusGone:
		return nil, files.Failf(files.Unreachable,
			"%s is not at %s (status %d): wait for its controller to store it again",
			a, at, response.StatusCode)
	case response.StatusCode != http.StatusOK:
		return nil, files.Failf(files.Unreachable,
			"%s cannot be downloaded from %s (status %d): check the server and its "+
				"NetworkPolicies", a, at, response.StatusCode)
	case response.ContentLength > c.limits.download:
		return nil, c.tooLarge(a)
	}
	var content bytes.Buffer
	content.Grow(int(max(response.ContentLength, 0)) + bytes.MinRead)
	if _, err := content.ReadFrom(io.LimitReader(response.Body, c.limits.download+1)); err != nil {
		return nil, c.explain(ctx, a, err)
	}
	if int64(content.Len()) > c.limits.download {
		return nil, c.tooLarge(a)
	}
	return content.Bytes(), nil
}

func (c *Client) tooLarge(a *Artifact) error {
	return files.Failf(files.LimitExceeded,
		"%s has more than %s in compressed form: have it contain only policies, for "+
			"example by spec.ignore of the source", a, files.Size(c.limits.download))
}

// explain explains why a download failed.
func (c *Client) explain(ctx context.Context, a *Artifact, err error) error {
	at := files.Printable(a.URL, files.MaxText)
	timeout, isNetwork := errors.AsType[net.Error](err)
	certificate, isCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case errors.Is(err, errRedirect):
		return files.Failf(files.InvalidConfiguration,
			"the server of %s redirects from %s to another URL, which is not "+
				"followed: have it serve the file itself", a, at).Because(err)
	case errors.Is(ctx.Err(), context.DeadlineExceeded), isNetwork && timeout.Timeout():
		return files.Failf(files.Unreachable, "%s was not downloaded in time from %s: check the server and its "+
			"NetworkPolicies", a, at).Because(err)
	case ctx.Err() != nil:
		return ctx.Err()
	case isCertificate:
		return files.Failf(files.UntrustedServer,
			"the certificate of the server of %s is not trusted: have %s use one of "+
				"a public authority, or plain http", a, at).Because(certificate)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return files.Failf(files.Unreachable, "the server of %s ended the connection before the end of the file at %s",
			a, at).Because(err)
	}
	return files.Failf(files.Unreachable, "the server of %s cannot be reached at %s: check the server, and that a "+
		"NetworkPolicy allows nstpl-sync to connect", a, at).Because(err)
}
