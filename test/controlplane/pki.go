package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// authority is the CA of one cluster.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// pair is a certificate with its private key, PEM encoded.
type pair struct {
	cert, key []byte
}

func newAuthority() (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	begin := time.Now().Add(-time.Hour) // clocks may be set back
	config := certutil.Config{CommonName: "nstpl-test-ca", NotBefore: begin}
	cert, err := certutil.NewSelfSignedCACert(config, key)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key}, nil
}

func (a *authority) pem() []byte {
	return encodeCert(a.cert.Raw)
}

// serving issues the API server's certificate.
func (a *authority) serving(address net.IP) (pair, error) {
	return a.sign(newServingTemplate("kube-apiserver", "localhost", "kubernetes", "kubernetes.default",
		"kubernetes.default.svc", "127.0.0.1", address.String(), serviceIP.String()))
}

// ServingCertificate returns a certificate for a server beside the control plane, which has names or IP addresses, and
// the certificate of its authority in PEM format.
func ServingCertificate(until time.Time, names ...string) (tls.Certificate, []byte, error) {
	a, err := newAuthority()
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := newServingTemplate("nstpl-test", names...)
	template.NotAfter = until
	signed, err := a.sign(template)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	certificate, err := tls.X509KeyPair(signed.cert, signed.key)
	return certificate, a.pem(), err
}

// ClientCertificate returns a certificate of a user with its private key, and the certificate of its authority, which
// signs nothing else, in PEM format.
func ClientCertificate(user string) (certificate, key, authority []byte, err error) {
	a, err := newAuthority()
	if err != nil {
		return nil, nil, nil, err
	}
	signed, err := a.client(user)
	return signed.cert, signed.key, a.pem(), err
}

func newServingTemplate(subject string, names ...string) *x509.Certificate {
	template := newTemplate(pkix.Name{CommonName: subject})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range names {
		if address := net.ParseIP(name); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return template
}

// client issues the certificate of a user who is a member of groups.
func (a *authority) client(user string, groups ...string) (pair, error) {
	template := newTemplate(pkix.Name{CommonName: user, Organization: groups})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(template)
}

func (a *authority) sign(template *x509.Certificate) (pair, error) {
	key, err := newKey()
	if err != nil {
		return pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, err
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	return pair{cert: encodeCert(der), key: encoded}, err
}

func newTemplate(subject pkix.Name) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour), // clocks may be set back
		NotAfter:     now.AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func newKey() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der})
}
