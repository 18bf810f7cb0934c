package git

import (
	"crypto/x509"
	"errors"
	"strings"

	"golang.org/x/crypto/ssh"
)

// credentials is the parsed data of a Secret.
type credentials struct {
	username, password string
	token              string
	authorities        []byte // PEM
	signer             ssh.Signer
	knownHosts         []byte
}

// Keys of the Secret, which are those of Flux.
const (
	keyUsername   = "username"
	keyPassword   = "password"
	keyToken      = "bearerToken"
	keyAuthority  = "ca.crt"
	keyIdentity   = "identity"
	keyKnownHosts = "known_hosts"
)

// parseCredentials reads the data of a Secret for a URL. It ignores keys that it does not know.
func parseCredentials(a *address, data map[string][]byte) (*credentials, error) {
	if a.scheme == "ssh" {
		return parseSSHCredentials(a, data)
	}
	return parseHTTPSCredentials(data)
}

func parseHTTPSCredentials(data map[string][]byte) (*credentials, error) {
	c := &credentials{authorities: data[keyAuthority]}
	for key, field := range map[string]*string{keyUsername: &c.username, keyPassword: &c.password, keyToken: &c.token} {
		// Files that Secrets are made from often end with a line feed.
		*field = strings.TrimRight(string(data[key]), "\r\n")
		if strings.ContainsFunc(*field, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, failf(InvalidConfiguration, "%s in the Secret contains a control character: remove it", key)
		}
	}
	switch {
	case (c.username == "") != (c.password == ""):
		return nil, failf(InvalidConfiguration, "the Secret has only one of username and password: set both")
	case c.username != "" && c.token != "":
		return nil, failf(InvalidConfiguration, "the Secret has a password and a bearerToken: remove one of them")
	case strings.Contains(c.username, ":"):
		return nil, failf(InvalidConfiguration, "username in the Secret contains a colon, which HTTP does not allow")
	case len(c.authorities) > 0 && !x509.NewCertPool().AppendCertsFromPEM(c.authorities):
		return nil, failf(InvalidConfiguration, "ca.crt in the Secret has no certificate in PEM format")
	case len(data) > 0 && c.username == "" && c.token == "" && len(c.authorities) == 0:
		return nil, failf(InvalidConfiguration, "the Secret has no credentials for https: "+
			"set username and password, bearerToken, or ca.crt")
	}
	return c, nil
}

func parseSSHCredentials(a *address, data map[string][]byte) (*credentials, error) {
	c := &credentials{knownHosts: data[keyKnownHosts]}
	if len(data[keyIdentity]) == 0 {
		return nil, failf(InvalidConfiguration,
			"the Secret has no private key for ssh: set identity, and known_hosts for %s", a.host)
	}
	if len(strings.TrimSpace(string(c.knownHosts))) == 0 {
		return nil, failf(InvalidConfiguration, "the Secret has no known_hosts, so the server cannot be recognized: "+
			"set known_hosts to the lines for %s, which ssh-keyscan prints", a.host)
	}
	var err error
	c.signer, err = parsePrivateKey(data[keyIdentity], strings.TrimRight(string(data[keyPassword]), "\r\n"))
	return c, err
}

func parsePrivateKey(pem []byte, passphrase string) (ssh.Signer, error) {
	signer, err := ssh.ParsePrivateKey(pem)
	if _, encrypted := errors.AsType[*ssh.PassphraseMissingError](err); encrypted {
		if passphrase == "" {
			return nil, failf(InvalidConfiguration,
				"the private key in identity is encrypted: set password in the Secret to its passphrase")
		}
		signer, err = ssh.ParsePrivateKeyWithPassphrase(pem, []byte(passphrase))
		if errors.Is(err, x509.IncorrectPasswordError) {
			return nil, failf(InvalidConfiguration,
				"password in the Secret is not the passphrase of the private key in identity").Because(err)
		}
	}
	if err != nil {
		return nil, failf(InvalidConfiguration, "identity in the Secret is not a private key that SSH can use: "+
			"set it to a private key in PEM or OpenSSH format").Because(err)
	}
	return signer, nil
}
