package git

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
)

// transport connects to the server of a repository.
type transport interface {
	// connect requests the list of references.
	connect(ctx context.Context) (link, error)
	// close releases idle connections.
	close()
}

// link is a conversation with a server. It ends when its context is done.
type link interface {
	// references returns the list of references.
	references() io.Reader
	// request sends a request, once the list was read to its end, and returns the answer.
	request(ctx context.Context, body []byte) (io.Reader, error)
	// message returns what the server said besides the protocol, or "".
	message() string
	// close ends the conversation.
	close()
}

// explain returns an Error for what went wrong while a server was asked. message is the server's own message, or "".
func (a *address) explain(ctx context.Context, err error, message string) error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Canceled
	}
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return failf(Unreachable, "%s did not answer completely in time", a.host).Because(err)
	}
	if line, ok := errors.AsType[*pktline.ErrorLine](err); ok {
		message = line.Text
	}
	if message = firstLine(message); message != "" {
		return failf(NotFound, "%s cannot be read: the server says: %s", a, message).Because(err)
	}
	for _, explain := range []func(error) *Error{a.explainTLS, a.explainNetwork, a.explainProtocol} {
		if known := explain(err); known != nil {
			return known.Because(err)
		}
	}
	return failf(Unreachable, "%s cannot be read: %s", a, printable(err.Error(), maxRemoteText)).Because(err)
}

func (a *address) explainTLS(err error) *Error {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return failf(UntrustedServer,
			"the certificate of %s has expired or is not valid yet: it is valid from %s until %s",
			a.host, invalid.Cert.NotBefore.UTC().Format("2006-01-02"), invalid.Cert.NotAfter.UTC().Format("2006-01-02"))
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return failf(UntrustedServer, "the certificate of %s is for other names: "+
			"use a host name that the certificate contains", a.host)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return failf(UntrustedServer, "the certificate of %s is signed by an unknown authority: "+
			"put the authority's certificate into ca.crt of the Secret", a.host)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return failf(UntrustedServer, "the certificate of %s cannot be verified", a.host)
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return failf(Unreachable, "%s does not answer in TLS on port %s", a.host, a.port)
	}
	return nil
}

func (a *address) explainNetwork(err error) *Error {
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		return failf(Unreachable, "the host name %s cannot be resolved", printable(lookup.Name, 100))
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return failf(Unreachable, "the connection to %s was refused", a.endpoint())
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return failf(Unreachable, "the connection to %s was cut before the answer was complete", a.host)
	case errors.Is(err, syscall.ENOSPC):
		return failf(StorageFailed, "the volume for fetched commits is full")
	}
	return nil
}

func (a *address) explainProtocol(err error) *Error {
	switch {
	case errors.Is(err, errNotGit), errors.Is(err, pktline.ErrInvalidPktLen):
		return failf(Unreachable, "%s does not answer as a Git repository", a)
	case errors.Is(err, packfile.ErrEmptyPackfile):
		return failf(Unreachable, "the connection to %s was cut before the answer was complete", a.host)
	case errors.Is(err, packfile.ErrMalformedPackFile), errors.Is(err, errDelta):
		return failf(Unreachable, "%s sent objects that are corrupt", a)
	}
	return nil
}
