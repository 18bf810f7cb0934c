package git

import (
	"cmp"
	"net"
	"net/url"
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

func (a *address) endpoint() string { return net.JoinHostPort(a.host, a.port) }

// String returns the URL. It contains no password.
func (a *address) String() string { return a.url.String() }

const exampleURLs = "write https://HOST/PATH or ssh://git@HOST/PATH"

// parseAddress parses the URL of a repository. The API server has checked its length, and how it begins. Errors do not
// repeat the URL, which may contain a password.
func parseAddress(text string) (*address, error) {
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
		a.port = cmp.Or(a.port, "443")
	case "ssh":
		if err := a.parseUser(); err != nil {
			return nil, err
		}
		a.port = cmp.Or(a.port, "22")
	default:
		return nil, failf(InvalidConfiguration, "the URL of the repository begins with neither https:// nor ssh://: %s",
			exampleURLs)
	}
	return a, a.check()
}

func (a *address) parseUser() error {
	if a.url.User.Username() == "" {
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
	case a.host == "" || strings.Trim(a.path, "/") == "":
		return failf(InvalidConfiguration, "the URL of the repository lacks the host or the path: %s", exampleURLs)
	case a.url.RawQuery != "" || a.url.Fragment != "" || a.url.ForceQuery:
		return failf(InvalidConfiguration, "the URL of the repository has a query or fragment: remove it")
	case strings.ContainsFunc(a.path+a.user, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return failf(InvalidConfiguration, "the URL of the repository contains an encoded control character: remove it")
	}
	return nil
}
