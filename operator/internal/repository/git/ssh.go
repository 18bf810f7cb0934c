package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// sshTransport runs git-upload-pack on a server.
type sshTransport struct {
	address *address
	signer  ssh.Signer
	check   ssh.HostKeyCallback
}

// newSSHTransport returns a transport. dir is a directory for a temporary file.
func newSSHTransport(a *address, c *credentials, dir string) (*sshTransport, error) {
	check, err := parseKnownHosts(c.knownHosts, dir)
	if err != nil {
		return nil, err
	}
	return &sshTransport{address: a, signer: c.signer, check: check}, nil
}

// parseKnownHosts returns a check of host keys. The package knownhosts reads files only.
func parseKnownHosts(lines []byte, dir string) (ssh.HostKeyCallback, error) {
	file := filepath.Join(dir, "known_hosts"+temporary)
	defer os.Remove(file)
	if err := os.WriteFile(file, lines, 0o600); err != nil {
		return nil, failf(StorageFailed, "the directory for fetched commits cannot be written").Because(err)
	}
	check, err := knownhosts.New(file)
	if err != nil {
		return nil, failf(InvalidConfiguration, "known_hosts in the Secret has an invalid line: "+
			"set it to lines that ssh-keyscan prints").Because(err)
	}
	return check, nil
}

// checkHostKey explains why a key is not that of the host.
func (t *sshTransport) checkHostKey(hostname string, remote net.Addr, key ssh.PublicKey) error {
	err := t.check(hostname, remote, key)
	shown := fmt.Sprintf("%s %s", key.Type(), ssh.FingerprintSHA256(key))
	if _, revoked := errors.AsType[*knownhosts.RevokedError](err); revoked {
		return failf(UntrustedServer, "the host key of %s (%s) is revoked in known_hosts", t.address.host, shown)
	}
	if unknown, ok := errors.AsType[*knownhosts.KeyError](err); ok {
		if len(unknown.Want) == 0 {
			return t.unknownHost(shown)
		}
		return failf(UntrustedServer, "the host key of %s is %s, which is not the one in known_hosts: "+
			"either the server has a new key, or another server answers in its place", t.address.host, shown)
	}
	return err
}

func (t *sshTransport) unknownHost(shown string) error {
	return failf(UntrustedServer, "known_hosts has no key of %s, whose key is %s: add a line for it, "+
		"if that is the fingerprint that the server's owner publishes",
		strings.TrimSuffix(knownhosts.Normalize(t.address.endpoint()), ":22"), shown)
}

// hostKeyAlgorithms returns the algorithms of the keys in known_hosts, so that a server with several keys presents one
// that is known. It returns nil if the host is unknown.
func (t *sshTransport) hostKeyAlgorithms(remote net.Addr) []string {
	known, ok := errors.AsType[*knownhosts.KeyError](t.check(t.address.endpoint(), remote, noKey{}))
	if !ok {
		return nil
	}
	var algorithms []string
	for _, k := range known.Want {
		switch kind := k.Key.Type(); kind {
		case ssh.KeyAlgoRSA:
			algorithms = append(algorithms, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		default:
			algorithms = append(algorithms, kind)
		}
	}
	slices.Sort(algorithms)
	return slices.Compact(algorithms)
}

// noKey is a key that no host has.
type noKey struct{}

func (noKey) Type() string                        { return "none" }
func (noKey) Marshal() []byte                     { return nil }
func (noKey) Verify([]byte, *ssh.Signature) error { return errors.New("not a key") }

func (t *sshTransport) close() {}

func (t *sshTransport) connect(ctx context.Context) (link, error) {
	dialer := net.Dialer{Timeout: 15 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", t.address.endpoint())
	if err != nil {
		return nil, err
	}
	l := &sshLink{conn: conn}
	// Closing the connection ends every read and write that waits for the server.
	l.release = context.AfterFunc(ctx, func() { conn.Close() })
	if err := t.start(l); err != nil {
		l.close()
		return nil, t.explainSSH(err)
	}
	return l, nil
}

// start logs in and starts git-upload-pack.
func (t *sshTransport) start(l *sshLink) error {
	connection, channels, requests, err := ssh.NewClientConn(l.conn, t.address.endpoint(), &ssh.ClientConfig{
		User:              t.address.user,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(t.signer)},
		HostKeyCallback:   t.checkHostKey,
		HostKeyAlgorithms: t.hostKeyAlgorithms(l.conn.RemoteAddr()),
	})
	if err != nil {
		return err
	}
	session, err := ssh.NewClient(connection, channels, requests).NewSession()
	if err != nil {
		return err
	}
	session.Stderr = &l.stderr
	if l.stdin, err = session.StdinPipe(); err != nil {
		return err
	}
	if l.stdout, err = session.StdoutPipe(); err != nil {
		return err
	}
	l.session = session
	return session.Start(uploadPack + " " + t.address.remotePath())
}

// explainSSH explains why the server did not let the user in.
func (t *sshTransport) explainSSH(err error) error {
	if negotiation, ok := errors.AsType[*ssh.AlgorithmNegotiationError](err); ok {
		return failf(UntrustedServer, "%s has no host key of the types in known_hosts, or no common algorithm: "+
			"update known_hosts", t.address.host).Because(negotiation)
	}
	if err != nil && strings.Contains(err.Error(), "unable to authenticate") {
		return failf(AccessDenied, "%s rejects the private key of the Secret for the user %s: "+
			"register its public key (%s) at the server", t.address.host, printable(t.address.user, 50),
			ssh.FingerprintSHA256(t.signer.PublicKey())).Because(err)
	}
	return err
}

// remotePath returns the path in quotes, for a shell. As in git, a path below /~ is one below a home directory.
func (a *address) remotePath() string {
	path := a.path
	if strings.HasPrefix(path, "/~") {
		path = path[1:]
	}
	return "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(path) + "'"
}

type sshLink struct {
	conn    net.Conn
	release func() bool
	session *ssh.Session
	stdin   io.WriteCloser
	stdout  io.Reader
	stderr  head
}

func (l *sshLink) references() io.Reader { return l.stdout }

func (l *sshLink) request(_ context.Context, body []byte) (io.Reader, error) {
	if _, err := l.stdin.Write(body); err != nil {
		return nil, err
	}
	return l.stdout, nil
}

// message returns what the server wrote to the standard error stream. It waits until the program has ended or the
// connection was closed.
func (l *sshLink) message() string {
	if l.session == nil {
		return ""
	}
	l.stdin.Close()
	_ = l.session.Wait() // until everything was copied to stderr
	return l.stderr.String()
}

func (l *sshLink) close() {
	l.release()
	l.conn.Close()
}

// head is a writer that keeps the beginning of what is written.
type head struct {
	lock    sync.Mutex
	content bytes.Buffer
}

const maxHead = 4 << 10

func (h *head) Write(p []byte) (int, error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.content.Write(p[:min(len(p), maxHead-h.content.Len())])
	return len(p), nil
}

func (h *head) String() string {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.content.String()
}
