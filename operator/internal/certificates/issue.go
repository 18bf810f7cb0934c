package certificates

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"time"
)

// Keys of the Secret.
const (
	bundleKey       = "ca.crt" // all trusted authorities, the signing one first
	authorityKeyKey = "ca.key"
	servingKey      = "tls.crt"
	servingKeyKey   = "tls.key"
)

// backdated is how long before its creation a certificate is valid, because clocks may differ.
const backdated = time.Minute

// Lifetimes are how long certificates are valid. They are replaced when a third of that time is left.
type Lifetimes struct{ Authority, Serving time.Duration }

// DefaultLifetimes returns the lifetimes in a cluster.
func DefaultLifetimes() Lifetimes {
	const day = 24 * time.Hour
	return Lifetimes{Authority: 365 * day, Serving: 90 * day}
}

// spread is how long a new authority is trusted before it signs. Until then the API server may not know it.
func (l Lifetimes) spread() time.Duration { return min(l.Authority/10, l.Serving/6) }

// check is the interval between checks whether a certificate must be replaced.
func (l Lifetimes) check() time.Duration { return l.Serving / 30 }

type content struct {
	bundle       []*x509.Certificate
	authority    *x509.Certificate // the first of the bundle
	authorityKey crypto.Signer
	serving      tls.Certificate
}

// read parses the data of a Secret. With an error, it returns what it could parse.
func read(data map[string][]byte) (c content, err error) {
	for rest := data[bundleKey]; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return c, err
		}
		c.bundle = append(c.bundle, certificate)
	}
	if len(c.bundle) == 0 {
		return c, errors.New("the Secret has no authority")
	}
	authority, err := tls.X509KeyPair(encode("CERTIFICATE", c.bundle[0].Raw), data[authorityKeyKey])
	if err != nil {
		return c, err
	}
	c.authority = authority.Leaf
	c.authorityKey, _ = authority.PrivateKey.(crypto.Signer)
	c.serving, err = tls.X509KeyPair(data[servingKey], data[servingKeyKey])
	return c, err
}

func (c content) data() (map[string][]byte, error) {
	authorityKey, err := x509.MarshalPKCS8PrivateKey(c.authorityKey)
	if err != nil {
		return nil, err
	}
	servingPrivateKey, err := x509.MarshalPKCS8PrivateKey(c.serving.PrivateKey)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		bundleKey:       c.pem(),
		authorityKeyKey: encode("PRIVATE KEY", authorityKey),
		servingKey:      encode("CERTIFICATE", c.serving.Certificate[0]),
		servingKeyKey:   encode("PRIVATE KEY", servingPrivateKey),
	}, nil
}

func (c content) pem() []byte {
	var all bytes.Buffer
	for _, certificate := range c.bundle {
		all.Write(encode("CERTIFICATE", certificate.Raw))
	}
	return all.Bytes()
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// renew replaces certificates that are missing, invalid or about to expire. No handshake fails meanwhile: a new
// authority is trusted for a while before it signs, and an old one until it expires.
func (c *content) renew(hosts []string, lifetimes Lifetimes, now time.Time) (err error) {
	var trusted []*x509.Certificate
	for _, authority := range c.bundle {
		if now.Before(authority.NotAfter) {
			trusted = append(trusted, authority)
		}
	}
	c.bundle = trusted
	// An authority from the future was made with another clock. Until its time, no certificate of it is valid.
	if c.authority == nil || now.Before(c.authority.NotBefore) ||
		c.authority.NotAfter.Sub(now) < lifetimes.Authority/3 {
		if c.authority, c.authorityKey, err = newAuthority(lifetimes.Authority, now); err != nil {
			return err
		}
		c.bundle = append([]*x509.Certificate{c.authority}, c.bundle...)
	}
	age := lifetimes.Authority - c.authority.NotAfter.Sub(now)
	due := c.serving.Leaf == nil || c.serving.Leaf.NotAfter.Sub(now) < lifetimes.Serving/3 ||
		c.serving.Leaf.CheckSignatureFrom(c.authority) != nil
	if !c.good(hosts, now) || due && age >= lifetimes.spread() {
		c.serving, err = c.issue(hosts, lifetimes.Serving, now)
	}
	return err
}

// good reports whether the serving certificate is valid.
func (c *content) good(hosts []string, now time.Time) bool {
	if c.serving.Leaf == nil {
		return false
	}
	roots := x509.NewCertPool()
	for _, authority := range c.bundle {
		roots.AddCert(authority)
	}
	for _, host := range hosts {
		if _, err := c.serving.Leaf.Verify(x509.VerifyOptions{
			Roots: roots, DNSName: host, CurrentTime: now,
		}); err != nil {
			return false
		}
	}
	return true
}

func newAuthority(lifetime time.Duration, now time.Time) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template, err := newTemplate("nstpl-operator webhooks", lifetime, now)
	if err != nil {
		return nil, nil, err
	}
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	template.IsCA, template.BasicConstraintsValid = true, true
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return certificate, key, err
}

// issue returns a new serving certificate. It does not expire after its authority.
func (c *content) issue(hosts []string, lifetime time.Duration, now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template, err := newTemplate(hosts[0], min(lifetime, c.authority.NotAfter.Sub(now)), now)
	if err != nil {
		return tls.Certificate{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.authority, key.Public(), c.authorityKey)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

func newTemplate(name string, lifetime time.Duration, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(lifetime),
	}, err
}
