package git

import (
	"net"
	"net/url"
	"regexp"
	"strings"
)

// address is where a repository is.
type address struct {
	scheme string // https or ssh
	user   string // of ssh
	host   string // without a port, and without brackets around an IPv6 address
	port   string
	path   string // decoded, begins with a slash
	url    *url.URL
}

// endpoint returns the host and port.
func (a *address) endpoint() string { return net.JoinHostPort(a.host, a.port) }

// String returns the URL. It contains no password.
func (a *address) String() string { return a.url.String() }

// scpLike matches git@host:path, and a host alone before the colon.
var scpLike = regexp.MustCompile(`^(?:[^/:@\s]+@)?[^/:@\s]+:[^/\s]`)

const exampleURLs = "write https://HOST/PATH or ssh://git@HOST/PATH"

// parseAddress parses the URL of a repository.
func parseAddress(text string) (*address, error) {
	if err := checkForm(text); err != nil {
		return nil, err
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, failf(InvalidConfiguration, "the URL of the repository cannot be parsed: %s",
			exampleURLs).Because(err)
	}
	a := &address{scheme: strings.ToLower(u.Scheme), host: u.Hostname(), port: u.Port(), path: u.Path, url: u}
	switch a.scheme {
	case "https":
		if u.User != nil {
			return nil, failf(InvalidConfiguration, "the URL of the repository contains credentials: "+
				"remove them from the URL and put username and password into the Secret")
		}
		a.port = withDefault(a.port, "443")
	case "ssh":
		if err := a.parseUser(); err != nil {
			return nil, err
		}
		a.port = withDefault(a.port, "22")
	case "http":
		return nil, failf(InvalidConfiguration, "the URL of the repository begins with http://, which protects "+
			"neither credentials nor policies: write https://")
	default:
		return nil, failf(InvalidConfiguration, "the scheme %q in the URL of the repository is not supported: %s",
			printable(u.Scheme, 20), exampleURLs)
	}
	return a, a.check()
}

// checkForm rejects texts that are not URLs, without repeating what may be a password.
func checkForm(text string) error {
	switch {
	case text == "":
		return failf(InvalidConfiguration, "the URL of the repository is empty: %s", exampleURLs)
	case len(text) > 2048:
		return failf(InvalidConfiguration, "the URL of the repository has more than 2048 characters: %s", exampleURLs)
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }):
		return failf(InvalidConfiguration,
			"the URL of the repository contains a space, a backslash or a control character: %s", exampleURLs)
	case strings.Contains(text, "://"):
		return nil
	case scpLike.MatchString(text):
		return failf(InvalidConfiguration, "the URL of the repository is written like an argument of scp: "+
			"write ssh://USER@HOST/PATH instead of USER@HOST:PATH")
	}
	return failf(InvalidConfiguration, "the URL of the repository is a path of a file, or has no scheme: %s",
		exampleURLs)
}

func (a *address) parseUser() error {
	if a.url.User == nil || a.url.User.Username() == "" {
		return failf(InvalidConfiguration,
			"the URL of the repository does not name a user: write ssh://git@%s/…", a.url.Host)
	}
	if _, has := a.url.User.Password(); has {
		return failf(InvalidConfiguration, "the URL of the repository contains a password: "+
			"remove it, and put a private key into the key identity of the Secret")
	}
	a.user = a.url.User.Username()
	return nil
}

func (a *address) check() error {
	switch {
	case a.host == "":
		return failf(InvalidConfiguration, "the URL of the repository does not name a host: %s", exampleURLs)
	case strings.Trim(a.path, "/") == "":
		return failf(InvalidConfiguration, "the URL of the repository has no path after the host: %s", exampleURLs)
	case a.url.RawQuery != "" || a.url.Fragment != "" || a.url.ForceQuery:
		return failf(InvalidConfiguration, "the URL of the repository has a query or fragment: remove it")
	case strings.ContainsFunc(a.path+a.user, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return failf(InvalidConfiguration, "the URL of the repository contains an encoded control character: remove it")
	}
	return nil
}

func withDefault(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
