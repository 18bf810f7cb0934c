package git

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"
)

// httpsTransport speaks Git's smart protocol over HTTPS.
type httpsTransport struct {
	address     *address
	credentials *credentials
	client      *http.Client
}

const (
	maxRedirects = 5
	uploadPack   = "git-upload-pack"
	userAgent    = "git/nstpl" // some servers answer in Git's protocol only if the name begins with git/
)

// newHTTPSTransport returns a transport that uses the proxy of the environment. The authorities of the Secret are
// trusted in addition to those of the system.
func newHTTPSTransport(a *address, c *credentials) *httpsTransport {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	roots.AppendCertsFromPEM(c.authorities)
	proxy := httpproxy.FromEnvironment().ProxyFunc()
	return &httpsTransport{address: a, credentials: c, client: &http.Client{
		CheckRedirect: a.checkRedirect,
		Transport: &http.Transport{
			Proxy:                  func(r *http.Request) (*url.URL, error) { return proxy(r.URL) },
			OnProxyConnectResponse: a.checkProxy,
			DialContext:            (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
			TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    15 * time.Second,
			MaxResponseHeaderBytes: 1 << 20,
			MaxIdleConns:           1,
			IdleConnTimeout:        90 * time.Second,
		},
	}}
}

// checkProxy explains why a proxy does not connect to the server.
func (a *address) checkProxy(_ context.Context, _ *url.URL, _ *http.Request, response *http.Response) error {
	switch response.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusProxyAuthRequired:
		return failf(AccessDenied, "the HTTPS proxy demands other credentials for %s (status 407): "+
			"set them in the environment variable HTTPS_PROXY", a.host)
	}
	return failf(Unreachable, "the HTTPS proxy does not connect to %s (status %d)", a.endpoint(), response.StatusCode)
}

// checkRedirect follows redirects to the same origin only, so that no other server receives the credentials.
func (a *address) checkRedirect(next *http.Request, via []*http.Request) error {
	to := next.URL
	port := cmp.Or(to.Port(), "443")
	switch {
	case to.Scheme != "https" || to.Hostname() != a.host || port != a.port:
		shown := url.URL{Scheme: to.Scheme, Host: to.Host, Path: strings.TrimSuffix(to.Path, "/info/refs")}
		return failf(InvalidConfiguration, "%s redirects to another server: change the URL of the repository to %s, "+
			"if you trust that server", a, printable(shown.String(), maxRemoteText))
	case next.Method != http.MethodGet || via[0].Method != http.MethodGet:
		return failf(Unreachable, "%s redirects a request for objects, which is not supported", a)
	case len(via) > maxRedirects:
		return failf(Unreachable, "%s redirects more than %d times", a, maxRedirects)
	}
	return nil
}

func (t *httpsTransport) close() { t.client.CloseIdleConnections() }

func (t *httpsTransport) connect(ctx context.Context) (link, error) {
	at := *t.address.url
	at.Path = strings.TrimSuffix(at.Path, "/") + "/info/refs"
	at.RawPath = ""
	at.RawQuery = "service=" + uploadPack
	response, err := t.send(ctx, http.MethodGet, &at, nil) //nolint:bodyclose // the link closes it
	if err != nil {
		return nil, err
	}
	l := &httpsLink{transport: t, body: response.Body, base: *response.Request.URL}
	l.base.RawQuery = ""
	l.base.RawPath = ""
	path, found := strings.CutSuffix(l.base.Path, "/info/refs")
	if kind := response.Header.Get("Content-Type"); kind != "application/x-"+uploadPack+"-advertisement" || !found {
		l.close()
		return nil, errNotGit
	}
	l.base.Path = path
	return l, nil
}

// send sends a request and returns a response with status 200.
func (t *httpsTransport) send(ctx context.Context, method string, to *url.URL, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", userAgent)
	if body != nil {
		request.Header.Set("Content-Type", "application/x-"+uploadPack+"-request")
		request.Header.Set("Accept", "application/x-"+uploadPack+"-result")
	}
	switch c := t.credentials; {
	case c.username != "":
		request.SetBasicAuth(c.username, c.password)
	case c.token != "":
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := t.client.Do(request)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // without the URL
		}
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, t.explainStatus(response.StatusCode)
	}
	return response, nil
}

func (t *httpsTransport) explainStatus(status int) error {
	a, c := t.address, t.credentials
	switch {
	case status == http.StatusUnauthorized && c.username == "" && c.token == "":
		return failf(AccessDenied, "%s demands credentials (status 401), or does not exist: "+
			"set secretRef to a Secret with username and password, or with bearerToken", a)
	case status == http.StatusUnauthorized:
		return failf(AccessDenied, "%s rejects the credentials of the Secret (status 401): "+
			"check that they are correct and have not expired", a)
	case status == http.StatusForbidden:
		return failf(AccessDenied, "%s cannot be read with the credentials of the Secret (status 403): "+
			"give their owner access to read the repository", a)
	case status == http.StatusNotFound, status == http.StatusGone:
		return failf(NotFound,
			"%s does not exist, or its existence is hidden from the credentials in use (status %d): "+
				"check the URL and the Secret", a, status)
	case status == http.StatusTooManyRequests:
		return failf(Unreachable, "%s answers that there were too many requests (status 429)", a)
	case status >= 500:
		return failf(Unreachable, "%s answers with an error of the server (status %d)", a, status)
	}
	return failf(Unreachable, "%s answers with the unexpected status %d", a, status)
}

type httpsLink struct {
	transport *httpsTransport
	body      io.ReadCloser
	base      url.URL // of the repository, after redirects
}

func (l *httpsLink) references() io.Reader { return l.body }

func (l *httpsLink) request(ctx context.Context, body []byte) (io.Reader, error) {
	l.close()
	at := l.base
	at.Path += "/" + uploadPack
	response, err := l.transport.send(ctx, http.MethodPost, &at, body) //nolint:bodyclose // the link closes it
	if err != nil {
		return nil, err
	}
	l.body = response.Body
	if response.Header.Get("Content-Type") != "application/x-"+uploadPack+"-result" {
		return nil, errNotGit
	}
	return l.body, nil
}

func (l *httpsLink) message() string { return "" }

func (l *httpsLink) close() { l.body.Close() }
